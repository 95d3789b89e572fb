/* SPDX-License-Identifier: Apache-2.0 */

/* launches.query, launches.subscribe, stream.cancel. */
#include <stdlib.h>

#include "api/filter.h"
#include "api/handlers.h"
#include "api/page.h"

struct launches_query {
        struct store_filter filter; /* the glob is in the call's arena */
        struct api_call *call;
        struct page page;
        uint64_t last; /* launch_id of the last row */
};

static int add_row(void *data, const struct store_launch *l)
{
        struct launches_query *q = data;

        if (query_cancelled(q->call) || page_full(&q->page))
                return 1;
        rows_add_launch(&q->page.rows, l);
        q->page.count++;
        q->last = l->record.launch_id;
        return q->page.rows.failed;
}

static int run(struct api_call *call, struct store_reader *reader, void *query)
{
        struct launches_query *q = query;

        return store_query_launches(reader, &q->filter, call->server->limits.query_timeout_ms,
                                    add_row, q);
}

static void done(struct api_call *call, void *query)
{
        struct launches_query *q = query;
        struct codec_rows rows = {"launches", q->page.count, &q->page.rows};
        struct gpuobs_launches result = {.next_cursor = q->last};

        /* As many as asked for: there may be more, except after the newest. */
        result.has_next_cursor =
                q->page.more || (!q->filter.newest && q->page.count == q->page.limit);
        if (q->page.rows.failed ||
            rows_losses(call->server, api_call_uid(call), false, &call->arena, &result.losses) < 0)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, &result, &rows, 1);
}

static void query_free(void *query)
{
        struct launches_query *q = query;

        page_done(&q->page);
        free(q);
}

static const struct query_ops launches_ops = {run, done, query_free};

void api_handle_launches_query(struct api_call *call, const struct gpuobs_launches_params *p)
{
        struct launches_query *q;

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
                .after_launch_id = p->has_cursor ? p->cursor : 0,
                .newest = p->has_newest && p->newest,
                .limit = q->page.limit,
        };
        query_start(call, &launches_ops, q);
}

void api_handle_launches_subscribe(struct api_call *call, const struct gpuobs_subscribe_params *p)
{
        if (filter_check_glob(call, p->kernel))
                stream_begin(call, p);
}

void api_handle_stream_cancel(struct api_call *call, const struct gpuobs_cancel_params *params)
{
        struct stream *st = stream_find(call->connection, params->stream);
        struct gpuobs_cancelled result = {.cancelled = st};

        if (st)
                stream_finish(st);
        api_call_reply(call, &result, NULL, 0);
}
