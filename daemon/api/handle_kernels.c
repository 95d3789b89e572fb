/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "api/filter.h"
#include "api/handlers.h"
#include "api/page.h"

struct kernels_query {
        struct store_filter filter; /* the glob is in the call's arena */
        struct api_call *call;
        struct page page;
};

static struct gpuobs_spread spread(const struct store_spread *s)
{
        return (struct gpuobs_spread){s->count,  s->total_ns, s->min_ns, s->avg_ns,
                                      s->p50_ns, s->p95_ns,   s->p99_ns, s->max_ns};
}

static int add_row(void *data, const struct store_kernel_stats *k)
{
        struct kernels_query *q = data;
        struct gpuobs_kernel row = {
                .kernel = rows_text(k->kernel),
                .launches = k->launches,
                .has_queue = k->queue.count,
                .queue = spread(&k->queue),
                .has_execution = k->execution.count,
                .execution = spread(&k->execution),
        };

        if (query_cancelled(q->call) || page_full(&q->page))
                return 1;
        rows_add(&q->page.rows, SCHEMA_OF(kernel), &row);
        q->page.count++;
        return q->page.rows.failed;
}

static int run(struct api_call *call, struct store_reader *reader, void *query)
{
        struct kernels_query *q = query;

        return store_query_kernels(reader, &q->filter, call->server->limits.query_timeout_ms,
                                   add_row, q);
}

static void done(struct api_call *call, void *query)
{
        struct kernels_query *q = query;
        struct codec_rows rows = {"kernels", q->page.count, &q->page.rows};
        struct gpuobs_kernels result = {.truncated = q->page.more};

        if (q->page.rows.failed ||
            rows_losses(call->server, api_call_uid(call), false, &call->arena, &result.losses) < 0)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, &result, &rows, 1);
}

static void query_free(void *query)
{
        struct kernels_query *q = query;

        page_done(&q->page);
        free(q);
}

static const struct query_ops kernels_ops = {run, done, query_free};

void api_handle_kernels_stats(struct api_call *call, const struct gpuobs_kernels_params *p)
{
        struct kernels_query *q;

        if (!filter_check_glob(call, p->kernel))
                return;
        q = calloc(1, sizeof(*q));
        if (!q) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        if (!page_init(&q->page, call, p->has_limit, p->limit)) {
                free(q);
                return;
        }
        q->call = call;
        q->filter = (struct store_filter){
                .since_ns = p->has_since_ns ? p->since_ns : 0,
                .until_ns = p->has_until_ns ? p->until_ns : 0,
                .pid = p->has_pid ? p->pid : 0,
                .uid = api_call_uid(call),
                .gpu = p->has_gpu ? p->gpu : STORE_ANY_GPU,
                .kernel_glob = p->kernel,
                /* One more than asked for, to know whether there are more. */
                .limit = q->page.limit < GPUOBS_ROWS_MAX ? q->page.limit + 1 : GPUOBS_ROWS_MAX,
        };
        query_start(call, &kernels_ops, q);
}
