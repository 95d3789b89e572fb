/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

static const char *socket_path(const struct ctl *ctl)
{
        const char *path = ctl->socket ? ctl->socket : getenv(GPUOBS_SOCKET_ENV);

        return path && *path ? path : GPUOBS_SOCKET_DEFAULT;
}

int ctl_connect(struct ctl *ctl)
{
        int r = gpuobs_connect(ctl->socket, 0, &ctl->gpuobs);

        switch (-r) {
        case 0:
                return CTL_OK;
        case ENOENT:
        case ECONNREFUSED:
                fprintf(stderr, "gpuobsd is not running; start it with: systemctl start gpuobsd\n");
                if (strcmp(socket_path(ctl), GPUOBS_SOCKET_DEFAULT) != 0)
                        fprintf(stderr, "(nobody serves %s)\n", socket_path(ctl));
                return CTL_UNREACHABLE;
        case EACCES:
        case EPERM:
                fprintf(stderr,
                        "You may not use %s; become a member of group gpuobs with: "
                        "sudo usermod -aG gpuobs $USER (then log in again)\n",
                        socket_path(ctl));
                return CTL_PERMISSION;
        default:
                fprintf(stderr, "Cannot connect to %s: %s\n", socket_path(ctl), strerror(-r));
                return CTL_UNREACHABLE;
        }
}

int ctl_failed(struct ctl *ctl, int error)
{
        const struct gpuobs_error *e = gpuobs_error(ctl->gpuobs);

        if (e->detail && e->number == GPUOBS_ERROR_BAD_PARAMS) /* says all there is to say */
                fprintf(stderr, "gpuobsctl: %s\n", e->detail);
        else
                fprintf(stderr, "gpuobsctl: %s%s%s%s\n", e->message, e->detail ? " (" : "",
                        e->detail ? e->detail : "", e->detail ? ")" : "");
        switch (-error) {
        case EPERM:
        case EACCES:
                return CTL_PERMISSION;
        case ECONNRESET:
        case ETIMEDOUT:
        case ESHUTDOWN:
                return CTL_UNREACHABLE;
        default:
                return CTL_FAILED;
        }
}

void ctl_warn_losses(const struct gpuobs_losses *losses)
{
        const char *before = " (";

        if (!losses->lost)
                return;
        fflush(stdout);
        fprintf(stderr, "gpuobsctl: %" PRIu64 " of %" PRIu64 " launches were lost", losses->lost,
                losses->produced);
        for (size_t i = 0; i < losses->n_causes; i++) {
                if (!losses->causes[i].launches || !losses->causes[i].count)
                        continue;
                fprintf(stderr, "%s%s %" PRIu64, before, losses->causes[i].cause,
                        losses->causes[i].count);
                before = ", ";
        }
        fprintf(stderr, "%s; see: gpuobsctl losses\n", *before == ',' ? ")" : "");
}
