/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl doctor: what works on this machine, what does not, and what to do about it. */
#include "doctor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "json.h"
#include "table.h"

#define NAME_WIDTH     21
#define FINDING_COLUMN (NAME_WIDTH + 10)
#define WRAPPED_MIN    20 /* in less nothing is wrapped */

struct sums {
        size_t states[GPUOBS_CHECK_STATE_BROKEN + 1];
};

static const char *color_of(enum gpuobs_check_state state)
{
        static const char *const colors[] = {"\033[32m", "\033[2m", "\033[33m", "\033[31m"};

        return isatty(STDOUT_FILENO) ? colors[state] : "";
}

/* A text that begins at a column; on a terminal its further lines do as well. */
static void put_wrapped(const char *text, size_t column)
{
        size_t width = table_terminal_width(), at = column;

        if (width < column + WRAPPED_MIN)
                width = SIZE_MAX;
        while (*text) {
                size_t word = strcspn(text, " ");

                if (at > column && at + 1 + word > width)
                        at = (size_t)printf("\n%*s", (int)column, "") - 1;
                else if (at > column)
                        at += (size_t)printf(" ");
                at += (size_t)printf("%.*s", (int)word, text);
                text += word + (text[word] == ' ');
        }
        putchar('\n');
}

static void show(struct ctl *ctl, struct sums *sums, const struct gpuobs_check *c)
{
        const char *color = color_of(c->state);

        sums->states[c->state]++;
        if (ctl->json) {
                json_print(SCHEMA_OF(check), c);
                return;
        }
        printf("%s%-8s%s %-*s ", color, gpuobs_check_state_text(c->state),
               color[0] ? "\033[0m" : "", NAME_WIDTH, c->name);
        put_wrapped(c->finding, FINDING_COLUMN);
        if (!c->advice)
                return;
        printf("%*s-> ", FINDING_COLUMN, "");
        put_wrapped(c->advice, FINDING_COLUMN + 3);
}

static void show_all(struct ctl *ctl, struct sums *sums, const struct doctor *d)
{
        for (size_t i = 0; i < d->count; i++) {
                const struct gpuobs_check c = {
                        .name = (char *)d->checks[i].name,
                        .state = d->checks[i].state,
                        .finding = (char *)d->checks[i].finding,
                        .advice = (char *)d->checks[i].advice,
                };

                show(ctl, sums, &c);
        }
}

/* ---- the daemon ---- */

static void add_unreachable(struct doctor *d, int error)
{
        bool forbidden = error == -EACCES || error == -EPERM;

        doctor_add(d, "daemon", GPUOBS_CHECK_STATE_BROKEN,
                   forbidden ? "Ask for permission on its socket; gpuobsd.socket lets everybody in."
                   : doctor_exists(d, "/run/systemd/system")
                           ? "systemctl start gpuobsd, and journalctl -u gpuobsd says why if it "
                             "does not"
                           : "Start gpuobsd as root; it says why if it does not.",
                   forbidden ? "you may not connect to it (%s)" : "it does not answer (%s)",
                   strerror(-error));
}

/* What the daemon says of itself, or that it does not. */
static void ask_daemon(struct ctl *ctl, struct sums *sums, struct doctor *d)
{
        struct gpuobs_status *status = NULL;
        struct gpuobs_doctor *answer = NULL;
        int r = gpuobs_connect(ctl->socket, 0, &ctl->gpuobs);

        if (r == 0)
                r = gpuobs_status(ctl->gpuobs, NULL, &status);
        d->count = 0;
        if (r < 0)
                add_unreachable(d, r);
        else
                doctor_add(d, "daemon", GPUOBS_CHECK_STATE_OK, NULL,
                           "version %s answers, pid %u; processes known: %u", status->version,
                           status->pid, status->processes);
        show_all(ctl, sums, d);
        if (r < 0)
                return;
        gpuobs_status_free(status);
        r = gpuobs_doctor_get(ctl->gpuobs, NULL, &answer);
        if (r < 0) {
                d->count = 0;
                doctor_add(d, "daemon_checks", GPUOBS_CHECK_STATE_LIMITED,
                           "Restart it, so that it is of the same version as gpuobsctl.",
                           "the daemon does not say what works: %s",
                           gpuobs_error(ctl->gpuobs)->message);
                show_all(ctl, sums, d);
                return;
        }
        for (size_t i = 0; i < answer->n_checks; i++)
                show(ctl, sums, &answer->checks[i]);
        gpuobs_doctor_free(answer);
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
        static struct doctor d = {.root = ""};
        struct sums sums = {0};

        ctl_option(ctl, self, NULL, argc, argv, options);
        ctl_no_arguments(self, argc, argv);
        doctor_check_kernel(&d);
        doctor_check_driver(&d);
        doctor_check_install(&d);
        show_all(ctl, &sums, &d);
        ask_daemon(ctl, &sums, &d);
        if (!ctl->json)
                printf("%zu ok, %zu off, %zu limited, %zu broken\n",
                       sums.states[GPUOBS_CHECK_STATE_OK], sums.states[GPUOBS_CHECK_STATE_OFF],
                       sums.states[GPUOBS_CHECK_STATE_LIMITED],
                       sums.states[GPUOBS_CHECK_STATE_BROKEN]);
        return sums.states[GPUOBS_CHECK_STATE_BROKEN] ? CTL_FAILED : CTL_OK;
}

const struct ctl_command command_doctor = {
        "doctor", "[OPTIONS]", "What works on this machine, and what to do about what does not.",
        "ok: it works. off: it is not there or switched off, and need not be. limited: it\n"
        "works less well than it could. broken: much depends on it. Works without the\n"
        "daemon, too.\n"
        "Exit status: 0 nothing is broken, 1 something is.\n\n",
        run};
