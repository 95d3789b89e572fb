/* SPDX-License-Identifier: Apache-2.0 */

/* uvm.list and uvm.watch: the managed memory of processes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "api/page.h"
#include "driver/uvm_process.h"
#include "util/macro.h"

#define TOP_DEFAULT 16
#define TOP_MAX     256

_Static_assert((int)UVM_WATCH_ENDED == (int)GPUOBS_UVM_WATCH_ENDED, "watch");
_Static_assert((int)UVM_WATCH_REFUSED == (int)GPUOBS_UVM_WATCH_REFUSED, "watch");

struct walk {
        struct api_call *call;
        struct page page;
        bool has_pid;
        uint32_t pid;
        size_t top;
        uint64_t last; /* process_key of the last row */
};

static struct gpuobs_uvm_counts counts_of(const struct uvm_counts *c)
{
        return (struct gpuobs_uvm_counts){
#define X(name) .name = c->name,
                UVM_COUNTS(X)
#undef X
        };
}

/* ---- lists of a process ---- */

static uint64_t activity(const struct uvm_counts *c)
{
        return c->gpu_faults + c->cpu_faults;
}

static uint64_t traffic(const struct uvm_counts *c)
{
        return c->bytes_to_gpu + c->bytes_to_cpu + c->bytes_between_gpus;
}

static int descending(uint64_t a, uint64_t b)
{
        return a < b ? 1 : a > b ? -1 : 0;
}

/* By what happens now, then by what happened ever. */
static int by_activity(const void *a, const void *b)
{
        const struct uvm_allocation *x = *(const struct uvm_allocation *const *)a;
        const struct uvm_allocation *y = *(const struct uvm_allocation *const *)b;
        int r = descending(activity(&x->rate), activity(&y->rate));

        if (r == 0)
                r = descending(activity(&x->total), activity(&y->total));
        if (r == 0)
                r = descending(traffic(&x->total), traffic(&y->total));
        return r ? r : -descending(x->address, y->address);
}

static int list_hot(const struct uvm_hot *h, size_t top, struct codec_arena *arena,
                    struct gpuobs_uvm_hot **ret_list, size_t *ret_count)
{
        struct uvm_hot_entry entries[UVM_HOT_ENTRIES_MAX];
        size_t n = uvm_hot_top(h, entries, top < UVM_HOT_ENTRIES_MAX ? top : UVM_HOT_ENTRIES_MAX);
        struct gpuobs_uvm_hot *list = codec_arena_alloc(arena, (n + 1) * sizeof(*list));

        if (!list)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                list[i] = (struct gpuobs_uvm_hot){
                        .address = entries[i].address,
                        .bytes = 1ULL << h->shift,
                        .events = entries[i].events,
                        .error = entries[i].error,
                        .faults = entries[i].faults,
                        .bytes_to_gpu = entries[i].bytes_to_gpu,
                        .bytes_to_cpu = entries[i].bytes_to_cpu,
                };
        *ret_list = list;
        *ret_count = n;
        return 0;
}

static int list_allocations(const struct uvm_process *p, size_t top, struct codec_arena *arena,
                            struct gpuobs_uvm_process *row)
{
        const struct uvm_allocations *a = &p->allocations;
        size_t n = a->count < top ? a->count : top;
        _cleanup_free_ const struct uvm_allocation **sorted = calloc(a->count + 1, sizeof(*sorted));
        int r = 0;

        row->allocations = codec_arena_alloc(arena, (n + 1) * sizeof(*row->allocations));
        if (!sorted || !row->allocations)
                return -ENOMEM;
        for (size_t i = 0; i < a->count; i++)
                sorted[i] = &a->list[i];
        qsort(sorted, a->count, sizeof(sorted[0]), by_activity);
        for (size_t i = 0; i < n && r == 0; i++) {
                struct gpuobs_uvm_allocation *to = &row->allocations[i];

                *to = (struct gpuobs_uvm_allocation){
                        .address = sorted[i]->address,
                        .bytes = sorted[i]->bytes,
                        .has_since_ns = sorted[i]->since_ns,
                        .since_ns = sorted[i]->since_ns,
                        .advised = sorted[i]->advised,
                        .total = counts_of(&sorted[i]->total),
                        .rate = counts_of(&sorted[i]->rate),
                };
                if (sorted[i]->pages)
                        r = list_hot(sorted[i]->pages, top, arena, &to->pages, &to->n_pages);
        }
        row->n_allocations = n;
        return r;
}

static struct gpuobs_uvm_kernel kernel_of(const struct uvm_kernel_counts *k, const char *name)
{
        return (struct gpuobs_uvm_kernel){
                .kernel = rows_text(name),
                .gpu_faults = k->gpu_faults,
                .bytes_to_gpu = k->bytes_to_gpu,
                .bytes_evicted = k->bytes_evicted,
        };
}

static int list_kernels(struct api_server *s, const struct uvm_process *p, size_t top,
                        struct codec_arena *arena, struct gpuobs_uvm_process *row)
{
        struct uvm_kernel_counts kernels[TOP_MAX], shared = uvm_join_shared(p->join),
                                                   idle = uvm_join_idle(p->join);
        size_t n = uvm_join_top(p->join, kernels, top);

        row->kernels = codec_arena_alloc(arena, (n + 1) * sizeof(*row->kernels));
        if (!row->kernels)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                row->kernels[i] =
                        kernel_of(&kernels[i], s->backend->name(s->data, kernels[i].kernel));
        row->n_kernels = n;
        row->shared = kernel_of(&shared, NULL);
        row->idle = kernel_of(&idle, NULL);
        return 0;
}

static int fill_lists(struct walk *w, const struct uvm_process *p, struct codec_arena *arena,
                      struct gpuobs_uvm_process *row)
{
        int r = list_allocations(p, w->top, arena, row);

        if (r == 0)
                r = list_hot(p->blocks, w->top, arena, &row->blocks, &row->n_blocks);
        if (r == 0)
                r = list_hot(p->pages, w->top, arena, &row->pages, &row->n_pages);
        if (r == 0)
                r = list_kernels(w->call->server, p, w->top, arena, row);
        return r;
}

/* ---- uvm.list ---- */

static void add_process(struct walk *w, const struct api_process *process)
{
        const struct uvm_process *p = process->managed;
        struct codec_arena arena = {0};
        char comm[17];
        struct gpuobs_uvm_process row = {
                .pid = process->info->pid,
                .start_ticks = process->info->start_ticks,
                .comm = comm,
                .watch = process->alive ? (enum gpuobs_uvm_watch)p->watch : GPUOBS_UVM_WATCH_ENDED,
                .reason = p->watch == UVM_WATCH_REFUSED ? rows_text(p->reason) : NULL,
                .has_since_ns = p->since_ns,
                .since_ns = p->since_ns,
                .produced = p->events.read + p->events.dropped,
                .read = p->events.read,
                .dropped = p->events.dropped,
                .garbage = p->events.garbage,
                .allocated_bytes = uvm_allocations_bytes(&p->allocations),
                .allocation_count = p->allocations.count,
                .unlisted = p->allocations.refused,
                .total = counts_of(&p->total),
                .rate = counts_of(&p->rate),
                .freed = counts_of(&p->allocations.freed),
                .outside = counts_of(&p->allocations.outside),
        };

        snprintf(comm, sizeof(comm), "%.16s", process->info->comm);
        if (fill_lists(w, p, &arena, &row) < 0)
                w->page.rows.failed = true;
        else
                rows_add(&w->page.rows, SCHEMA_OF(uvm_process), &row);
        codec_arena_done(&arena);
}

static int visit(void *data, const struct api_process *p)
{
        struct walk *w = data;

        if (!p->managed || !api_call_sees(w->call, p->info) ||
            (w->has_pid && p->info->pid != w->pid))
                return 0;
        if (page_full(&w->page))
                return 1;
        add_process(w, p);
        w->page.count++;
        w->last = p->info->process_key;
        return 0;
}

void api_handle_uvm_list(struct api_call *call, const struct gpuobs_uvm_params *params)
{
        struct walk w = {.call = call,
                         .has_pid = params->has_pid,
                         .pid = params->pid,
                         .top = params->has_top ? params->top : TOP_DEFAULT};
        struct gpuobs_uvm_processes result = {0};
        struct api_server *s = call->server;

        if (w.top > TOP_MAX) {
                api_call_fail_param(call, "top", "is at most 256");
                return;
        }
        if (!page_init(&w.page, call, params->has_limit, params->limit))
                return;
        s->backend->processes(s->data, params->has_cursor ? params->cursor : 0, visit, &w);
        result.has_next_cursor = w.page.more;
        result.next_cursor = w.last;
        page_reply(call, &w.page, "processes", &result, &result.losses, false);
        page_done(&w.page);
}

/* ---- uvm.watch ---- */

void api_handle_uvm_watch(struct api_call *call, const struct gpuobs_uvm_watch_params *params)
{
        struct api_server *s = call->server;
        struct gpuobs_uvm_watched result = {0};
        const struct uvm_process *p = NULL;
        int r = s->backend->watch(s->data, params->pid, params->on, &p);

        if (r == -ESRCH && !p) {
                api_call_fail_param(call, "pid", "is no live process that the daemon has met");
                return;
        }
        if (r == -ENOMEM && !p) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        result.watch = p ? (enum gpuobs_uvm_watch)p->watch : GPUOBS_UVM_WATCH_OFF;
        result.reason = p && p->watch == UVM_WATCH_REFUSED ? rows_text(p->reason) : NULL;
        api_call_reply(call, &result, NULL, 0);
}
