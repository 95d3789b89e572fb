/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A page of rows being encoded: full at the caller's limit, or when the frame
 * has taken enough. Put rows in while page_full() is false; the first row that
 * no longer fits sets `more`.
 */
#include "api/rows.h"

#define PAGE_ROWS_DEFAULT 1000

struct page {
        struct wire_buffer rows;
        uint32_t count;
        uint32_t limit;
        bool more;
};

/* False when the limit is out of range: the call has been failed. */
bool page_init(struct page *p, struct api_call *call, bool has_limit, uint32_t limit);
void page_done(struct page *p);

/* Whether another row has no room; remembers that there was one. */
bool page_full(struct page *p);
