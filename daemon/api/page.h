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

/*
 * End the call with result, whose list `field` is the page's rows and whose
 * ledger *losses (within result) is filled in here; explain: as rows_ledger().
 */
void page_reply(struct api_call *call, const struct page *p, const char *field, const void *result,
                struct gpuobs_losses *losses, bool explain);

/* ---- a page that a query of the database fills ---- */

struct page_query {
        struct store_filter filter; /* the glob is in the call's arena */
        struct api_call *call;
        struct page page;
        uint64_t last; /* of the query: what its answer says beside the rows */
};

/* The filter as the caller gave it, of any struct of parameters that has these members. */
#define PAGE_FILTER(call_, p)                                                                      \
        ((struct store_filter){                                                                    \
                .since_ns = (p)->has_since_ns ? (p)->since_ns : 0,                                 \
                .until_ns = (p)->has_until_ns ? (p)->until_ns : 0,                                 \
                .pid = (p)->has_pid ? (p)->pid : 0,                                                \
                .uid = api_call_uid(call_),                                                        \
                .gpu = (p)->has_gpu ? (p)->gpu : STORE_ANY_GPU,                                    \
                .kernel_glob = (p)->kernel,                                                        \
        })

/* For query_start(); filter.limit is the page's. NULL: the call has been failed. */
struct page_query *page_query_new(struct api_call *call, const struct store_filter *filter,
                                  bool has_limit, uint32_t limit);
/* query_ops.free */
void page_query_free(void *query);

/* Encode a row; nonzero when the query is to end: no room, no memory, or nobody waits. */
int page_query_add(struct page_query *q, const struct schema_struct *s, const void *row);
