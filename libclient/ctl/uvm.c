/* SPDX-License-Identifier: Apache-2.0 */

/* Managed memory of processes: what is known, as it goes on, event by event. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "demangle.h"
#include "format.h"
#include "json.h"
#include "table.h"
#include "uvm.h"

static const struct table_column process_columns[] = {
        {"PID", TABLE_RIGHT},        {"COMMAND", 0},           {"WATCH", 0},
        {"ALLOCATED", TABLE_RIGHT},  {"EVENTS", TABLE_RIGHT},  {"DROPPED", TABLE_RIGHT},
        {"GPU FAULTS", TABLE_RIGHT}, {"CPU", TABLE_RIGHT},     {"TO GPU", TABLE_RIGHT},
        {"TO CPU", TABLE_RIGHT},     {"EVICTED", TABLE_RIGHT}, {"THRASHING", TABLE_RIGHT},
        {"FAULTS/S", TABLE_RIGHT},   {"REASON", TABLE_SHRINK}, {0},
};

static const struct table_column allocation_columns[] = {
        {"PID", TABLE_RIGHT},
        {"ALLOCATION", TABLE_RIGHT},
        {"SIZE", TABLE_RIGHT},
        {"GPU FAULTS", TABLE_RIGHT},
        {"CPU", TABLE_RIGHT},
        {"TO GPU", TABLE_RIGHT},
        {"TO CPU", TABLE_RIGHT},
        {"EVICTED", TABLE_RIGHT},
        {"THRASHING", TABLE_RIGHT},
        {"FAULTS/S", TABLE_RIGHT},
        {"TO GPU/S", TABLE_RIGHT},
        {"TO CPU/S", TABLE_RIGHT},
        {0},
};

static const struct table_column hot_columns[] = {
        {"PID", TABLE_RIGHT},    {"ALLOCATION", TABLE_RIGHT},
        {"PIECE", TABLE_RIGHT},  {"SIZE", TABLE_RIGHT},
        {"EVENTS", TABLE_RIGHT}, {"ERROR", TABLE_RIGHT},
        {"FAULTS", TABLE_RIGHT}, {"TO GPU", TABLE_RIGHT},
        {"TO CPU", TABLE_RIGHT}, {0},
};

static const struct table_column kernel_columns[] = {
        {"PID", TABLE_RIGHT},     {"GPU FAULTS", TABLE_RIGHT}, {"TO GPU", TABLE_RIGHT},
        {"EVICTED", TABLE_RIGHT}, {"KERNEL", TABLE_SHRINK},    {0},
};

static const struct table_column follow_columns[] = {
        {"TIME", 0},
        {"PID", TABLE_RIGHT},
        {"COMMAND", TABLE_SHRINK},
        {"ALLOCATION", TABLE_RIGHT},
        {"SIZE", TABLE_RIGHT},
        {"GPU FAULTS/S", TABLE_RIGHT},
        {"CPU", TABLE_RIGHT},
        {"TO GPU/S", TABLE_RIGHT},
        {"TO CPU/S", TABLE_RIGHT},
        {"EVICTED/S", TABLE_RIGHT},
        {"THRASHING", TABLE_RIGHT},
        {0},
};

static const struct table_column event_columns[] = {
        {"TIME", 0},
        {"PID", TABLE_RIGHT},
        {"EVENT", 0},
        {"ADDRESS", TABLE_RIGHT},
        {"SIZE", TABLE_RIGHT},
        {"ALLOCATION", TABLE_RIGHT},
        {"FROM", 0},
        {"TO", 0},
        {"ACCESS", 0},
        {"CAUSE", 0},
        {0},
};

struct view {
        struct ctl *ctl;
        struct gpuobs_uvm_params params;
        struct table *processes, *allocations, *hot, *kernels; /* or one for what goes on */
        struct table *lines;
        struct ctl_so_far so_far;
        uint32_t step_s; /* of history; 0: not given */
};

static const char *address_text(uint64_t address)
{
        return format_text("0x%" PRIx64, address);
}

/* ---- what is known ---- */

static void add_process(struct view *v, const struct gpuobs_uvm_process *p)
{
        struct table *t = v->processes;

        table_cell(t, format_count(p->pid));
        table_cell(t, p->comm);
        table_cell(t, gpuobs_uvm_watch_text(p->watch));
        table_cell(t, format_text("%s in %" PRIu64, format_bytes(p->allocated_bytes),
                                  p->allocation_count));
        table_cell(t, format_count(p->produced));
        table_cell(t, format_count(p->dropped));
        table_cell(t, format_count(p->total.gpu_faults));
        table_cell(t, format_count(p->total.cpu_faults));
        table_cell(t, format_bytes(p->total.bytes_to_gpu));
        table_cell(t, format_bytes(p->total.bytes_to_cpu));
        table_cell(t, format_bytes(p->total.bytes_evicted));
        table_cell(t, format_count(p->total.thrashing));
        table_cell(t, format_count(p->rate.gpu_faults + p->rate.cpu_faults));
        table_cell(t, p->reason ? p->reason : "");
}

static void add_allocation(struct view *v, uint32_t pid, const struct gpuobs_uvm_allocation *a)
{
        struct table *t = v->allocations;

        table_cell(t, format_count(pid));
        table_cell(t, address_text(a->address));
        table_cell(t, format_bytes(a->bytes));
        table_cell(t, format_count(a->total.gpu_faults));
        table_cell(t, format_count(a->total.cpu_faults));
        table_cell(t, format_bytes(a->total.bytes_to_gpu));
        table_cell(t, format_bytes(a->total.bytes_to_cpu));
        table_cell(t, format_bytes(a->total.bytes_evicted));
        table_cell(t, format_count(a->total.thrashing));
        table_cell(t, format_count(a->rate.gpu_faults + a->rate.cpu_faults));
        table_cell(t, format_bytes(a->rate.bytes_to_gpu));
        table_cell(t, format_bytes(a->rate.bytes_to_cpu));
}

/* a NULL: of any allocation, or of none that is listed. */
static void add_hot(struct view *v, uint32_t pid, const struct gpuobs_uvm_allocation *a,
                    const struct gpuobs_uvm_hot *h)
{
        struct table *t = v->hot;

        table_cell(t, format_count(pid));
        table_cell(t, a ? address_text(a->address) : "");
        table_cell(t, address_text(h->address));
        table_cell(t, format_bytes(h->bytes));
        table_cell(t, format_count(h->events));
        table_cell(t, h->error ? format_text("-%" PRIu64, h->error) : "0");
        table_cell(t, format_count(h->faults));
        table_cell(t, format_bytes(h->bytes_to_gpu));
        table_cell(t, format_bytes(h->bytes_to_cpu));
}

static bool is_listed(const struct gpuobs_uvm_process *p, uint64_t address)
{
        for (size_t i = 0; i < p->n_allocations; i++)
                if (address >= p->allocations[i].address &&
                    address - p->allocations[i].address < p->allocations[i].bytes)
                        return true;
        return false;
}

/* Pages under their allocation, then those of allocations that are not listed, then blocks. */
static void add_all_hot(struct view *v, const struct gpuobs_uvm_process *p)
{
        for (size_t i = 0; i < p->n_allocations; i++)
                for (size_t k = 0; k < p->allocations[i].n_pages; k++)
                        add_hot(v, p->pid, &p->allocations[i], &p->allocations[i].pages[k]);
        for (size_t i = 0; i < p->n_pages; i++)
                if (!is_listed(p, p->pages[i].address))
                        add_hot(v, p->pid, NULL, &p->pages[i]);
        for (size_t i = 0; i < p->n_blocks; i++)
                add_hot(v, p->pid, NULL, &p->blocks[i]);
}

static void add_kernel(struct view *v, uint32_t pid, const struct gpuobs_uvm_kernel *k,
                       const char *name)
{
        struct table *t = v->kernels;

        if (!name && !k->gpu_faults && !k->bytes_to_gpu && !k->bytes_evicted)
                return;
        table_cell(t, format_count(pid));
        table_cell(t, format_count(k->gpu_faults));
        table_cell(t, format_bytes(k->bytes_to_gpu));
        table_cell(t, format_bytes(k->bytes_evicted));
        table_cell(t, name ? name : demangle(k->kernel));
}

static void add_all(struct view *v, const struct gpuobs_uvm_process *p)
{
        add_process(v, p);
        for (size_t i = 0; i < p->n_allocations; i++)
                add_allocation(v, p->pid, &p->allocations[i]);
        add_all_hot(v, p);
        for (size_t i = 0; i < p->n_kernels; i++)
                add_kernel(v, p->pid, &p->kernels[i], NULL);
        if (p->shared.gpu_faults || p->shared.bytes_to_gpu)
                add_kernel(v, p->pid, &p->shared, "(several)");
        if (p->idle.gpu_faults || p->idle.bytes_to_gpu)
                add_kernel(v, p->pid, &p->idle, "(none known)");
}

/* ---- as it goes on ---- */

static void add_line(struct view *v, const char *time, const struct gpuobs_uvm_process *p,
                     const struct gpuobs_uvm_allocation *a)
{
        const struct gpuobs_uvm_counts *c = a ? &a->rate : &p->rate;
        struct table *t = v->lines;

        table_cell(t, time);
        table_cell(t, format_count(p->pid));
        table_cell(t, p->comm);
        table_cell(t, a ? address_text(a->address) : "all");
        table_cell(t, format_bytes(a ? a->bytes : p->allocated_bytes));
        table_cell(t, format_count(c->gpu_faults));
        table_cell(t, format_count(c->cpu_faults));
        table_cell(t, format_bytes(c->bytes_to_gpu));
        table_cell(t, format_bytes(c->bytes_to_cpu));
        table_cell(t, format_bytes(c->bytes_evicted));
        table_cell(t, format_count(c->thrashing));
}

static bool is_active(const struct gpuobs_uvm_counts *c)
{
        return c->gpu_faults || c->cpu_faults || c->bytes_to_gpu || c->bytes_to_cpu ||
               c->thrashing || c->remote_maps;
}

static void add_lines(struct view *v, const struct gpuobs_uvm_process *p)
{
        struct timespec now;
        char time[32];

        if (p->watch != GPUOBS_UVM_WATCH_ON)
                return;
        clock_gettime(CLOCK_MONOTONIC, &now);
        snprintf(time, sizeof(time), "%.8s",
                 format_time((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec));
        add_line(v, time, p, NULL);
        for (size_t i = 0; i < p->n_allocations; i++)
                if (is_active(&p->allocations[i].rate))
                        add_line(v, time, p, &p->allocations[i]);
}

static int list(struct view *v, bool following)
{
        struct gpuobs_uvm_processes *page;
        int r;

        v->params.has_cursor = false;
        do {
                r = gpuobs_uvm_list(v->ctl->gpuobs, &v->params, &page);
                if (r < 0)
                        return ctl_failed(v->ctl, r);
                for (size_t i = 0; i < page->n_processes; i++) {
                        if (v->ctl->json)
                                json_print(SCHEMA_OF(uvm_process), &page->processes[i]);
                        else if (following)
                                add_lines(v, &page->processes[i]);
                        else
                                add_all(v, &page->processes[i]);
                }
                v->params.has_cursor = page->has_next_cursor;
                v->params.cursor = page->next_cursor;
                gpuobs_uvm_processes_free(page);
        } while (v->params.has_cursor);
        return CTL_OK;
}

static int show(struct view *v)
{
        int r = list(v, false);

        if (r || v->ctl->json)
                return r;
        table_flush(v->processes);
        puts("");
        table_flush(v->allocations);
        puts("");
        table_flush(v->hot);
        puts("");
        table_flush(v->kernels);
        return CTL_OK;
}

static int follow(struct view *v)
{
        int r;

        do {
                r = list(v, true);
                if (!v->ctl->json)
                        table_flush(v->lines);
                if (fflush(stdout))
                        return CTL_FAILED;
                v->so_far.shown++;
                if (r || (v->so_far.limit && v->so_far.shown == v->so_far.limit))
                        return r;
                sleep(1);
        } while (true);
}

/* ---- event by event ---- */

static void add_event(struct view *v, const struct gpuobs_uvm_event *e)
{
        struct table *t = v->lines;

        table_cell(t, e->has_at_ns ? format_time(e->at_ns) : NULL);
        table_cell(t, format_count(e->pid));
        table_cell(t, gpuobs_uvm_kind_text(e->kind));
        table_cell(t, e->has_address ? address_text(e->address) : NULL);
        table_cell(t, e->has_bytes ? format_bytes(e->bytes) : NULL);
        table_cell(t, e->has_allocation ? address_text(e->allocation) : NULL);
        table_cell(t, e->source);
        table_cell(t, e->target);
        table_cell(t, e->has_access ? gpuobs_uvm_access_text(e->access) : NULL);
        table_cell(t, e->has_cause ? gpuobs_uvm_cause_text(e->cause) : NULL);
}

static void on_batch(void *data, int error, const struct gpuobs_uvm_batch *batch)
{
        struct view *v = data;

        if (error) {
                v->so_far.error = error;
                return;
        }
        if (batch->dropped)
                fprintf(stderr, "gpuobsctl: %" PRIu64 " events not shown: the output is too slow\n",
                        batch->dropped);
        for (size_t i = 0; i < batch->n_events && ctl_wants_more(&v->so_far);
             i++, v->so_far.shown++) {
                if (v->ctl->json)
                        json_print(SCHEMA_OF(uvm_event), &batch->events[i]);
                else
                        add_event(v, &batch->events[i]);
        }
        if (!v->ctl->json)
                table_flush(v->lines);
        fflush(stdout);
}

static int show_events(struct view *v)
{
        struct gpuobs_uvm_subscribe_params p = {.has_pid = v->params.has_pid, .pid = v->params.pid};
        struct gpuobs *g = v->ctl->gpuobs;
        int r;

        r = gpuobs_uvm_subscribe(g, &p, on_batch, v, NULL);
        return ctl_follow(v->ctl, r, &v->so_far);
}

/* ---- choosing ---- */

static int set_watch(struct view *v, bool on)
{
        struct gpuobs_uvm_watch_params p = {.pid = v->params.pid, .on = on};
        struct gpuobs_uvm_watched *answer;
        bool as_asked;
        int r = gpuobs_uvm_watch(v->ctl->gpuobs, &p, &answer);

        if (r < 0)
                return ctl_failed(v->ctl, r);
        as_asked = (answer->watch == GPUOBS_UVM_WATCH_ON) == on;
        if (v->ctl->json)
                json_print(SCHEMA_OF(uvm_watched), answer);
        else if (!as_asked)
                fprintf(stderr, "gpuobsctl: %s\n",
                        answer->reason ? answer->reason : gpuobs_uvm_watch_text(answer->watch));
        gpuobs_uvm_watched_free(answer);
        return as_asked ? CTL_OK : CTL_FAILED;
}

enum mode {
        MODE_SHOW,
        MODE_FOLLOW = 'f',
        MODE_EVENTS = 'e',
        MODE_WATCH = 'w',
        MODE_UNWATCH = 'u',
        MODE_DRIVER = 'd',
        MODE_DECISIONS = 'D',
        MODE_HISTORY = 'h',
};

static int run_mode(struct view *v, const struct ctl_filter *filter, enum mode mode)
{
        switch (mode) {
        case MODE_FOLLOW:
                v->lines = table_new(follow_columns);
                return follow(v);
        case MODE_EVENTS:
                v->lines = table_new(event_columns);
                return show_events(v);
        case MODE_WATCH:
        case MODE_UNWATCH:
                return set_watch(v, mode == MODE_WATCH);
        case MODE_DRIVER:
                return uvm_show_driver(v->ctl, filter);
        case MODE_DECISIONS:
                return uvm_show_decisions(v->ctl, filter);
        case MODE_HISTORY:
                return uvm_show_history(v->ctl, filter, v->step_s);
        default:
                v->processes = table_new(process_columns);
                v->allocations = table_new(allocation_columns);
                v->hot = table_new(hot_columns);
                v->kernels = table_new(kernel_columns);
                return show(v);
        }
}

static uint32_t step_of(const struct ctl_command *self, const char *text)
{
        uint64_t s = ctl_duration_ns(self, "step", text) / 1000000000;

        if (s < 1 || s > 86400)
                ctl_usage(self, "--step is from 1s to 1d");
        return (uint32_t)s;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS,
                                                {"pid", required_argument, NULL, OPTION_PID},
                                                {"limit", required_argument, NULL, OPTION_LIMIT},
                                                {"follow", no_argument, NULL, MODE_FOLLOW},
                                                {"events", no_argument, NULL, MODE_EVENTS},
                                                {"watch", no_argument, NULL, MODE_WATCH},
                                                {"unwatch", no_argument, NULL, MODE_UNWATCH},
                                                {"driver", no_argument, NULL, MODE_DRIVER},
                                                {"decisions", no_argument, NULL, MODE_DECISIONS},
                                                {"history", no_argument, NULL, MODE_HISTORY},
                                                {"step", required_argument, NULL, OPTION_OWN},
                                                {"since", required_argument, NULL, OPTION_SINCE},
                                                {"until", required_argument, NULL, OPTION_UNTIL},
                                                {0}};
        struct ctl_filter filter = {0};
        struct view v = {.ctl = ctl};
        enum mode mode = MODE_SHOW;
        int option, r;

        while ((option = ctl_option(ctl, self, &filter, argc, argv, options)) != -1) {
                if (option == OPTION_OWN) {
                        v.step_s = step_of(self, optarg);
                        continue;
                }
                if (mode != MODE_SHOW && mode != (enum mode)option)
                        ctl_usage(self, "only one of --follow, --events, --watch, --unwatch, "
                                        "--driver, --decisions, --history");
                mode = (enum mode)option;
        }
        ctl_no_arguments(self, argc, argv);
        if (mode != MODE_HISTORY && (v.step_s || filter.has_since || filter.has_until))
                ctl_usage(self, "--step, --since and --until belong to --history");
        if ((mode == MODE_WATCH || mode == MODE_UNWATCH) && !filter.has_pid)
                ctl_usage(self, "say which process: --pid PID");
        v.params.has_pid = filter.has_pid;
        v.params.pid = filter.pid;
        v.so_far.limit = filter.has_limit ? filter.limit : 0;
        if (mode == MODE_SHOW && filter.has_limit) {
                if (filter.limit > 256)
                        ctl_usage(self, "--limit is at most 256 rows of each list");
                v.params.has_top = true;
                v.params.top = filter.limit;
        }
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = run_mode(&v, &filter, mode);
        table_free(v.processes);
        table_free(v.allocations);
        table_free(v.hot);
        table_free(v.kernels);
        table_free(v.lines);
        return r;
}

const struct ctl_command command_uvm = {
        "uvm", "[OPTIONS]", "Managed memory: faults, migrations, thrashing, hot pages.",
        "  -f, --follow        what happens each second, per process and allocation\n"
        "      --events        every event as it comes\n"
        "      --watch         read the events of --pid, whatever managed_memory says\n"
        "      --unwatch       do not read them\n"
        "      --driver        what the driver decides, where probes inside it can be\n"
        "      --decisions     its latest decisions, one by one\n"
        "      --history       what happened before, from the database\n"
        "      --step TIME     ... in steps of so long, default 1m\n"
        "      --since AGO     ... in the last AGO: 10m, 1h, 2d\n"
        "      --until AGO     ... and before that\n"
        "      --pid PID       only this process\n"
        "      --limit N       rows of each list per process, default 16; with --follow\n"
        "                      seconds, with other lists lines\n"
        "\n"
        "Counts are since the process is watched. ERROR: a piece's count may be so much\n"
        "too high. DROPPED: events the driver could not hand over, which counts lack.\n\n",
        run};
