/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "ctl.h"
#include "format.h"
#include "json.h"

static void print_line(const char *name, const char *value)
{
        printf("%-14s %s\n", name, value);
}

static void print_gpu(const struct gpuobs_gpu *g)
{
        const char *drift = "", *error = "";

        if (g->has_drift_ppb)
                drift = format_text(", drift %.3f ppm", (double)g->drift_ppb / 1000);
        if (g->has_clock_error_ns)
                error = format_text(", error within %" PRIu32 " ns", g->clock_error_ns);
        printf("%-14s %s, clock %s%s%s\n", format_text("GPU %" PRIu32, g->gpu),
               g->uuid ? g->uuid : "no UUID known", gpuobs_clock_text(g->clock), drift, error);
}

static void print_status(const struct gpuobs_status *s)
{
        printf("gpuobsd %s, pid %" PRIu32 ", up %s, %s\n", s->version, s->pid,
               format_duration((int64_t)s->uptime_ns), format_bytes(s->rss_bytes));
        print_line("CUDA libraries", format_text("%" PRIu32 " probed", s->libraries));
        print_line("processes",
                   format_text("%" PRIu32 ", %" PRIu32 " with an agent", s->processes, s->agents));
        for (size_t i = 0; i < s->n_gpus; i++)
                print_gpu(&s->gpus[i]);
        print_line("launches",
                   format_text("%" PRIu64 " seen, %" PRIu64 " stored, %" PRIu64 " lost%s",
                               s->losses.produced, s->losses.stored, s->losses.lost,
                               s->all_processes ? "" : " (of your processes)"));
        printf("%-14s %s, %s, about %" PRIu64 " launches, %" PRIu64 " waiting\n", "database",
               s->store.path, format_bytes(s->store.bytes), s->store.launches, s->store.queued);
        print_line("clients", format_text("%" PRIu32 ", %" PRIu32 " following", s->connections,
                                          s->subscriptions));
        for (size_t i = 0; i < s->n_problems; i++)
                printf("problem        %s: %s\n", s->problems[i].name, s->problems[i].doc);
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
        struct gpuobs_status *s;
        int r;

        ctl_option(ctl, self, NULL, argc, argv, options);
        ctl_no_arguments(self, argc, argv);
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_status(ctl->gpuobs, NULL, &s);
        if (r < 0)
                return ctl_failed(ctl, r);
        if (ctl->json)
                json_print(SCHEMA_OF(status), s);
        else
                print_status(s);
        gpuobs_status_free(s);
        return CTL_OK;
}

const struct ctl_command command_status = {
        "status", "[OPTIONS]", "What the daemon is doing and whether anything is wrong.", "", run};
