/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "ctl.h"
#include "demangle.h"
#include "format.h"
#include "json.h"
#include "table.h"

#define NEWEST_DEFAULT 1000
#define PAGE_ROWS      10000

static const struct table_column columns[] = {
        {"KERNEL", TABLE_SHRINK},
        {"PROCESS", 0},
        {"STREAM", TABLE_RIGHT},
        {"ENTERED", 0},
        {"QUEUE", TABLE_RIGHT},
        {"OTHERS", TABLE_RIGHT},
        {"EXECUTION", TABLE_RIGHT},
        {"MATCH", 0},
        {"END", 0},
        {"CLOCK", TABLE_RIGHT},
        {0},
};

struct view {
        struct ctl *ctl;
        struct table *table;
        struct ctl_so_far so_far;
};

static const char *stream_text(uint64_t stream)
{
        switch (stream) {
        case 0:
                return "default";
        case 1:
                return "legacy";
        case 2:
                return "per-thread";
        default:
                return format_text("0x%" PRIx64, stream);
        }
}

static void add_row(struct table *t, const struct gpuobs_launch *l)
{
        bool both = l->has_gpu_start_ns && l->has_gpu_end_ns;

        table_cell(t, demangle(l->kernel));
        table_cell(t, format_text("%s/%" PRIu32, l->comm, l->pid));
        table_cell(t, stream_text(l->stream));
        table_cell(t, format_time(l->cpu_enter_ns));
        /* Below zero when the kernel began before the call returned: shown as it is. */
        table_cell(t, format_known_duration(l->has_gpu_start_ns,
                                            (int64_t)(l->gpu_start_ns - l->cpu_return_ns)));
        table_cell(t, format_known_duration(l->has_queue_others_ns, (int64_t)l->queue_others_ns));
        table_cell(t, l->result ? format_text("error %" PRIu32, l->result)
                                : format_known_duration(
                                          both, (int64_t)(l->gpu_end_ns - l->gpu_start_ns)));
        table_cell(t, gpuobs_match_text(l->match));
        table_cell(t, gpuobs_end_text(l->end));
        table_cell(t, l->has_clock_error_ns ? format_text("±%" PRIu32 " ns", l->clock_error_ns)
                                            : NULL);
}

static void show(struct view *v, const struct gpuobs_launch *launches, size_t n)
{
        for (size_t i = 0; i < n && ctl_wants_more(&v->so_far); i++, v->so_far.shown++) {
                if (v->ctl->json)
                        json_print(SCHEMA_OF(launch), &launches[i]);
                else
                        add_row(v->table, &launches[i]);
        }
        if (!v->ctl->json)
                table_flush(v->table);
        fflush(stdout);
}

/* ---- what is stored ---- */

static int query(struct view *v, const struct ctl_filter *f)
{
        struct gpuobs_launches_params p = {
                .has_since_ns = f->has_since,
                .since_ns = f->since_ns,
                .has_until_ns = f->has_until,
                .until_ns = f->until_ns,
                .has_pid = f->has_pid,
                .pid = f->pid,
                .has_gpu = f->has_gpu,
                .gpu = f->gpu,
                .kernel = f->kernel,
                .has_newest = v->so_far.limit > 0,
                .newest = v->so_far.limit > 0,
                .has_limit = true,
        };
        struct gpuobs_launches *page;
        int r;

        do {
                p.limit =
                        v->so_far.limit ? (uint32_t)(v->so_far.limit - v->so_far.shown) : PAGE_ROWS;
                r = gpuobs_launches_query(v->ctl->gpuobs, &p, &page);
                if (r < 0)
                        return ctl_failed(v->ctl, r);
                show(v, page->launches, page->n_launches);
                /* Later pages go on from here, in order, also when the newest were asked for. */
                p.newest = false;
                p.has_cursor = page->has_next_cursor;
                p.cursor = page->next_cursor;
                if (!p.has_cursor)
                        ctl_warn_losses(&page->losses);
                gpuobs_launches_free(page);
        } while (p.has_cursor && ctl_wants_more(&v->so_far));
        if (v->so_far.limit && v->so_far.shown == v->so_far.limit && !f->has_limit && !v->ctl->json)
                fprintf(stderr, "gpuobsctl: the newest %" PRIu64 "; --limit 0 shows all\n",
                        v->so_far.limit);
        return CTL_OK;
}

/* ---- as they come ---- */

static void on_batch(void *data, int error, const struct gpuobs_launch_batch *batch)
{
        struct view *v = data;

        if (error) {
                v->so_far.error = error;
                return;
        }
        if (batch->dropped)
                fprintf(stderr,
                        "gpuobsctl: %" PRIu64 " launches not shown: the output is too slow\n",
                        batch->dropped);
        if (batch->n_launches)
                show(v, batch->launches, batch->n_launches);
}

static int follow(struct view *v, const struct ctl_filter *f)
{
        struct gpuobs_subscribe_params p = {.has_pid = f->has_pid,
                                            .pid = f->pid,
                                            .has_gpu = f->has_gpu,
                                            .gpu = f->gpu,
                                            .kernel = f->kernel};
        struct gpuobs *g = v->ctl->gpuobs;
        int r;

        r = gpuobs_launches_subscribe(g, &p, on_batch, v, NULL);
        return ctl_follow(v->ctl, r, &v->so_far);
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {
                CTL_COMMON_OPTIONS, CTL_FILTER_OPTIONS, {"follow", no_argument, NULL, 'f'}, {0}};
        struct ctl_filter filter = {0};
        struct view v = {.ctl = ctl};
        bool following = false;
        int r;

        while (ctl_option(ctl, self, &filter, argc, argv, options) == 'f')
                following = true;
        ctl_no_arguments(self, argc, argv);
        if (following && (filter.has_since || filter.has_until))
                ctl_usage(self, "--follow shows what is to come: no --since, no --until");
        if (!following && filter.has_limit && filter.limit > PAGE_ROWS)
                ctl_usage(self, "--limit is at most 10000; 0 shows all");
        v.so_far.limit = filter.has_limit                ? filter.limit
                         : following || filter.has_since ? 0
                                                         : NEWEST_DEFAULT;
        r = ctl_connect(ctl);
        if (r)
                return r;
        v.table = table_new(columns);
        r = following ? follow(&v, &filter) : query(&v, &filter);
        table_free(v.table);
        return r;
}

const struct ctl_command command_launches = {
        "launches", "[OPTIONS]", "Kernel launches, one per line.",
        "  -f, --follow        as they are finished\n"
        "      --since AGO     entered in the last AGO: 10s, 500ms, 5m, 1h\n"
        "      --until AGO     entered before AGO\n"
        "      --pid PID       only this process\n"
        "      --gpu N         only this GPU\n"
        "      --kernel GLOB   only kernels whose (mangled) name matches: * ? [a-z]\n"
        "      --limit N       the newest N, default 1000 without --since; 0: all.\n"
        "                      With --follow: stop after N\n"
        "\n"
        "They come in the order in which they were recorded, not quite that of ENTERED.\n"
        "QUEUE: from the call's return to the start on the GPU; below zero when the\n"
        "kernel began before the call returned. OTHERS: of that, while other processes\n"
        "had the GPU; the rest is the process's own queue, and switching. CLOCK: bound of\n"
        "the error of GPU times. \"-\": not known.\n\n",
        run};
