/* SPDX-License-Identifier: Apache-2.0 */

/* Multiprocessors, times of blocks, lanes of warps. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "demangle.h"
#include "draw.h"
#include "format.h"
#include "json.h"
#include "need.h"
#include "view.h"

#define SMS_MAX 256

const char *view_kernel(const struct view_options *o, uint32_t kernel_id)
{
        const char *name = o->kernel_name ? o->kernel_name(o->data, kernel_id) : NULL;

        return name ? demangle(name) : format_text("kernel %" PRIu32, kernel_id);
}

void view_lost(const struct view_options *o, const char *what, uint64_t count)
{
        if (!count)
                return;
        if (o->json)
                printf("{\"without_place\":%" PRIu64 "}\n", count);
        else
                printf("%" PRIu64 " %s found no place in the table\n", count, what);
}

/* ---- multiprocessors ---- */

/* One more than the last one that had a block. */
static size_t count_sms(const struct sm_balance *sms, size_t count)
{
        while (count && !sms[count - 1].blocks)
                count--;
        return count;
}

static void print_sms_json(const struct sm_balance *sms, size_t count)
{
        for (size_t i = 0; i < count; i++)
                printf("{\"sm\":%zu,\"blocks\":%" PRIu64 ",\"resident\":%" PRIu64
                       ",\"busy_ns\":%" PRIu64 ",\"block_ns\":%" PRIu64 "}\n",
                       i, (uint64_t)sms[i].blocks, (uint64_t)sms[i].resident,
                       (uint64_t)sm_balance_busy_ns(&sms[i]),
                       (uint64_t)sm_balance_block_ns(&sms[i]));
}

struct sm_sums {
        uint64_t blocks, least, most, resident;
        double busy_ns, busiest_ns;
};

static struct sm_sums sum_sms(const struct sm_balance *sms, size_t count)
{
        struct sm_sums s = {.least = UINT64_MAX};

        for (size_t i = 0; i < count; i++) {
                double busy_ns = (double)sm_balance_busy_ns(&sms[i]);

                s.blocks += sms[i].blocks;
                s.resident += sms[i].resident;
                s.least = sms[i].blocks < s.least ? sms[i].blocks : s.least;
                s.most = sms[i].blocks > s.most ? sms[i].blocks : s.most;
                s.busy_ns += busy_ns;
                s.busiest_ns = busy_ns > s.busiest_ns ? busy_ns : s.busiest_ns;
        }
        return s;
}

static void print_sm_sums(const struct sm_sums *s, size_t count)
{
        double average_ns = s->busy_ns / (double)count;

        printf("%zu multiprocessors, %" PRIu64 " blocks: %" PRIu64 " to %" PRIu64 " each\n", count,
               s->blocks, s->least, s->most);
        printf("busy %s on average, %s at most: imbalance %.1f %%\n",
               format_duration((int64_t)average_ns), format_duration((int64_t)s->busiest_ns),
               average_ns > 0 ? 100 * (s->busiest_ns / average_ns - 1) : 0.0);
        if (s->resident)
                printf("%" PRIu64 " blocks are there, or ended where there is no probe\n",
                       s->resident);
}

void view_sm(const struct view_options *o, const struct sm_balance *sms, size_t count)
{
        unsigned percent[SMS_MAX];
        struct sm_sums sums;

        count = count_sms(sms, count < SMS_MAX ? count : SMS_MAX);
        if (o->json) {
                print_sms_json(sms, count);
                return;
        }
        if (!count) {
                printf("no block has begun\n");
                return;
        }
        sums = sum_sms(sms, count);
        print_sm_sums(&sums, count);
        for (size_t i = 0; i < count; i++)
                percent[i] = sums.busiest_ns > 0
                                     ? (unsigned)(100 * (double)sm_balance_busy_ns(&sms[i]) /
                                                  sums.busiest_ns)
                                     : 0;
        printf("\nbusy, %% of the busiest\n");
        draw_grid(percent, count);
}

/* ---- times of blocks ---- */

static uint64_t count_blocks(const struct block_time *k)
{
        uint64_t n = 0;

        for (unsigned i = 0; i < BLOCK_TIME_BUCKETS; i++)
                n += k->buckets[i];
        return n;
}

/* What times a bucket holds: those below this. */
static uint64_t bucket_end_ns(unsigned bucket)
{
        return UINT64_C(1) << bucket;
}

static void print_times_json(const struct view_options *o, const struct block_time *k)
{
        const char *separator = "";

        printf("{\"kernel_id\":%" PRIu32 ",\"kernel\":", (uint32_t)k->owner.id);
        json_put_text(view_kernel(o, k->owner.id));
        printf(",\"blocks\":%" PRIu64 ",\"sum_ns\":%" PRIu64 ",\"times\":[", count_blocks(k),
               (uint64_t)k->sum_ns);
        for (unsigned i = 0; i < BLOCK_TIME_BUCKETS; i++) {
                if (!k->buckets[i])
                        continue;
                printf("%s{\"from_ns\":%" PRIu64 ",\"blocks\":%" PRIu64 "}", separator,
                       i ? bucket_end_ns(i - 1) : 0, (uint64_t)k->buckets[i]);
                separator = ",";
        }
        printf("]}\n");
}

/* A name of the observed process's, without what would move the cursor. */
static void put_name(const char *name)
{
        for (; *name; name++)
                putchar((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name);
        putchar('\n');
}

static void print_times(const struct view_options *o, const struct block_time *k)
{
        unsigned first = 0, last = BLOCK_TIME_BUCKETS - 1;
        struct draw_row rows[BLOCK_TIME_BUCKETS];
        char labels[BLOCK_TIME_BUCKETS][32];
        uint64_t blocks = count_blocks(k);

        while (first < last && !k->buckets[first])
                first++;
        while (last > first && !k->buckets[last])
                last--;
        put_name(view_kernel(o, k->owner.id));
        printf("  %" PRIu64 " blocks, %s on average\n", blocks,
               format_duration((int64_t)(k->sum_ns / (blocks ? blocks : 1))));
        for (unsigned i = first; i <= last; i++) {
                snprintf(labels[i], sizeof(labels[i]), "%s%s",
                         i == BLOCK_TIME_BUCKETS - 1 ? ">= " : "< ",
                         format_duration(
                                 (int64_t)bucket_end_ns(i == BLOCK_TIME_BUCKETS - 1 ? i - 1 : i)));
                rows[i] = (struct draw_row){labels[i], k->buckets[i]};
        }
        draw_histogram(rows + first, last - first + 1);
}

static int by_sum(const void *a, const void *b)
{
        const struct block_time *x = *(const struct block_time *const *)a;
        const struct block_time *y = *(const struct block_time *const *)b;

        if (x->sum_ns != y->sum_ns)
                return x->sum_ns < y->sum_ns ? 1 : -1;
        return (x->owner.id > y->owner.id) - (x->owner.id < y->owner.id);
}

void view_blocks(const struct view_options *o, const struct block_time *kernels, size_t count,
                 uint64_t without_place)
{
        const struct block_time **sorted =
                need(calloc(count + 1, sizeof(const struct block_time *)));
        size_t n = 0;

        for (size_t i = 0; i < count; i++)
                if (kernels[i].owner.id && count_blocks(&kernels[i]))
                        sorted[n++] = &kernels[i];
        qsort(sorted, n, sizeof(const struct block_time *), by_sum);
        for (size_t i = 0; i < n && i < o->limit; i++) {
                if (i && !o->json)
                        printf("\n");
                if (o->json)
                        print_times_json(o, sorted[i]);
                else
                        print_times(o, sorted[i]);
        }
        if (!n && !o->json)
                printf("no block has ended\n");
        view_lost(o, "blocks", without_place);
        free(sorted);
}

/* ---- lanes ---- */

static void sum_lanes(const struct warp_lanes *lanes, size_t count, unsigned where,
                      uint64_t sums[WARP_LANES])
{
        for (unsigned n = 0; n < WARP_LANES; n++) {
                sums[n] = 0;
                for (size_t i = 0; i < count; i++)
                        sums[n] += lanes[i].warps[where][n];
        }
}

static void print_lanes_json(const char *where, const uint64_t sums[WARP_LANES])
{
        for (unsigned n = 0; n < WARP_LANES; n++)
                if (sums[n])
                        printf("{\"where\":\"%s\",\"lanes\":%u,\"warps\":%" PRIu64 "}\n", where, n,
                               sums[n]);
}

static void print_lanes(const char *what, const uint64_t sums[WARP_LANES])
{
        char labels[WARP_LANES][16];
        struct draw_row rows[WARP_LANES];
        uint64_t warps = 0, all = 0;
        size_t count = 0;

        for (unsigned n = 0; n < WARP_LANES; n++) {
                if (!sums[n])
                        continue;
                warps += sums[n];
                all += n * sums[n];
                snprintf(labels[n], sizeof(labels[n]), "%u", n);
                rows[count++] = (struct draw_row){labels[n], sums[n]};
        }
        printf("%s: %" PRIu64 ", of %.1f lanes on average\n", what, warps,
               warps ? (double)all / (double)warps : 0.0);
        draw_histogram(rows, count);
}

void view_lanes(const struct view_options *o, const struct warp_lanes *lanes, size_t count)
{
        uint64_t entry[WARP_LANES], leave[WARP_LANES];

        sum_lanes(lanes, count, WARP_LANES_ENTRY, entry);
        sum_lanes(lanes, count, WARP_LANES_EXIT, leave);
        if (o->json) {
                print_lanes_json("entry", entry);
                print_lanes_json("exit", leave);
                return;
        }
        print_lanes("warps that began", entry);
        printf("\n");
        print_lanes("groups of lanes that left together", leave);
}
