/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>

#include "ctl.h"

bool ctl_wants_more(const struct ctl_so_far *s)
{
        return !s->limit || s->shown < s->limit;
}

int ctl_follow(struct ctl *ctl, int r, const struct ctl_so_far *s)
{
        struct gpuobs *g = ctl->gpuobs;
        struct pollfd fd = {.fd = gpuobs_fd(g)};

        while (r >= 0 && !s->error && ctl_wants_more(s)) {
                fd.events = gpuobs_events(g);
                if (poll(&fd, 1, gpuobs_timeout_ms(g)) < 0 && errno != EINTR)
                        r = -errno;
                else
                        r = gpuobs_dispatch(g);
        }
        if (s->error || r < 0)
                return ctl_failed(ctl, s->error ? s->error : r);
        return CTL_OK;
}
