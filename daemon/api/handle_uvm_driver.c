/* SPDX-License-Identifier: Apache-2.0 */

/* uvm.driver and uvm.decisions: what the managed-memory driver decides. */
#include <errno.h>

#include "api/handlers.h"
#include "api/page.h"
#include "driver/uvm_tier.h"
#include "util/gpu_uuid.h"
#include "util/macro.h"

_Static_assert((int)UVM_POINT_MOVE == (int)GPUOBS_UVM_POINT_MOVE, "points");
_Static_assert((int)UVM_CAUSE_PHYSICAL_ALLOCATION == (int)GPUOBS_UVM_REASON_PHYSICAL_ALLOCATION,
               "reasons");
_Static_assert((int)UVM_CHUNK_ALLOCATED == (int)GPUOBS_UVM_CHUNK_ALLOCATED, "chunks");

/* ---- uvm.driver ---- */

static int add_points(const struct api_decisions *d, struct codec_arena *a,
                      struct gpuobs_uvm_driver *result)
{
        result->points = codec_arena_alloc(a, UVM_POINT_COUNT * sizeof(*result->points));
        if (!result->points)
                return -ENOMEM;
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                const struct uvm_tier_time t = uvm_tier_point(d->tier, i);

                result->points[i] = (struct gpuobs_uvm_point_info){
                        .point = (enum gpuobs_uvm_point)i,
                        .probed = d->points[i].probed,
                        .has_form = d->points[i].probed,
                        .form = d->points[i].form,
                        .function = d->points[i].function,
                        .arguments = d->points[i].arguments,
                        .reason = d->points[i].reason,
                        .count = t.count,
                        .failed = t.failed,
                        .total_ns = t.total_ns,
                        .max_ns = t.max_ns,
                };
        }
        result->n_points = UVM_POINT_COUNT;
        return 0;
}

static int add_picks(const struct api_decisions *d, struct codec_arena *a,
                     struct gpuobs_uvm_driver *result)
{
        const struct uvm_tier_picks picks = uvm_tier_picks(d->tier);

        result->picks = codec_arena_alloc(a, UVM_CAUSE_COUNT * sizeof(*result->picks));
        result->chunks = codec_arena_alloc(a, UVM_CHUNK_STATE_COUNT * sizeof(*result->chunks));
        if (!result->picks || !result->chunks)
                return -ENOMEM;
        for (unsigned i = 0; i < UVM_CAUSE_COUNT; i++)
                if (picks.by_cause[i])
                        result->picks[result->n_picks++] = (struct gpuobs_uvm_reason_count){
                                .reason = (enum gpuobs_uvm_reason)i,
                                .count = picks.by_cause[i],
                        };
        for (unsigned i = 0; i < UVM_CHUNK_STATE_COUNT; i++)
                if (picks.by_state[i])
                        result->chunks[result->n_chunks++] = (struct gpuobs_uvm_chunk_count){
                                .chunk = (enum gpuobs_uvm_chunk)i,
                                .count = picks.by_state[i],
                        };
        return 0;
}

static int add_gpus(const struct api_decisions *d, struct codec_arena *a,
                    struct gpuobs_uvm_driver *result)
{
        const struct uvm_tier_gpu *g;

        result->gpus = codec_arena_alloc(a, UVM_TIER_GPUS * sizeof(*result->gpus));
        if (!result->gpus)
                return -ENOMEM;
        for (size_t i = 0; (g = uvm_tier_gpu(d->tier, i)); i++) {
                char *uuid = codec_arena_alloc(a, GPU_UUID_TEXT);

                if (!uuid)
                        return -ENOMEM;
                gpu_uuid_format(g->uuid, uuid);
                result->gpus[result->n_gpus++] = (struct gpuobs_uvm_driver_gpu){
                        .uuid = uuid,
                        .batches = g->batches.count,
                        .faults = g->faults,
                        .distinct = g->distinct,
                        .duplicates = g->duplicates,
                        .largest = g->largest,
                        .total_ns = g->batches.total_ns,
                        .max_ns = g->batches.max_ns,
                        .evicted = g->evicted,
                };
        }
        return 0;
}

static int add_moves(const struct uvm_tier_process *p, struct codec_arena *a,
                     struct gpuobs_uvm_driver_process *row)
{
        row->moves = codec_arena_alloc(a, UVM_CAUSE_COUNT * sizeof(*row->moves));
        if (!row->moves)
                return -ENOMEM;
        for (unsigned i = 0; i < UVM_CAUSE_COUNT; i++)
                if (p->moves[i].count)
                        row->moves[row->n_moves++] = (struct gpuobs_uvm_reason_count){
                                .reason = (enum gpuobs_uvm_reason)i,
                                .count = p->moves[i].count,
                                .failed = p->moves[i].failed,
                                .total_ns = p->moves[i].total_ns,
                                .max_ns = p->moves[i].max_ns,
                        };
        return 0;
}

static int add_process(struct api_call *call, const struct uvm_tier_process *p,
                       const struct process_info *info, struct gpuobs_uvm_driver_process *row)
{
        char *comm = codec_arena_alloc(&call->arena, 17);

        if (!comm)
                return -ENOMEM;
        *row = (struct gpuobs_uvm_driver_process){
                .has_pid = info,
                .pid = info ? info->pid : 0,
                .has_start_ticks = info,
                .start_ticks = info ? info->start_ticks : 0,
                .decisions = p->decisions,
                .chosen = p->chosen,
                .pages = p->pages,
                .evicted = p->evicted,
        };
        if (info) {
                rows_comm(comm, info);
                row->comm = comm;
        }
        return add_moves(p, &call->arena, row);
}

/* Whether the caller wants, and may see, what is about a process. */
static bool wants(struct api_call *call, const struct process_info *info, bool has_pid,
                  uint32_t pid)
{
        if (has_pid && (!info || info->pid != pid))
                return false;
        return api_call_sees(call, info);
}

static const struct process_info *process_of(struct api_server *s, uint64_t key)
{
        return key ? s->backend->process(s->data, key) : NULL;
}

static int add_processes(struct api_call *call, const struct api_decisions *d,
                         const struct gpuobs_uvm_driver_params *params,
                         struct gpuobs_uvm_driver *result)
{
        const struct uvm_tier_process *p;
        int r = 0;

        result->processes =
                codec_arena_alloc(&call->arena, UVM_TIER_PROCESSES * sizeof(*result->processes));
        if (!result->processes)
                return -ENOMEM;
        for (size_t i = 0; r == 0 && (p = uvm_tier_process(d->tier, i)); i++) {
                const struct process_info *info = process_of(call->server, p->process_key);

                if ((i == 0 && !p->last) || !wants(call, info, params->has_pid, params->pid))
                        continue;
                r = add_process(call, p, info, &result->processes[result->n_processes++]);
        }
        return r;
}

void api_handle_uvm_driver_get(struct api_call *call, const struct gpuobs_uvm_driver_params *params)
{
        struct api_server *s = call->server;
        struct gpuobs_uvm_driver result;
        struct api_decisions d;
        int r;

        s->backend->decisions(s->data, &d);
        result = (struct gpuobs_uvm_driver){
                .probed = d.probed,
                .reason = d.reason,
                .struct_ops = d.struct_ops,
                .lost = d.lost,
        };
        r = add_points(&d, &call->arena, &result);
        if (r == 0)
                r = add_picks(&d, &call->arena, &result);
        if (r == 0)
                r = add_gpus(&d, &call->arena, &result);
        if (r == 0)
                r = add_processes(call, &d, params, &result);
        if (r < 0)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, &result, NULL, 0);
}

/* ---- uvm.decisions ---- */

/* The part of its block that an event is about. */
static void set_address(struct gpuobs_uvm_decision *row, const struct uvm_probe_event *e)
{
        const uint64_t page = 4096;

        if (!(e->has & UVM_PROBE_HAS_BLOCK) || e->end < e->start)
                return;
        row->has_address = row->has_bytes = true;
        row->address = e->start;
        row->bytes = e->end - e->start + 1;
        if (e->has & UVM_PROBE_HAS_REGION && e->first < e->outer && e->outer * page <= row->bytes) {
                row->address = e->start + e->first * page;
                row->bytes = (uint64_t)(e->outer - e->first) * page;
        }
}

static void set_details(struct gpuobs_uvm_decision *row, const struct uvm_tier_event *k)
{
        const struct uvm_probe_event *e = &k->probe;

        if (e->has & UVM_PROBE_HAS_FAULTS) {
                row->has_faults = row->has_distinct = row->has_duplicates = row->has_batch = true;
                row->faults = e->faults;
                row->distinct = e->distinct;
                row->duplicates = e->duplicates;
                row->batch = e->batch;
        }
        if (e->has & UVM_PROBE_HAS_HINT) {
                row->has_pages = true;
                row->pages = uvm_tier_pages(e);
                row->has_pages_address = row->has_pages_bytes =
                        uvm_tier_span(e, &row->pages_address, &row->pages_bytes);
        }
        row->has_processor = e->has & UVM_PROBE_HAS_PROCESSOR;
        row->processor = e->processor;
        row->has_reason = k->cause != UVM_CAUSE_NONE;
        row->reason = (enum gpuobs_uvm_reason)k->cause;
        row->has_physical = row->has_chunk = e->has & UVM_PROBE_HAS_CHUNK;
        row->physical = e->physical;
        row->chunk = (enum gpuobs_uvm_chunk)k->state;
        row->has_status = e->status;
        row->status = e->status;
}

static void add_decision(struct page *page, const struct uvm_tier_event *k,
                         const struct process_info *info)
{
        char comm[17], uuid[GPU_UUID_TEXT];
        struct gpuobs_uvm_decision row = {
                .sequence = k->sequence,
                .point = (enum gpuobs_uvm_point)k->probe.point,
                .at_ns = k->probe.enter_ns,
                .duration_ns = k->probe.duration_ns,
                .has_pid = info,
                .pid = info ? info->pid : 0,
                .has_start_ticks = info,
                .start_ticks = info ? info->start_ticks : 0,
        };

        if (info) {
                rows_comm(comm, info);
                row.comm = comm;
        }
        if (k->probe.has & UVM_PROBE_HAS_UUID) {
                gpu_uuid_format(k->probe.uuid, uuid);
                row.uuid = uuid;
        }
        set_address(&row, &k->probe);
        set_details(&row, k);
        rows_add(&page->rows, SCHEMA_OF(uvm_decision), &row);
        page->count++;
}

void api_handle_uvm_decisions_list(struct api_call *call,
                                   const struct gpuobs_uvm_decisions_params *params)
{
        struct api_server *s = call->server;
        struct gpuobs_uvm_decisions result = {.next_cursor =
                                                      params->has_cursor ? params->cursor : 0};
        const struct uvm_tier_event *k;
        struct api_decisions d;
        struct page page;

        if (!page_init(&page, call, params->has_limit, params->limit))
                return;
        s->backend->decisions(s->data, &d);
        while ((k = uvm_tier_after(d.tier, result.next_cursor))) {
                const struct process_info *info = process_of(s, k->process_key);

                if (page_full(&page))
                        break;
                if (wants(call, info, params->has_pid, params->pid))
                        add_decision(&page, k, info);
                result.next_cursor = k->sequence;
        }
        result.more = page.more;
        page_reply(call, &page, "decisions", &result, &result.losses, false);
        page_done(&page);
}
