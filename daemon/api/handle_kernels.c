/* SPDX-License-Identifier: Apache-2.0 */

/* kernels.stats */
#include "api/handlers.h"
#include "api/page.h"

static struct gpuobs_spread spread(const struct store_spread *s)
{
        return (struct gpuobs_spread){s->count,  s->total_ns, s->min_ns, s->avg_ns,
                                      s->p50_ns, s->p95_ns,   s->p99_ns, s->max_ns};
}

static int add_row(void *data, const struct store_kernel_stats *k)
{
        struct gpuobs_kernel row = {
                .kernel = rows_text(k->kernel),
                .launches = k->launches,
                .has_summed = k->summed,
                .summed = k->summed,
                .has_queue = k->queue.count,
                .queue = spread(&k->queue),
                .has_execution = k->execution.count,
                .execution = spread(&k->execution),
        };

        return page_query_add(data, SCHEMA_OF(kernel), &row);
}

static int run(struct api_call *call, struct store_reader *reader, void *query)
{
        struct page_query *q = query;

        return store_query_kernels(reader, &q->filter, call->timeout_ms, add_row, q, &q->last);
}

static void done(struct api_call *call, void *query)
{
        struct page_query *q = query;
        struct gpuobs_kernels result = {
                .truncated = q->page.more,
                .has_rows_from_ns = q->last > q->filter.since_ns,
                .rows_from_ns = q->last,
        };

        page_reply(call, &q->page, "kernels", &result, &result.losses, false);
}

static const struct query_ops kernels_ops = {.run = run, .done = done, .free = page_query_free};

void api_handle_kernels_stats(struct api_call *call, const struct gpuobs_kernels_params *p)
{
        struct store_filter filter = PAGE_FILTER(call, p);
        struct page_query *q = page_query_new(call, &filter, p->has_limit, p->limit);

        if (!q)
                return;
        /* One more than asked for, to know whether there are more. */
        if (q->filter.limit < GPUOBS_ROWS_MAX)
                q->filter.limit++;
        query_start(call, &kernels_ops, q);
}
