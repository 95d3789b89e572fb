/* SPDX-License-Identifier: Apache-2.0 */

/* processes.list and losses.get: both walk the processes. */
#include "api/handlers.h"
#include "api/page.h"

struct walk {
        struct api_call *call;
        struct page page;
        bool has_pid;
        uint32_t pid;
        uint64_t last; /* process_key of the last row */
        void (*add)(struct walk *w, const struct api_process *p);
};

static int visit(void *data, const struct api_process *p)
{
        struct walk *w = data;

        if (!api_call_sees(w->call, p->info) || (w->has_pid && p->info->pid != w->pid))
                return 0;
        if (page_full(&w->page))
                return 1;
        w->add(w, p);
        w->page.count++;
        w->last = p->info->process_key;
        return 0;
}

/* Walk from the cursor on. False: the call has been failed. */
static bool walk_processes(struct walk *w, struct api_call *call, uint64_t after, bool has_limit,
                           uint32_t limit)
{
        struct api_server *s = call->server;

        w->call = call;
        if (!page_init(&w->page, call, has_limit, limit))
                return false;
        s->backend->processes(s->data, after, visit, w);
        return true;
}

/* ---- processes.list ---- */

/* Only of processes that have ever been limited. */
static void add_limits(struct gpuobs_process *row, const struct api_process *p)
{
        row->has_limit_waiting = p->limits.waiting;
        row->limit_waiting = p->limits.waiting;
        row->has_limit_rate = p->limits.rate;
        row->limit_rate = p->limits.rate;
        row->has_limit_priority = p->limits.priority;
        row->limit_priority = p->limits.priority;
        row->has_limits_heeded = p->limits.waiting || p->limits.rate || p->limits.priority;
        row->limits_heeded = p->paced.heeded;
        row->has_held = row->has_held_ns = row->has_held_late = p->paced.held;
        row->held = p->paced.held;
        row->held_ns = p->paced.held_ns;
        row->held_late = p->paced.late;
        row->has_streams_changed = p->paced.streams;
        row->streams_changed = p->paced.streams;
}

static void add_process(struct walk *w, const struct api_process *p)
{
        struct codec_arena arena = {0};
        char comm[17];
        struct gpuobs_process row = {
                .pid = p->info->pid,
                .start_ticks = p->info->start_ticks,
                .uid = p->info->uid,
                .comm = comm,
                .exe = rows_text(p->info->exe),
                .cgroup = rows_text(p->info->cgroup),
                .first_seen_ns = p->info->started_realtime_ns,
                .alive = p->alive,
                .agent = p->agent,
                .agent_reason = rows_text(p->agent_reason),
                .contexts = p->contexts,
                .has_depth = p->has_depth,
                .depth = p->depth,
                .pending = p->pending,
                .images = p->images,
                .kernels = p->kernels,
                .kernels_start = p->kernels_start,
                .kernels_end = p->kernels_end,
        };

        rows_comm(comm, p->info);
        add_limits(&row, p);
        if (rows_ledger(p->ledger, false, &arena, &row.losses) < 0)
                w->page.rows.failed = true;
        rows_add(&w->page.rows, SCHEMA_OF(process), &row);
        codec_arena_done(&arena);
}

void api_handle_processes_list(struct api_call *call, const struct gpuobs_processes_params *p)
{
        struct walk w = {.has_pid = p->has_pid, .pid = p->pid, .add = add_process};
        struct gpuobs_processes result = {0};

        if (!walk_processes(&w, call, p->has_cursor ? p->cursor : 0, p->has_limit, p->limit))
                return;
        result.has_next_cursor = w.page.more;
        result.next_cursor = w.last;
        page_reply(call, &w.page, "processes", &result, &result.losses, false);
        page_done(&w.page);
}

/* ---- losses.get ---- */

static void add_losses(struct walk *w, const struct api_process *p)
{
        struct codec_arena arena = {0};
        char comm[17];
        struct gpuobs_process_losses row = {
                .pid = p->info->pid,
                .start_ticks = p->info->start_ticks,
                .comm = comm,
        };

        rows_comm(comm, p->info);
        if (rows_ledger(p->ledger, false, &arena, &row.losses) < 0)
                w->page.rows.failed = true;
        rows_add(&w->page.rows, SCHEMA_OF(process_losses), &row);
        codec_arena_done(&arena);
}

void api_handle_losses_get(struct api_call *call, const struct gpuobs_losses_params *p)
{
        struct walk w = {.has_pid = p->has_pid, .pid = p->pid, .add = add_losses};
        struct gpuobs_losses_report result = {0};

        if (!walk_processes(&w, call, p->has_cursor ? p->cursor : 0, p->has_limit, p->limit))
                return;
        result.has_next_cursor = w.page.more;
        result.next_cursor = w.last;
        page_reply(call, &w.page, "processes", &result, &result.losses, true);
        page_done(&w.page);
}
