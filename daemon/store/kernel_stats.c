/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

#include "store/percentile.h"
#include "store/reader.h"
#include "util/macro.h"

/*
 * Statistics per kernel in several passes over the same rows, in one snapshot:
 * the first gives counts, sums and extremes; the kernels that will be shown are
 * chosen; further passes find their percentiles, as many kernels per pass as
 * memory allows. A million rows take two passes.
 */
#define KERNELS_MAX  65536
#define BUDGET_BYTES (16u << 20)

struct quantity {
        struct store_spread spread;
        struct percentiles percentiles;
};

struct kernel {
        UT_hash_handle hh;
        int64_t row; /* name.id; 0: not known */
        uint64_t launches;
        struct quantity queue, execution;
        bool wanted;
};

struct stats {
        struct store_reader *reader;
        const struct store_filter *filter;
        struct kernel *by_row;
        struct kernel *last; /* the same kernel often comes again */
        sqlite3_stmt *rows;
};

static struct kernel *get_kernel(struct stats *s, int64_t row, bool create)
{
        struct kernel *k;

        if (s->last && s->last->row == row)
                return s->last;
        HASH_FIND(hh, s->by_row, &row, sizeof(row), k);
        if (!k && create) {
                k = calloc(1, sizeof(*k));
                if (!k)
                        return NULL;
                k->row = row;
                HASH_ADD(hh, s->by_row, row, sizeof(row), k);
        }
        s->last = k;
        return k;
}

/* ---- passes ---- */

static void spread_add(struct store_spread *s, uint64_t ns)
{
        if (s->count == 0 || ns < s->min_ns)
                s->min_ns = ns;
        if (ns > s->max_ns)
                s->max_ns = ns;
        s->total_ns += ns;
        s->count++;
}

static void first_pass_add(struct quantity *q, uint64_t ns)
{
        spread_add(&q->spread, ns);
}

static void later_pass_add(struct quantity *q, uint64_t ns)
{
        percentiles_add(&q->percentiles, ns);
}

/* A negative distance is the clocks' error, not time. */
static void add_column(sqlite3_stmt *rows, int column, struct quantity *q,
                       void (*add)(struct quantity *q, uint64_t ns))
{
        int64_t ns;

        if (sqlite3_column_type(rows, column) == SQLITE_NULL)
                return;
        ns = sqlite3_column_int64(rows, column);
        add(q, ns < 0 ? 0 : (uint64_t)ns);
}

static int first_pass(struct stats *s)
{
        int rc;

        while ((rc = sqlite3_step(s->rows)) == SQLITE_ROW) {
                struct kernel *k = get_kernel(s, sqlite3_column_int64(s->rows, 0), true);

                if (!k)
                        return -ENOMEM;
                if (HASH_COUNT(s->by_row) > KERNELS_MAX) {
                        snprintf(s->reader->error, sizeof(s->reader->error),
                                 "more than %d kernels: narrow the query", KERNELS_MAX);
                        return -E2BIG;
                }
                k->launches++;
                add_column(s->rows, 1, &k->queue, first_pass_add);
                add_column(s->rows, 2, &k->execution, first_pass_add);
        }
        return reader_fail(s->reader, rc);
}

static int later_pass(struct stats *s)
{
        int rc;

        sqlite3_reset(s->rows);
        while ((rc = sqlite3_step(s->rows)) == SQLITE_ROW) {
                struct kernel *k = get_kernel(s, sqlite3_column_int64(s->rows, 0), false);

                if (!k || !k->wanted)
                        continue;
                add_column(s->rows, 1, &k->queue, later_pass_add);
                add_column(s->rows, 2, &k->execution, later_pass_add);
        }
        return reader_fail(s->reader, rc);
}

/* ---- percentiles ---- */

static int by_total(struct kernel *a, struct kernel *b)
{
        if (a->execution.spread.total_ns != b->execution.spread.total_ns)
                return a->execution.spread.total_ns > b->execution.spread.total_ns ? -1 : 1;
        if (a->launches != b->launches)
                return a->launches > b->launches ? -1 : 1;
        return a->row < b->row ? -1 : a->row > b->row;
}

static void begin_percentiles(struct quantity *q)
{
        percentiles_init(&q->percentiles, q->spread.count, q->spread.min_ns, q->spread.max_ns);
}

static void choose(struct stats *s)
{
        struct kernel *k, *next;
        uint32_t n = 0;

        HASH_SORT(s->by_row, by_total);
        HASH_ITER (hh, s->by_row, k, next) {
                k->wanted = n++ < s->filter->limit;
                if (!k->wanted)
                        continue;
                begin_percentiles(&k->queue);
                begin_percentiles(&k->execution);
        }
}

/* False when nothing is open any more. */
static int begin_pass(struct stats *s, bool *ret_open)
{
        size_t budget = BUDGET_BYTES;
        struct kernel *k, *next;
        int r = 0;

        *ret_open = false;
        HASH_ITER (hh, s->by_row, k, next) {
                if (!k->wanted)
                        break;
                if (!percentiles_done(&k->queue.percentiles) ||
                    !percentiles_done(&k->execution.percentiles))
                        *ret_open = true;
                if (r == 0)
                        r = percentiles_begin_pass(&k->queue.percentiles, &budget);
                if (r == 0)
                        r = percentiles_begin_pass(&k->execution.percentiles, &budget);
        }
        return r;
}

static void end_pass(struct stats *s)
{
        struct kernel *k, *next;

        HASH_ITER (hh, s->by_row, k, next) {
                percentiles_end_pass(&k->queue.percentiles);
                percentiles_end_pass(&k->execution.percentiles);
        }
}

static int find_percentiles(struct stats *s)
{
        bool open;
        int r;

        choose(s);
        for (;;) {
                r = begin_pass(s, &open);
                if (r < 0 || !open)
                        return r;
                r = later_pass(s);
                if (r < 0)
                        return r;
                end_pass(s);
        }
}

/* ---- results ---- */

static void finish_spread(struct quantity *q)
{
        struct store_spread *s = &q->spread;

        if (s->count == 0)
                return;
        s->avg_ns = s->total_ns / s->count;
        s->p50_ns = q->percentiles.value[0];
        s->p95_ns = q->percentiles.value[1];
        s->p99_ns = q->percentiles.value[2];
}

static int show(struct stats *s, int (*row)(void *data, const struct store_kernel_stats *k),
                void *data)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *name = NULL;
        struct kernel *k, *next;
        int r;

        r = reader_prepare(s->reader, "SELECT text FROM name WHERE id = ?1", &name);
        if (r < 0)
                return r;
        HASH_ITER (hh, s->by_row, k, next) {
                struct store_kernel_stats out = {.launches = k->launches};

                if (!k->wanted)
                        break;
                finish_spread(&k->queue);
                finish_spread(&k->execution);
                out.queue = k->queue.spread;
                out.execution = k->execution.spread;
                sqlite3_reset(name);
                sqlite3_bind_int64(name, 1, k->row);
                if (sqlite3_step(name) == SQLITE_ROW)
                        out.kernel = (const char *)sqlite3_column_text(name, 0);
                if (row(data, &out))
                        break;
        }
        return 0;
}

static void stats_done(struct stats *s)
{
        struct kernel *k, *next;

        HASH_ITER (hh, s->by_row, k, next) {
                HASH_DEL(s->by_row, k);
                percentiles_release(&k->queue.percentiles);
                percentiles_release(&k->execution.percentiles);
                free(k);
        }
        sqlite3_finalize(s->rows);
}

static int prepare_rows(struct stats *s)
{
        char *where = reader_filter_sql(s->filter), *sql;
        int r;

        if (!where)
                return -ENOMEM;
        sql = sqlite3_mprintf("SELECT l.kernel, l.gpu_start - l.cpu_return,"
                              " l.gpu_end - l.gpu_start %s",
                              where);
        r = reader_prepare(s->reader, sql, &s->rows);
        sqlite3_free(sql);
        sqlite3_free(where);
        if (r == 0)
                reader_bind_filter(s->reader, s->filter, s->rows);
        return r;
}

int store_query_kernels(struct store_reader *r, const struct store_filter *filter,
                        uint32_t timeout_ms,
                        int (*row)(void *data, const struct store_kernel_stats *k), void *data)
{
        struct store_filter f = *filter;
        struct stats s = {.reader = r, .filter = &f};
        int error;

        error = reader_check_filter(r, &f);
        if (error < 0)
                return error;
        f.after_launch_id = 0;
        error = reader_begin(r, timeout_ms);
        if (error == 0)
                error = prepare_rows(&s);
        if (error == 0)
                error = first_pass(&s);
        if (error == 0)
                error = find_percentiles(&s);
        if (error == 0)
                error = show(&s, row, data);
        stats_done(&s);
        reader_end(r);
        return error;
}
