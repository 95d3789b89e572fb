/* SPDX-License-Identifier: Apache-2.0 */

/*
 * On a GPU machine, as root: the context-switch trace of two processes that both
 * want the whole GPU and know nothing of being watched. While both spin,
 *   - the shares agree with the kernels that each got done, within 3 %,
 *   - every switch lies between readings of the GPU's clock around the trace,
 *   - no record is lost, nothing contradicts, time adds up,
 *   - the channel ids of the trace are those the ioctl programs read.
 * Prints "ok" or "FAIL" and the figure for each; exit 1 when one failed, 77
 * without a GPU. --dump writes every record as it came, 32 bytes each.
 *   share_check SPIN_PROGRAM [SECONDS] [--dump FILE]
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "correlate/slices.h"
#include "driver/calls.h"
#include "driver/ctxsw.h"
#include "driver/ptimer.h"
#include "probe/driver_probes.h"
#include "spinners.h"
#include "util/macro.h"
#include "util/time.h"

#define TOLERANCE  0.03
#define SLICES_MAX (1u << 20)
#define MARGIN_NS  (2 * NSEC_PER_MSEC)

static struct slice *pieces;
static size_t piece_count;
static uint64_t span_ns, parts_ns, lost, first_gpu_ns = UINT64_MAX, last_gpu_ns, present_ns;
static size_t events;
static FILE *dump;
static struct spinner spinners[2];
static struct calls *calls[2];
static int failures;

static void result(bool ok, const char *what, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void result(bool ok, const char *what, const char *format, ...)
{
        va_list args;

        printf("%-4s %s: ", ok ? "ok" : "FAIL", what);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
        failures += !ok;
}

/* ---- the trace ---- */

static void on_slice(void *data, const struct slice *s)
{
        if (piece_count < SLICES_MAX)
                pieces[piece_count++] = *s;
}

static void on_second(void *data, const struct slices_second *s)
{
        span_ns += s->span_ns;
        parts_ns += s->active_ns + s->switch_ns + s->idle_ns + s->unknown_ns;
}

static const struct slices_ops slices_ops = {on_slice, on_second};

static void on_event(void *data, const struct ctxsw_event *e)
{
        events++;
        if (e->gpu_ns < first_gpu_ns)
                first_gpu_ns = e->gpu_ns;
        if (e->gpu_ns > last_gpu_ns)
                last_gpu_ns = e->gpu_ns;
        slices_event(data, e, present_ns);
}

static void on_gap(void *data, uint64_t n)
{
        lost += n;
        slices_gap(data, n);
}

static void on_raw(void *data, const uint8_t bytes[CTXSW_RECORD_BYTES])
{
        if (dump)
                fwrite(bytes, CTXSW_RECORD_BYTES, 1, dump);
}

static const struct ctxsw_ops ctxsw_ops = {on_event, on_gap, on_raw};

static void on_call(void *data, const struct driver_call_event *e)
{
        for (int i = 0; i < 2; i++)
                if ((pid_t)e->tgid == spinners[i].pid)
                        calls_add(calls[i], e);
}

struct watch {
        struct ptimer *ptimer;
        struct mono_map *map;
        struct clock_model *clock;
        struct ctxsw *trace;
        struct slices *slices;
        struct driver_probes *probes; /* NULL: none */
};

static int tick(struct watch *w)
{
        struct clock_sample s;
        uint64_t before_ns;
        int r = ptimer_read(w->ptimer, 8, &s);

        if (r == 0)
                r = clock_model_add(w->clock, &s);
        if (r == 0)
                r = mono_map_read(w->map);
        if (r < 0)
                return r;
        if (w->probes)
                while (driver_probes_poll(w->probes, 1000, on_call, NULL) > 0)
                        ;
        before_ns = now_ns();
        present_ns = before_ns + NSEC_PER_SEC;
        r = ctxsw_read(w->trace, &ctxsw_ops, w->slices);
        if (r >= 0)
                slices_advance(w->slices, before_ns - MARGIN_NS);
        return r;
}

static int watch_for(struct watch *w, double seconds)
{
        int r = 0;

        for (int i = 0; r >= 0 && i < (int)(seconds * 4); i++) {
                usleep(250000);
                r = tick(w);
        }
        return r;
}

/* ---- the checks ---- */

/* A process's active time within a time, and its slices that began in it. */
static uint64_t active(pid_t pid, uint64_t from_ns, uint64_t until_ns, size_t *ret_slices)
{
        uint64_t sum = 0;

        *ret_slices = 0;
        for (size_t i = 0; i < piece_count; i++) {
                const struct slice *s = &pieces[i];
                uint64_t a = s->start_ns > from_ns ? s->start_ns : from_ns;
                uint64_t b = s->end_ns < until_ns ? s->end_ns : until_ns;

                if (s->unknown || s->pid != (uint32_t)pid || b <= a)
                        continue;
                sum += b - a;
                *ret_slices += s->begins;
        }
        return sum;
}

static void check_shares(uint64_t from_ns, uint64_t until_ns)
{
        uint64_t ns[2];
        size_t kernels[2], slices[2];
        double by_time, by_kernels;

        for (int i = 0; i < 2; i++) {
                ns[i] = active(spinners[i].pid, from_ns, until_ns, &slices[i]);
                kernels[i] = spinner_kernels(&spinners[i], from_ns, until_ns);
        }
        by_time = ns[0] + ns[1] ? (double)ns[0] / (double)(ns[0] + ns[1]) : 0;
        by_kernels = kernels[0] + kernels[1]
                             ? (double)kernels[0] / (double)(kernels[0] + kernels[1])
                             : 0;
        result(by_time > 0 && by_kernels > 0 && by_time - by_kernels < TOLERANCE &&
                       by_kernels - by_time < TOLERANCE,
               "shares", "%.1f %% of the time, %.1f %% of %zu kernels", 100 * by_time,
               100 * by_kernels, kernels[0] + kernels[1]);
        result(slices[0] > 10 && slices[1] > 10, "slices",
               "%zu and %zu, %.3f and %.3f ms on average", slices[0], slices[1],
               slices[0] ? (double)ns[0] / 1e6 / (double)slices[0] : 0,
               slices[1] ? (double)ns[1] / 1e6 / (double)slices[1] : 0);
        result((double)(ns[0] + ns[1]) > 0.8 * (double)(until_ns - from_ns), "busy",
               "%.1f %% of the time that both wanted the GPU",
               100 * (double)(ns[0] + ns[1]) / (double)(until_ns - from_ns));
}

/* Ids that the ioctl programs read when the channels were made, and those of the trace. */
static void check_ids(const struct watch *w)
{
        size_t known = 0, unknown = 0;
        struct call_group g;

        if (!w->probes)
                return;
        for (size_t i = 0; i < piece_count; i++)
                for (int k = 0; k < 2; k++)
                        if (!pieces[i].unknown && pieces[i].pid == (uint32_t)spinners[k].pid) {
                                if (calls_find_context(calls[k], pieces[i].context_id, &g))
                                        known++;
                                else
                                        unknown++;
                        }
        result(known > 0 && unknown == 0, "channels",
               "%zu pieces of slices of known groups, %zu not", known, unknown);
        printf("     groups: %zu and %zu\n", calls_group_count(calls[0]),
               calls_group_count(calls[1]));
}

static int run(struct watch *w, const char *program, const char *seconds)
{
        struct clock_sample before, after;
        uint64_t from_ns, until_ns;
        int r = ptimer_read(w->ptimer, 8, &before);

        for (int i = 0; r >= 0 && i < 4; i++)
                r = tick(w);
        for (int i = 0; i < 2; i++)
                if (!spinner_start(&spinners[i], program, seconds))
                        return -ECHILD;
        for (int i = 0; i < 2; i++)
                if (!spinner_wait_ready(&spinners[i]))
                        return -ECHILD;
        from_ns = now_ns() + NSEC_PER_SEC / 2;
        r = watch_for(w, atof(seconds) - 1);
        until_ns = now_ns();
        for (int i = 0; i < 2; i++)
                if (!spinner_finish(&spinners[i]))
                        return -ECHILD;
        if (r >= 0)
                r = watch_for(w, 0.5);
        if (r >= 0)
                r = ptimer_read(w->ptimer, 8, &after);
        if (r < 0)
                return r;
        slices_finish(w->slices, now_ns());
        check_shares(from_ns, until_ns);
        result(events > 0 && first_gpu_ns >= before.gpu_ns && last_gpu_ns <= after.gpu_ns, "clock",
               "%zu switches, the first %.3f ms after the reading before, the last %.3f ms before "
               "the one after",
               events, ((double)first_gpu_ns - (double)before.gpu_ns) / 1e6,
               ((double)after.gpu_ns - (double)last_gpu_ns) / 1e6);
        result(lost == 0 && ctxsw_garbage(w->trace) == 0, "losses",
               "%" PRIu64 " records lost, %" PRIu64 " of no sense", lost, ctxsw_garbage(w->trace));
        result(slices_contradictions(w->slices) <= 1, "order", "%" PRIu64 " contradictions",
               slices_contradictions(w->slices));
        result(span_ns > 0 && span_ns == parts_ns, "sums", "%.3f s", (double)span_ns / 1e9);
        check_ids(w);
        return 0;
}

static int open_watch(struct watch *w)
{
        const struct driver_probes_options options = {0};
        struct ptimer_gpu gpu;
        int r;

        if (ptimer_list_gpus(&gpu, 1) == 0)
                return -ENODEV;
        w->map = mono_map_new(clock_pair_read, NULL);
        w->clock = clock_model_new(PTIMER_STEP_NS, w->map);
        r = ptimer_new(&rm_system_default, &gpu, &w->ptimer);
        if (r == 0)
                r = ctxsw_new(&rm_system_default, gpu.instance, gpu.minor, &w->trace);
        if (r < 0)
                return r;
        w->slices = slices_new(w->clock, &slices_ops, NULL, now_ns());
        if (driver_probes_new(&options, &w->probes) < 0) {
                printf("     no right to load eBPF: channels are not checked\n");
                w->probes = NULL;
        }
        return 0;
}

int main(int argc, char **argv)
{
        const char *seconds = argc > 2 && argv[2][0] != '-' ? argv[2] : "6";
        struct watch w = {0};
        int r;

        if (argc < 2) {
                fprintf(stderr, "usage: share_check SPIN_PROGRAM [SECONDS] [--dump FILE]\n");
                return 2;
        }
        if (argc > 3 && strcmp(argv[argc - 2], "--dump") == 0)
                dump = fopen(argv[argc - 1], "w");
        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        pieces = malloc(SLICES_MAX * sizeof(*pieces));
        calls[0] = calls_new();
        calls[1] = calls_new();
        r = open_watch(&w);
        if (r < 0) {
                printf("SKIP: no context switches can be traced: %s\n", strerror(-r));
                return 77;
        }
        r = run(&w, argv[1], seconds);
        result(r >= 0, "run", "%s", r < 0 ? strerror(-r) : "to the end");
        driver_probes_free(w.probes);
        slices_free(w.slices);
        ctxsw_free(w.trace);
        ptimer_free(w.ptimer);
        clock_model_free(w.clock);
        mono_map_free(w.map);
        if (dump)
                fclose(dump);
        printf("share_check: %d failed\n", failures);
        return failures ? 1 : 0;
}
