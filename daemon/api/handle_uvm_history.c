/* SPDX-License-Identifier: Apache-2.0 */

/* uvm.history: managed memory before now, from the database. */
#include <stdlib.h>

#include "api/handlers.h"
#include "api/page.h"

#define STEP_DEFAULT_S 60
#define STEP_MAX_S     86400

struct history_query {
        struct page_query *q; /* its last: cursor of the last row */
        uint32_t step_s;
};

static int add_row(void *data, const struct store_managed_past *past)
{
        struct page_query *q = data;
        struct gpuobs_uvm_past row = {
                .pid = past->pid,
                .start_ticks = past->start_ticks,
                .comm = past->comm ? past->comm : "",
                .start_ns = past->start_ns,
                .seconds = past->seconds,
                .events = past->sum.events,
                .dropped = past->sum.dropped,
                .counts =
                        {
#define X(name) .name = past->sum.name,
                                MANAGED_COUNTS(X)
#undef X
                        },
        };
        uint32_t before = q->page.count;
        int stop = page_query_add(q, SCHEMA_OF(uvm_past), &row);

        if (q->page.count > before)
                q->last = past->cursor;
        return stop;
}

static int run(struct api_call *call, struct store_reader *reader, void *query)
{
        struct history_query *h = query;

        return store_query_managed(reader, &h->q->filter, h->step_s, call->timeout_ms, add_row,
                                   h->q);
}

static void done(struct api_call *call, void *query)
{
        struct history_query *h = query;
        struct gpuobs_uvm_history result = {.next_cursor = h->q->last};

        result.has_next_cursor = h->q->page.more || h->q->page.count == h->q->page.limit;
        page_reply(call, &h->q->page, "steps", &result, &result.losses, false);
}

static void free_query(void *query)
{
        struct history_query *h = query;

        page_query_free(h->q);
        free(h);
}

static const struct query_ops history_ops = {.run = run, .done = done, .free = free_query};

void api_handle_uvm_history(struct api_call *call, const struct gpuobs_uvm_history_params *p)
{
        const struct store_filter filter = {
                .since_ns = p->has_since_ns ? p->since_ns : 0,
                .until_ns = p->has_until_ns ? p->until_ns : 0,
                .pid = p->has_pid ? p->pid : 0,
                .uid = api_call_uid(call),
                .gpu = STORE_ANY_GPU,
                .after_launch_id = p->has_cursor ? p->cursor : 0,
        };
        uint32_t step_s = p->has_step_s ? p->step_s : STEP_DEFAULT_S;
        struct history_query *h;

        if (step_s < 1 || step_s > STEP_MAX_S) {
                api_call_fail_param(call, "step_s", "is from 1 to 86400 seconds");
                return;
        }
        h = calloc(1, sizeof(*h));
        if (!h) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        h->step_s = step_s;
        h->q = page_query_new(call, &filter, p->has_limit, p->limit);
        if (!h->q) {
                free(h);
                return;
        }
        query_start(call, &history_ops, h);
}
