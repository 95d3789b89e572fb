/* SPDX-License-Identifier: Apache-2.0 */
#include "api/page.h"

#include <stdlib.h>

#include "api/filter.h"

bool page_init(struct page *p, struct api_call *call, bool has_limit, uint32_t limit)
{
        *p = (struct page){.limit = has_limit ? limit : PAGE_ROWS_DEFAULT};
        if (p->limit >= 1 && p->limit <= GPUOBS_ROWS_MAX)
                return true;
        api_call_fail_param(call, "limit", "is not between 1 and 10000");
        return false;
}

void page_done(struct page *p)
{
        wire_buffer_done(&p->rows);
}

bool page_full(struct page *p)
{
        if (p->count < p->limit && p->rows.size < API_PAGE_BYTES)
                return false;
        p->more = true;
        return true;
}

void page_reply(struct api_call *call, const struct page *p, const char *field, const void *result,
                struct gpuobs_losses *losses, bool explain)
{
        struct codec_rows rows = {field, p->count, &p->rows};

        if (p->rows.failed ||
            rows_losses(call->server, api_call_uid(call), explain, &call->arena, losses) < 0)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, result, &rows, 1);
}

struct page_query *page_query_new(struct api_call *call, const struct store_filter *filter,
                                  bool has_limit, uint32_t limit)
{
        struct page_query *q;

        if (!filter_check_glob(call, filter->kernel_glob))
                return NULL;
        q = calloc(1, sizeof(*q));
        if (!q) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return NULL;
        }
        if (!page_init(&q->page, call, has_limit, limit)) {
                free(q);
                return NULL;
        }
        q->call = call;
        q->filter = *filter;
        q->filter.limit = q->page.limit;
        return q;
}

void page_query_free(void *query)
{
        struct page_query *q = query;

        page_done(&q->page);
        free(q);
}

int page_query_add(struct page_query *q, const struct schema_struct *s, const void *row)
{
        if (query_cancelled(q->call) || page_full(&q->page))
                return 1;
        rows_add(&q->page.rows, s, row);
        q->page.count++;
        return q->page.rows.failed;
}
