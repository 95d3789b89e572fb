/* SPDX-License-Identifier: Apache-2.0 */

/* The store's parts that need no database: queue, outcomes, process cache, percentiles. */
#include "store/glob.h"
#include "store/outcome.h"
#include "store/percentile.h"
#include "store/process_cache.h"
#include "store/queue.h"
#include "unit/test.h"

/* ---- queue ---- */

static void queue_keeps_order(void)
{
        struct record_queue q;
        uint64_t put = 0, taken = 0, random = 7;

        CHECK_EQ(queue_init(&q, 5000), 0);
        for (int round = 0; round < 200; round++) {
                uint64_t n = test_random(&random) % 3000;

                for (uint64_t i = 0; i < n; i++) {
                        struct queue_entry *e = queue_push(&q);

                        if (!e)
                                break;
                        e->record.launch_id = put++;
                }
                CHECK(queue_length(&q) <= 5000);
                n = test_random(&random) % (queue_length(&q) + 1);
                for (uint64_t i = 0; i < n; i++)
                        CHECK_EQ(queue_at(&q, q.head + i)->record.launch_id, taken + i);
                queue_pop(&q, n);
                taken += n;
                CHECK_EQ(queue_length(&q), put - taken);
        }
        CHECK(put > 50000);
        queue_done(&q);
}

static void queue_refuses_when_full(void)
{
        struct record_queue q;

        CHECK_EQ(queue_init(&q, 3), 0);
        for (int i = 0; i < 3; i++)
                CHECK(queue_push(&q));
        CHECK(!queue_push(&q));
        queue_pop(&q, 1);
        CHECK(queue_push(&q));
        CHECK(!queue_push(&q));
        queue_done(&q);
}

static unsigned chunks_in_use(const struct record_queue *q)
{
        unsigned n = q->spare != NULL;

        for (uint32_t i = 0; i < q->chunk_count; i++)
                n += q->chunks[i] != NULL;
        return n;
}

static void queue_gives_memory_back(void)
{
        struct record_queue q;

        CHECK_EQ(queue_init(&q, 65536), 0);
        CHECK_EQ(chunks_in_use(&q), 0);
        for (int i = 0; i < 65536; i++)
                CHECK(queue_push(&q));
        CHECK_EQ(chunks_in_use(&q), 64);
        queue_pop(&q, 65536);
        CHECK(chunks_in_use(&q) <= 1);
        queue_done(&q);
}

/* ---- outcomes ---- */

static void outcomes_add_up(void)
{
        struct outcome_table a = {0}, b = {0};
        struct store_outcome out[4];
        uint64_t stored = 0, failed = 0;
        size_t n, total = 0;

        for (uint64_t key = 1; key <= 10; key++) {
                CHECK_EQ(outcome_add(&a, key, key, 0), 0);
                CHECK_EQ(outcome_add(&b, key + 5, 0, 1), 0);
                CHECK_EQ(outcome_add(&a, 1, 1, 0), 0);
        }
        outcome_merge(&a, &b);
        CHECK_EQ(outcome_take(&b, out, 4), 0);
        do {
                n = outcome_take(&a, out, 4);
                for (size_t i = 0; i < n; i++) {
                        stored += out[i].stored;
                        failed += out[i].failed;
                        total++;
                }
        } while (n == 4);
        CHECK_EQ(stored, 55 + 10);
        CHECK_EQ(failed, 10);
        CHECK_EQ(total, 15);
}

/* ---- process cache ---- */

static void cache_put(struct process_cache *c, uint64_t key)
{
        struct process_info p = {.process_key = key, .exe = "/a", .cgroup = NULL};

        CHECK_EQ(process_cache_put(c, process_info_copy(&p)), 0);
}

static void cache_is_bounded_but_keeps_unwritten(void)
{
        struct process_cache c = {0};
        struct ledger ledger = {.produced = 3};

        for (uint64_t key = 1; key <= 2 * PROCESS_CACHE_MAX; key++)
                cache_put(&c, key);
        CHECK_EQ(c.unwritten, 2 * PROCESS_CACHE_MAX);
        CHECK(process_cache_knows(&c, 1));
        process_cache_all_written(&c);
        CHECK_EQ(c.unwritten, 0);

        CHECK_EQ(process_cache_put_ledger(&c, 1, &ledger), 0); /* used: not the oldest any more */
        cache_put(&c, 2 * PROCESS_CACHE_MAX + 1);
        CHECK(process_cache_knows(&c, 1));
        CHECK(!process_cache_knows(&c, 2));
        CHECK_EQ(HASH_COUNT(c.by_key), PROCESS_CACHE_MAX);
        process_cache_clear(&c);
}

static void cache_notes_changes_only(void)
{
        struct process_cache c = {0};
        struct ledger ledger = {.produced = 3};

        CHECK_EQ(process_cache_put_ledger(&c, 9, &ledger), 0);
        CHECK_EQ(c.unwritten, 1);
        process_cache_all_written(&c);
        CHECK_EQ(process_cache_put_ledger(&c, 9, &ledger), 0);
        CHECK_EQ(c.unwritten, 0);
        ledger.stored = 1;
        CHECK_EQ(process_cache_put_ledger(&c, 9, &ledger), 0);
        cache_put(&c, 9);
        CHECK_EQ(c.unwritten, 1);
        process_cache_all_written(&c);
        process_cache_none_written(&c);
        CHECK_EQ(c.unwritten, 1);
        process_cache_clear(&c);
}

/* ---- percentiles ---- */

static int by_value(const void *a, const void *b)
{
        const uint64_t *x = a, *y = b;

        return *x < *y ? -1 : *x > *y;
}

/* Against sorting, with a budget; returns the passes it took. */
static int check_percentiles(uint64_t *values, size_t n, size_t budget)
{
        static const unsigned percents[PERCENTILES] = {50, 95, 99};
        struct percentiles p;
        int passes = 0;

        qsort(values, n, sizeof(*values), by_value);
        percentiles_init(&p, n, values[0], values[n - 1]);
        /* The order they are read in must not matter: from both ends inwards. */
        for (; !percentiles_done(&p); passes++) {
                size_t left = budget;

                CHECK(passes < 30);
                CHECK_EQ(percentiles_begin_pass(&p, &left), 0);
                CHECK(left <= budget);
                for (size_t i = 0; i < n; i++)
                        percentiles_add(&p, values[i % 2 ? n - 1 - i / 2 : i / 2]);
                percentiles_end_pass(&p);
        }
        for (int i = 0; i < PERCENTILES; i++) {
                size_t rank = (n * percents[i] + 99) / 100;

                CHECK_EQ(p.value[i], values[rank - 1]);
        }
        return passes;
}

static void percentiles_are_exact(void)
{
        static uint64_t values[20000];
        uint64_t random = 3;

        for (int round = 0; round < 300; round++) {
                size_t n = 1 + test_random(&random) % (round < 100 ? 150 : 20000);
                unsigned shift = (unsigned)(test_random(&random) % 64);
                size_t budget = round % 2 ? 1 << 20 : 4096 * 3 + test_random(&random) % 20000;

                for (size_t i = 0; i < n; i++) {
                        values[i] = test_random(&random) >> shift;
                        if (test_random(&random) % 50 == 0)
                                values[i] = test_random(&random); /* far out */
                }
                check_percentiles(values, n, budget);
        }
}

static void percentiles_of_equal_and_extreme_values(void)
{
        static uint64_t values[10000];

        for (size_t i = 0; i < 10000; i++)
                values[i] = 42;
        CHECK_EQ(check_percentiles(values, 10000, 4096), 0);
        values[0] = 0;
        values[9999] = UINT64_MAX;
        CHECK(check_percentiles(values, 10000, 4096) <= 8);
        for (size_t i = 0; i < 10000; i++)
                values[i] = i % 2 ? UINT64_MAX : 0;
        check_percentiles(values, 10000, 3 * 4096);
        values[0] = 5;
        check_percentiles(values, 1, 4096);
        values[0] = 5;
        values[1] = 1;
        CHECK_EQ(check_percentiles(values, 2, 4096), 1);
}

/* ---- glob ---- */

static void globs_match(void)
{
        static const struct {
                const char *pattern, *text;
                bool matches;
        } cases[] = {
                {"", "", true},
                {"", "a", false},
                {"*", "", true},
                {"**", "abc", true},
                {"a*", "abc", true},
                {"a*", "bac", false},
                {"*c", "abcabc", true},
                {"*b*", "abc", true},
                {"*b", "abc", false},
                {"a?c", "abc", true},
                {"a?c", "ac", false},
                {"?", "\xc3\xa9", true},
                {"??", "\xc3\xa9", false},
                {"k\xc3\xa9*", "k\xc3\xa9rnel", true},
                {"[\xc3\xa8-\xc3\xaa]", "\xc3\xa9", true},
                {"?", "\xff", true},
                {"\xff", "\xff", true},
                {"?", "\xc3", true},
                {"[a-c]x", "bx", true},
                {"[a-c]x", "dx", false},
                {"[^a-c]x", "dx", true},
                {"[^a-c]x", "bx", false},
                {"[]]", "]", true},
                {"[^]]", "]", false},
                {"[a-]", "-", true},
                {"[-a]", "-", true},
                {"[a", "a", false},
                {"[", "[", false},
                {"[[]*", "[x", true},
                {"A", "a", false},
                {"*[", "a[", false},
                {"gemm<*, half*>", "gemm<float, half2>", true},
                {"*ab*ab*", "aabab", true},
                {"a*b?c", "a__bxc_bycc", false},
                {"a*b?c", "a__bxc_byc", true},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                if (glob_matches(cases[i].pattern, cases[i].text) != cases[i].matches)
                        fprintf(stderr, "%s on %s\n", cases[i].pattern, cases[i].text);
                CHECK_EQ(glob_matches(cases[i].pattern, cases[i].text), cases[i].matches);
        }
}

/* The plain definition, for short patterns. */
static bool slow_glob(const char *p, const char *t)
{
        if (*p == '*')
                return slow_glob(p + 1, t) || (*t && slow_glob(p, t + 1));
        if (*p == '\0' || *t == '\0')
                return *p == *t;
        return (*p == '?' || *p == *t) && slow_glob(p + 1, t + 1);
}

static void globs_agree_with_their_definition(void)
{
        uint64_t random = 11;
        int matched = 0;

        for (int i = 0; i < 200000; i++) {
                char pattern[10] = {0}, text[12] = {0};
                size_t n = test_random(&random) % 9, m = test_random(&random) % 11;

                for (size_t k = 0; k < n; k++)
                        pattern[k] = "ab?**"[test_random(&random) % 5];
                for (size_t k = 0; k < m; k++)
                        text[k] = "aab"[test_random(&random) % 3];
                CHECK_EQ(glob_matches(pattern, text), slow_glob(pattern, text));
                matched += glob_matches(pattern, text);
        }
        CHECK(matched > 20000);
}

static void globs_of_many_stars_end(void)
{
        static char pattern[1025], text[4097];

        memset(text, 'a', sizeof(text) - 1);
        for (size_t i = 0; i + 2 < sizeof(pattern); i += 2)
                memcpy(pattern + i, "*a", 2);
        CHECK(glob_matches(pattern, text));
        pattern[1023] = 'b';
        CHECK(!glob_matches(pattern, text));
}

int main(void)
{
        TEST(globs_match);
        TEST(globs_agree_with_their_definition);
        TEST(globs_of_many_stars_end);
        TEST(queue_keeps_order);
        TEST(queue_refuses_when_full);
        TEST(queue_gives_memory_back);
        TEST(outcomes_add_up);
        TEST(cache_is_bounded_but_keeps_unwritten);
        TEST(cache_notes_changes_only);
        TEST(percentiles_are_exact);
        TEST(percentiles_of_equal_and_extreme_values);
        return 0;
}
