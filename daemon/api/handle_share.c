/* SPDX-License-Identifier: Apache-2.0 */

/* share.query: sums of the database. slices.list: the latest slices, from memory. */
#include <stdlib.h>

#include "api/handlers.h"
#include "api/page.h"
#include "api/rows.h"
#include "api/share.h"
#include "correlate/slice_history.h"
#include "util/macro.h"

/* ---- share.query ---- */

struct share_query {
        struct page_query *q; /* rows of contexts */
        struct wire_buffer gpus;
        uint32_t gpu_count;
        bool has_pid;
};

static void add_engine(struct share_query *s, const struct store_share_sum *sum)
{
        const struct store_share *share = &sum->share;
        bool mig = share->mig_gpu != CTXSW_NO_MIG;
        struct gpuobs_gpu_time row = {
                .gpu = share->gpu,
                .has_mig_gpu = mig,
                .mig_gpu = share->mig_gpu,
                .has_mig_compute = mig,
                .mig_compute = share->mig_compute,
                .since_ns = share->start_ns,
                .until_ns = sum->end_ns,
                .span_ns = share->span_ns,
                .active_ns = share->active_ns,
                .switch_ns = share->switch_ns,
                .switches = share->slices,
                .idle_ns = share->idle_ns,
                .unknown_ns = share->unknown_ns,
                .lost = share->lost,
        };

        rows_add(&s->gpus, SCHEMA_OF(gpu_time), &row);
        s->gpu_count++;
}

static int add_share(void *data, const struct store_share_sum *sum)
{
        struct share_query *s = data;
        const struct store_share *share = &sum->share;
        bool mig = share->mig_gpu != CTXSW_NO_MIG;
        struct gpuobs_share row = {
                .gpu = share->gpu,
                .has_mig_gpu = mig,
                .mig_gpu = share->mig_gpu,
                .has_mig_compute = mig,
                .mig_compute = share->mig_compute,
                .has_pid = sum->comm,
                .pid = sum->pid,
                .has_start_ticks = sum->comm,
                .start_ticks = sum->start_ticks,
                .comm = sum->comm,
                .has_group = share->context & STORE_CONTEXT_GROUP,
                .group = (uint32_t)share->context,
                .has_context_id = !(share->context & STORE_CONTEXT_GROUP),
                .context_id = (uint32_t)share->context,
                .active_ns = share->active_ns,
                .slices = share->slices,
                .longest_ns = share->longest_ns,
        };

        if (!share->of_engine)
                return page_query_add(s->q, SCHEMA_OF(share), &row);
        add_engine(s, sum);
        return s->gpus.failed;
}

static int run(struct api_call *call, struct store_reader *reader, void *query)
{
        struct share_query *s = query;

        return store_query_shares(reader, &s->q->filter, call->server->limits.query_timeout_ms,
                                  add_share, s);
}

static void done(struct api_call *call, void *query)
{
        struct share_query *s = query;
        const struct page *p = &s->q->page;
        struct codec_rows rows[] = {
                {"shares", p->count, &p->rows},
                {"gpus", s->gpu_count, &s->gpus},
        };
        struct gpuobs_shares result = {.truncated = p->more || p->count == p->limit};

        if (p->rows.failed || s->gpus.failed ||
            rows_losses(call->server, api_call_uid(call), false, &call->arena, &result.losses) < 0)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, &result, rows, ARRAY_SIZE(rows));
}

static void free_query(void *query)
{
        struct share_query *s = query;

        wire_buffer_done(&s->gpus);
        page_query_free(s->q);
        free(s);
}

static const struct query_ops share_ops = {.run = run, .done = done, .free = free_query};

void api_handle_share_query(struct api_call *call, const struct gpuobs_shares_params *p)
{
        const struct store_filter filter = {
                .since_ns = p->has_since_ns ? p->since_ns : 0,
                .until_ns = p->has_until_ns ? p->until_ns : 0,
                .pid = p->has_pid ? p->pid : 0,
                .uid = api_call_uid(call),
                .gpu = p->has_gpu ? p->gpu : STORE_ANY_GPU,
        };
        struct share_query *s;

        s = calloc(1, sizeof(*s));
        if (!s) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        s->q = page_query_new(call, &filter, p->has_limit, p->limit);
        if (!s->q) {
                free(s);
                return;
        }
        query_start(call, &share_ops, s);
}

/* ---- slices ---- */

static const struct process_info *process_of(struct api_server *s, const struct kept_slice *k)
{
        return k->process_key ? s->backend->process(s->data, k->process_key) : NULL;
}

bool share_wants_slice(struct api_server *s, uint32_t uid, const struct kept_slice *k,
                       const struct share_filter *f)
{
        const struct process_info *p = process_of(s, k);

        if (f->has_gpu && f->gpu != k->gpu)
                return false;
        if (f->has_pid && (!p || p->pid != f->pid))
                return false;
        return uid == API_ANY_UID || k->slice.unknown || (p && p->uid == uid);
}

void share_add_slice(struct api_server *s, struct wire_buffer *rows, const struct kept_slice *k)
{
        const struct process_info *p = process_of(s, k);
        bool mig = k->slice.engine.mig_gpu != CTXSW_NO_MIG;
        char comm[17];
        struct gpuobs_slice row = {
                .sequence = k->sequence,
                .gpu = k->gpu,
                .has_mig_gpu = mig,
                .mig_gpu = k->slice.engine.mig_gpu,
                .has_mig_compute = mig,
                .mig_compute = k->slice.engine.mig_compute,
                .has_pid = p,
                .has_start_ticks = p,
                .has_context_id = !k->slice.unknown,
                .context_id = k->slice.context_id,
                .start_ns = k->slice.start_ns,
                .end_ns = k->slice.end_ns,
                .since_ns = k->slice.since_ns,
                .begins = k->slice.begins,
                .ends = k->slice.ends,
                .unknown = k->slice.unknown,
        };

        if (p) {
                row.pid = p->pid;
                row.start_ticks = p->start_ticks;
                rows_comm(comm, p);
                row.comm = comm;
        }
        rows_add(rows, SCHEMA_OF(slice), &row);
}

#define CHUNK 1024

static uint64_t add_slices(struct api_call *call, struct page *page,
                           const struct gpuobs_slices_params *p)
{
        static struct kept_slice chunk[CHUNK]; /* the loop's thread's */
        const struct share_filter filter = {p->has_pid, p->has_gpu, p->pid, p->gpu};
        struct api_server *s = call->server;
        struct slice_history *history = s->backend->slices(s->data);
        uint64_t after = p->has_cursor ? p->cursor : 0;
        size_t n = history ? CHUNK : 0;

        while (n == CHUNK) {
                n = slice_history_copy(history, after, p->has_since_ns ? p->since_ns : 0,
                                       p->has_until_ns ? p->until_ns : UINT64_MAX, chunk, CHUNK);
                for (size_t i = 0; i < n; i++) {
                        if (page_full(page))
                                return after;
                        after = chunk[i].sequence;
                        if (!share_wants_slice(s, api_call_uid(call), &chunk[i], &filter))
                                continue;
                        share_add_slice(s, &page->rows, &chunk[i]);
                        page->count++;
                }
        }
        return after;
}

void api_handle_slices_list(struct api_call *call, const struct gpuobs_slices_params *p)
{
        struct gpuobs_slices result = {0};
        struct page page;

        if (!page_init(&page, call, p->has_limit, p->limit))
                return;
        result.next_cursor = add_slices(call, &page, p);
        result.has_next_cursor = page.more;
        page_reply(call, &page, "slices", &result, &result.losses, false);
        page_done(&page);
}
