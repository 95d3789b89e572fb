/* SPDX-License-Identifier: Apache-2.0 */

/* launches.query, launches.subscribe, stream.cancel. */
#include "api/filter.h"
#include "api/handlers.h"
#include "api/page.h"

static int add_row(void *data, const struct store_launch *l)
{
        struct page_query *q = data;
        struct gpuobs_launch row;
        uint32_t before = q->page.count;
        int stop;

        rows_launch(l, &row);
        stop = page_query_add(q, SCHEMA_OF(launch), &row);
        if (q->page.count > before)
                q->last = l->record.launch_id;
        return stop;
}

static int run(struct api_call *call, struct store_reader *reader, void *query)
{
        struct page_query *q = query;

        return store_query_launches(reader, &q->filter, call->timeout_ms, add_row, q);
}

static void done(struct api_call *call, void *query)
{
        struct page_query *q = query;
        struct gpuobs_launches result = {.next_cursor = q->last};

        /* As many as asked for: there may be more, except after the newest. */
        result.has_next_cursor =
                q->page.more || (!q->filter.newest && q->page.count == q->page.limit);
        page_reply(call, &q->page, "launches", &result, &result.losses, false);
}

static const struct query_ops launches_ops = {.run = run, .done = done, .free = page_query_free};

void api_handle_launches_query(struct api_call *call, const struct gpuobs_launches_params *p)
{
        struct store_filter filter = PAGE_FILTER(call, p);
        struct page_query *q;

        filter.after_launch_id = p->has_cursor ? p->cursor : 0;
        filter.newest = p->has_newest && p->newest;
        q = page_query_new(call, &filter, p->has_limit, p->limit);
        if (q)
                query_start(call, &launches_ops, q);
}

void api_handle_stream_cancel(struct api_call *call, const struct gpuobs_cancel_params *params)
{
        struct stream *st = stream_find(call->connection, params->stream);
        struct gpuobs_cancelled result = {.cancelled = st};

        if (st)
                stream_finish(st);
        api_call_reply(call, &result, NULL, 0);
}
