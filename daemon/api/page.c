/* SPDX-License-Identifier: Apache-2.0 */
#include "api/page.h"

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
