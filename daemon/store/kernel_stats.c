/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <uthash.h>

#include "store/minutes.h"
#include "store/percentile.h"
#include "store/reader.h"
#include "util/macro.h"

/*
 * Statistics per kernel in several passes over the same rows, in one snapshot:
 * the first gives counts, sums and extremes; the kernels that will be shown are
 * chosen; further passes find their percentiles, as many kernels per pass as
 * memory allows. A million rows take two passes.
 *
 * Where rows have been deleted there are sums per minute: they come first. The
 * percentiles of a kernel that has some are those of a histogram, into which its
 * rows go too.
 */
#define KERNELS_MAX  65536
#define BUDGET_BYTES (16u << 20)

struct quantity {
        struct store_spread spread;
        struct percentiles percentiles;
        struct histogram histogram;
};

struct kernel {
        UT_hash_handle hh;
        int64_t row; /* name.id; 0: not known */
        uint64_t launches;
        uint64_t summed; /* of them, those from sums per minute */
        struct quantity queue, execution;
        bool wanted;
};

struct stats {
        struct store_reader *reader;
        const struct store_filter *filter;
        struct kernel *by_row;
        struct kernel *last; /* the same kernel often comes again */
        sqlite3_stmt *rows;
        size_t histogram_buckets; /* in all */
};

static struct kernel *find_kernel(struct stats *s, int64_t row)
{
        struct kernel *k = s->last;

        if (!k || k->row != row)
                HASH_FIND(hh, s->by_row, &row, sizeof(row), k);
        if (k)
                s->last = k;
        return k;
}

/* The same, made when it is new. 0, -ENOMEM, -E2BIG. */
static int get_kernel(struct stats *s, int64_t row, struct kernel **ret_kernel)
{
        struct kernel *k = find_kernel(s, row);

        if (!k) {
                if (HASH_COUNT(s->by_row) == KERNELS_MAX) {
                        snprintf(s->reader->error, sizeof(s->reader->error),
                                 "more than %d kernels: narrow the query", KERNELS_MAX);
                        return -E2BIG;
                }
                k = calloc(1, sizeof(*k));
                if (!k)
                        return -ENOMEM;
                k->row = row;
                HASH_ADD(hh, s->by_row, row, sizeof(row), k);
        }
        *ret_kernel = s->last = k;
        return 0;
}

/* ---- sums ---- */

/* A histogram has grown from so many buckets: all of them must fit in memory. */
static int count_buckets(struct stats *s, const struct histogram *h, uint32_t before)
{
        s->histogram_buckets += h->count - before;
        if (s->histogram_buckets <= BUDGET_BYTES / sizeof(uint64_t))
                return 0;
        snprintf(s->reader->error, sizeof(s->reader->error),
                 "too many kernels whose launches are deleted: narrow the query");
        return -E2BIG;
}

static int add_histogram(struct stats *s, struct quantity *q, const void *bytes, size_t size)
{
        uint32_t before = q->histogram.count;
        int r = histogram_merge(&q->histogram, bytes, size);

        if (r == -EBADMSG)
                snprintf(s->reader->error, sizeof(s->reader->error),
                         "a sum per minute in the database makes no sense: prune the sums");
        return r < 0 ? r : count_buckets(s, &q->histogram, before);
}

static int add_sum(struct stats *s, struct quantity *q, const struct minute_spread *m,
                   const void *bytes, size_t size)
{
        struct store_spread *all = &q->spread;

        if (m->count == 0)
                return 0;
        if (all->count == 0 || m->min_ns < all->min_ns)
                all->min_ns = m->min_ns;
        if (m->max_ns > all->max_ns)
                all->max_ns = m->max_ns;
        all->total_ns += m->total_ns;
        all->count += m->count;
        return add_histogram(s, q, bytes, size);
}

static int add_minute(void *data, const struct minute_row *m)
{
        struct stats *s = data;
        struct kernel *k;
        int r = get_kernel(s, m->kernel, &k);

        if (r < 0)
                return r;
        k->launches += m->launches;
        k->summed += m->launches;
        r = add_sum(s, &k->queue, &m->queue, m->queue_bytes, m->queue_size);
        if (r == 0)
                r = add_sum(s, &k->execution, &m->execution, m->execution_bytes, m->execution_size);
        return r;
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

static int first_pass_add(struct stats *s, const struct kernel *k, struct quantity *q, uint64_t ns)
{
        uint32_t before = q->histogram.count;
        int r;

        spread_add(&q->spread, ns);
        if (!k->summed)
                return 0;
        r = histogram_add(&q->histogram, ns);
        return r < 0 ? r : count_buckets(s, &q->histogram, before);
}

static int later_pass_add(struct stats *s, const struct kernel *k, struct quantity *q, uint64_t ns)
{
        if (!k->summed)
                percentiles_add(&q->percentiles, ns);
        return 0;
}

/* A negative distance is the clocks' error, not time. */
static int add_column(struct stats *s, int column, const struct kernel *k, struct quantity *q,
                      int (*add)(struct stats *s, const struct kernel *k, struct quantity *q,
                                 uint64_t ns))
{
        int64_t ns;

        if (sqlite3_column_type(s->rows, column) == SQLITE_NULL)
                return 0;
        ns = sqlite3_column_int64(s->rows, column);
        return add(s, k, q, ns < 0 ? 0 : (uint64_t)ns);
}

static int first_pass(struct stats *s)
{
        int rc, r;

        while ((rc = sqlite3_step(s->rows)) == SQLITE_ROW) {
                struct kernel *k;

                r = get_kernel(s, sqlite3_column_int64(s->rows, 0), &k);
                if (r < 0)
                        return r;
                k->launches++;
                r = add_column(s, 1, k, &k->queue, first_pass_add);
                if (r == 0)
                        r = add_column(s, 2, k, &k->execution, first_pass_add);
                if (r < 0)
                        return r;
        }
        return reader_fail(s->reader, rc);
}

static int later_pass(struct stats *s)
{
        int rc;

        sqlite3_reset(s->rows);
        while ((rc = sqlite3_step(s->rows)) == SQLITE_ROW) {
                struct kernel *k = find_kernel(s, sqlite3_column_int64(s->rows, 0));

                if (!k || !k->wanted)
                        continue;
                add_column(s, 1, k, &k->queue, later_pass_add);
                add_column(s, 2, k, &k->execution, later_pass_add);
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

static void begin_percentiles(const struct kernel *k, struct quantity *q)
{
        if (!k->summed)
                percentiles_init(&q->percentiles, q->spread.count, q->spread.min_ns,
                                 q->spread.max_ns);
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
                begin_percentiles(k, &k->queue);
                begin_percentiles(k, &k->execution);
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

static uint64_t percentile(const struct kernel *k, const struct quantity *q, int which)
{
        const struct store_spread *s = &q->spread;
        uint64_t value;

        if (!k->summed)
                return q->percentiles.value[which];
        value = histogram_value(&q->histogram, percentiles_rank(s->count, which));
        value = value < s->min_ns ? s->min_ns : value;
        return value > s->max_ns ? s->max_ns : value;
}

static void finish_spread(const struct kernel *k, struct quantity *q)
{
        struct store_spread *s = &q->spread;

        if (s->count == 0)
                return;
        s->avg_ns = s->total_ns / s->count;
        s->p50_ns = percentile(k, q, 0);
        s->p95_ns = percentile(k, q, 1);
        s->p99_ns = percentile(k, q, 2);
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
                struct store_kernel_stats out = {.launches = k->launches, .summed = k->summed};

                if (!k->wanted)
                        break;
                finish_spread(k, &k->queue);
                finish_spread(k, &k->execution);
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
                histogram_done(&k->queue.histogram);
                histogram_done(&k->execution.histogram);
                free(k);
        }
        sqlite3_finalize(s->rows);
}

/* Rows from a time on, the filter's or a later one. */
static int prepare_rows(struct stats *s, uint64_t from_ns)
{
        struct store_filter f = *s->filter;
        char *where, *sql;
        int r;

        if (f.since_ns < from_ns)
                f.since_ns = from_ns;
        where = reader_filter_sql(&f);
        if (!where)
                return -ENOMEM;
        sql = sqlite3_mprintf("SELECT l.kernel, l.gpu_start - l.cpu_return,"
                              " l.gpu_end - l.gpu_start %s",
                              where);
        r = reader_prepare(s->reader, sql, &s->rows);
        sqlite3_free(sql);
        sqlite3_free(where);
        if (r == 0)
                reader_bind_filter(s->reader, &f, s->rows);
        return r;
}

/* Times of several boots are no times in common: then only rows count. */
static int read_sums(struct stats *s, uint64_t *ret_rows_from_ns)
{
        *ret_rows_from_ns = 0;
        if (s->filter->all_boots)
                return 0;
        return minutes_read(s->reader, s->filter, add_minute, s, ret_rows_from_ns);
}

int store_query_kernels(struct store_reader *r, const struct store_filter *filter,
                        uint32_t timeout_ms,
                        int (*row)(void *data, const struct store_kernel_stats *k), void *data,
                        uint64_t *ret_rows_from_ns)
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
                error = read_sums(&s, ret_rows_from_ns);
        if (error == 0)
                error = prepare_rows(&s, *ret_rows_from_ns);
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
