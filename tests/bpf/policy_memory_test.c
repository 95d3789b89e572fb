/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Each shipped memory policy in the simulator: better than the driver on the
 * pattern its essay names, worse (than the driver, or than another policy) where
 * the essay says so. Whatever wins: never better than the offline optimum at what
 * that is the optimum of, every action accounted for, the same result every time.
 *      policy_memory_test DIRECTORY_OF_OBJECTS
 */
#include <errno.h>

#include "bpf/policy_fixture.h"
#include "policy/sim/generate.h"
#include "policy/sim/replay.h"
#include "unit/test.h"
#include "util/macro.h"

#define GPU_BYTES (1ull << 30)

enum measure {
        STALL,    /* all kernels' */
        CRITICAL, /* that of process 0 */
        BYTES,    /* to the GPU */
};

struct comparison {
        const char *pattern;
        uint32_t percent; /* memory used, of the GPU's */
        uint32_t launches;
        const char *policies[3]; /* by descending precedence, with their parameters */
        const char *against[3];  /* none: the driver */
        enum measure measure;
        uint32_t least, most; /* percent of what the other side has */
};

static const struct comparison comparisons[] = {
        {"zipf", 200, 2000, {"evict_lru"}, {NULL}, STALL, 0, 80},
        {"cyclic", 125, 500, {"evict_lru"}, {"evict_mru"}, STALL, 150, 1000},
        {"kv", 300, 4000, {"evict_lru"}, {NULL}, STALL, 150, 1000},

        {"zipf", 200, 2000, {"evict_lfu"}, {NULL}, STALL, 0, 70},
        {"scans", 300, 2000, {"evict_lfu"}, {NULL}, STALL, 0, 70},
        {"shift", 300, 2000, {"evict_lfu"}, {NULL}, STALL, 300, 10000},
        {"shift", 300, 2000, {"evict_lfu decay=64"}, {"evict_lfu"}, STALL, 0, 90},

        {"scans", 300, 2000, {"evict_2q"}, {NULL}, STALL, 0, 90},
        {"scans", 300, 2000, {"evict_2q"}, {"evict_lru"}, STALL, 0, 99},
        {"zipf", 200, 2000, {"evict_2q"}, {"evict_lru"}, STALL, 105, 1000},

        {"cyclic", 125, 500, {"evict_mru"}, {NULL}, STALL, 0, 40},
        {"shift", 300, 2000, {"evict_mru"}, {NULL}, STALL, 300, 10000},

        {"tenants", 300, 1000, {"evict_quota quota_mib=512"}, {NULL}, CRITICAL, 0, 10},
        {"layers", 90, 400, {"evict_quota quota_mib=512"}, {NULL}, STALL, 300, 10000},
        {"layers",
         90,
         400,
         {"evict_quota quota_mib=512 special[0]=layers special_mib[0]=1024"},
         {"evict_quota quota_mib=512"},
         STALL,
         0,
         20},

        {"tenants", 300, 1000, {"evict_priority high[0]=critical"}, {NULL}, CRITICAL, 0, 10},
        {"squatter", 150, 600, {"evict_priority high[0]=critical"}, {NULL}, STALL, 300, 10000},
        {"tenants", 300, 1000, {"evict_priority low[0]=bat*"}, {NULL}, CRITICAL, 0, 10},

        {"tenants", 300, 1000, {"pin_protect critical[0]=crit*"}, {NULL}, CRITICAL, 0, 10},
        {"squatter", 150, 600, {"pin_protect critical[0]=critical"}, {NULL}, STALL, 300, 10000},

        {"kv", 300, 4000, {"kv_cache"}, {NULL}, STALL, 0, 90},
        {"attention", 120, 600, {"kv_cache"}, {NULL}, STALL, 105, 1000},
        {"cyclic", 125, 500, {"kv_cache"}, {"evict_mru"}, STALL, 150, 1000},

        {"streaming", 90, 1, {"prefetch_stride"}, {NULL}, STALL, 0, 30},
        {"strided", 90, 1, {"prefetch_stride"}, {NULL}, STALL, 0, 85},
        {"streaming",
         200,
         1,
         {"prefetch_stride", "evict_lru reserve_blocks=96"},
         {"evict_lru reserve_blocks=96"},
         STALL,
         0,
         90},
        {"runs", 95, 40, {"prefetch_stride"}, {NULL}, BYTES, 200, 1000},

        {"layers", 90, 300, {"prefetch_args"}, {NULL}, STALL, 0, 20},
        {"layers",
         125,
         500,
         {"prefetch_args", "evict_lru reserve_blocks=64"},
         {"evict_lru"},
         STALL,
         100,
         120},
        {"random", 90, 20, {"prefetch_args"}, {NULL}, STALL, 150, 1000},
        {"random", 90, 20, {"prefetch_args range_mib=512"}, {NULL}, STALL, 100, 100},

        {"clusters", 90, 1, {"prefetch_tree"}, {NULL}, STALL, 0, 75},
        {"clusters", 90, 1, {"prefetch_tree link_mib=1"}, {"prefetch_tree"}, STALL, 130, 1000},
        /* The first of twelve caches tells that kernels read them. */
        {"fed", 250, 1536, {"prefetch_written", "evict_lru"}, {NULL}, STALL, 0, 30},
        {"scraps", 250, 1536, {"prefetch_written", "evict_lru"}, {NULL}, BYTES, 300, 1000},

        {"comb", 140, 400, {"prefetch_tree", "evict_lru"}, {"evict_lru"}, STALL, 150, 1000},
};

/* ---- replaying ---- */

static int load(struct policy_engine *e, void *data)
{
        const char *const *policies = data;

        for (int i = 0; i < 3 && policies[i]; i++)
                fixture_load(e, policies[i], 3 - i);
        return 0;
}

static int check_account(void *data, const struct policy_info *info)
{
        const struct policy_stats *s = info->stats;
        uint64_t refused = 0;

        for (int i = 0; i < POLICY_REFUSED_COUNT; i++)
                refused += s->refused[i];
        CHECK_STR(info->reason, "");
        CHECK_EQ(info->state, POLICY_ACTIVE);
        CHECK_EQ(s->waiting, 0);
        CHECK_EQ(s->asked, s->done + refused);
        CHECK_EQ(s->skipped, 0);
        return 0;
}

static void look(struct policy_engine *e, void *data)
{
        policy_engine_each(e, check_account, NULL);
}

static struct replay_result run_on(const struct uvm_trace *t, const char *const *policies,
                                   uint64_t gpu_bytes)
{
        struct replay_options options = {
                .gpu_bytes = gpu_bytes, .costs = uvm_costs_h200, .ahead = 8};
        struct replay_result result;

        if (policies[0]) {
                options.prepare = load;
                options.finish = look;
                options.data = (void *)policies;
        }
        CHECK_EQ(replay(t, &options, &result), 0);
        return result;
}

static struct replay_result run(const struct uvm_trace *t, const char *const *policies)
{
        return run_on(t, policies, GPU_BYTES);
}

static struct uvm_trace *make(const char *pattern, uint32_t percent, uint32_t launches)
{
        const struct generate_options options = {.pattern = pattern,
                                                 .gpu_bytes = GPU_BYTES,
                                                 .percent = percent,
                                                 .launches = launches,
                                                 .seed = 1};
        struct uvm_trace *t;

        CHECK_EQ(generate(&options, &t), 0);
        return t;
}

static uint64_t measured(const struct replay_result *r, enum measure m)
{
        return m == STALL      ? r->memory.stall_ns
               : m == CRITICAL ? r->processes[0].stall_ns
                               : r->memory.to_gpu_bytes;
}

/* ---- tests ---- */

static void compare(const struct comparison *c)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = make(c->pattern, c->percent, c->launches);
        struct replay_result ours = run(t, c->policies), theirs = run(t, c->against);
        uint64_t a = measured(&ours, c->measure), b = measured(&theirs, c->measure);
        uint64_t percent = b ? a * 100 / b : 0;

        printf("%-10s %3u %%  %-32s against %-20s: %4" PRIu64 " %% (%u to %u)\n", c->pattern,
               c->percent, c->policies[0], c->against[0] ? c->against[0] : "the driver", percent,
               c->least, c->most);
        CHECK(b > 0);
        CHECK(percent >= c->least && percent <= c->most);
}

static void test_comparisons(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(comparisons); i++)
                compare(&comparisons[i]);
}

/* What wins against the driver wins against the textbook policy as well. */
static void beat_lru(const struct comparison *c)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = make(c->pattern, c->percent, c->launches);
        static const char *const lru[2] = {"evict_lru"};
        struct replay_result ours = run(t, c->policies), theirs = run(t, lru);
        uint64_t a = measured(&ours, c->measure), b = measured(&theirs, c->measure);

        printf("%-10s %3u %%  %-32s against evict_lru: %" PRIu64 " %%\n", c->pattern, c->percent,
               c->policies[0], b ? a * 100 / b : 0);
        CHECK(a < b);
}

static void test_lru(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(comparisons); i++)
                if (!comparisons[i].against[0] && comparisons[i].most < 100 &&
                    strcmp(comparisons[i].policies[0], "evict_lru") != 0)
                        beat_lru(&comparisons[i]);
}

/* Nothing that only chooses victims fetches fewer blocks than the offline optimum. */
static void test_optimum(void)
{
        static const char *const patterns[] = {"zipf", "cyclic", "layers", "scans", "kv"};
        static const char *const policies[] = {"evict_lru", "evict_lfu", "evict_2q", "evict_mru",
                                               "kv_cache"};
        struct replay_options optimum = {
                .gpu_bytes = GPU_BYTES, .costs = uvm_costs_h200, .optimum = true};

        for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
                _cleanup_(uvm_trace_freep) struct uvm_trace *t = make(patterns[i], 150, 600);
                const char *none[1] = {NULL};
                struct replay_result best, driver = run(t, none);

                CHECK_EQ(replay(t, &optimum, &best), 0);
                CHECK(best.memory.fetches <= driver.memory.fetches);
                for (size_t k = 0; k < ARRAY_SIZE(policies); k++) {
                        const char *one[2] = {policies[k], NULL};

                        CHECK(run(t, one).memory.fetches >= best.memory.fetches);
                }
        }
}

/* The CPU writes memory of 64 blocks this often, pausing, and gives it to a kernel; ten times. */
static struct uvm_trace *make_handed(int writes)
{
        const uint64_t base = 1ull << 32, bytes = 64ull * POLICY_BLOCK_BYTES;
        struct uvm_trace *t = uvm_trace_new("handed", 1);
        struct uvm_trace_record r = {.kind = UVM_TRACE_PROCESS, .address = 'h'};

        CHECK(t);
        CHECK_EQ(uvm_trace_add(t, &r), 0);
        r = (struct uvm_trace_record){.kind = UVM_TRACE_ALLOC, .address = base, .bytes = bytes};
        CHECK_EQ(uvm_trace_add(t, &r), 0);
        for (int launch = 0; launch < 10; launch++) {
                for (int i = 0; i < writes; i++) {
                        r.kind = UVM_TRACE_HOST;
                        CHECK_EQ(uvm_trace_add(t, &r), 0);
                        r = (struct uvm_trace_record){.kind = UVM_TRACE_IDLE, .ns = 200000000};
                        CHECK_EQ(uvm_trace_add(t, &r), 0);
                        r = (struct uvm_trace_record){.address = base, .bytes = bytes};
                }
                for (int kind = UVM_TRACE_LAUNCH; kind <= UVM_TRACE_TOUCH; kind++) {
                        r.kind = (uint8_t)kind;
                        CHECK_EQ(uvm_trace_add(t, &r), 0);
                }
        }
        return t;
}

/* What the CPU took goes back before the launch; in vain once between launches at most. */
static void test_taken(void)
{
        const char *early[2] = {"prefetch_args"}, *late[2] = {"prefetch_args early_ms=0"};
        const char *const patterns[] = {"fed", "scraps"};

        for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
                _cleanup_(uvm_trace_freep) struct uvm_trace *t = make(patterns[i], 150, 1536);
                struct replay_result e = run_on(t, early, 4 * GPU_BYTES);
                struct replay_result l = run_on(t, late, 4 * GPU_BYTES);

                CHECK(e.memory.stall_ns < l.memory.stall_ns / 2);
                CHECK_EQ(e.memory.to_gpu_bytes, l.memory.to_gpu_bytes);
        }
        for (int writes = 1; writes <= 4; writes++) {
                _cleanup_(uvm_trace_freep) struct uvm_trace *t = make_handed(writes);
                struct replay_result e = run_on(t, early, 4 * GPU_BYTES);
                struct replay_result l = run_on(t, late, 4 * GPU_BYTES);

                CHECK_EQ(l.memory.to_gpu_bytes, 640ull * POLICY_BLOCK_BYTES);
                if (writes == 1)
                        CHECK_EQ(e.memory.to_gpu_bytes, l.memory.to_gpu_bytes);
                else
                        CHECK_EQ(e.memory.to_gpu_bytes,
                                 l.memory.to_gpu_bytes * 2 - 64ull * POLICY_BLOCK_BYTES);
        }
}

/* What was measured on an H200 is what the model gives. */
static void test_costs(void)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = make("streaming", 100, 1);
        const char *none[1] = {NULL};
        struct uvm_model_options options = {.gpu_bytes = 2 * GPU_BYTES, .costs = uvm_costs_h200};
        struct uvm_model *m = uvm_model_new(&options);
        struct replay_result faulted = run(t, none);
        uint64_t moved;

        CHECK(faulted.memory.stall_ns > 105000000 && faulted.memory.stall_ns < 131000000);
        CHECK(m);
        CHECK_EQ(uvm_model_migrate(m, 1, 1ull << 32, GPU_BYTES, 0, &moved), 0);
        CHECK_EQ(moved, GPU_BYTES);
        uvm_model_touch(m, 1, 1ull << 32, GPU_BYTES, false);
        (void)uvm_model_kernel_end(m);
        CHECK(uvm_model_now(m) > 21000000 && uvm_model_now(m) < 23000000);
        CHECK_EQ(uvm_model_get_stats(m, 0)->faults, 0);
        uvm_model_free(m);
}

static void test_repeatable(void)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *a = make("zipf", 150, 300);
        _cleanup_(uvm_trace_freep) struct uvm_trace *b = make("zipf", 150, 300);
        static const char *const policies[3] = {"prefetch_tree", "evict_2q"};
        struct replay_result first = run(a, policies), second = run(b, policies);

        CHECK_EQ(a->count, b->count);
        CHECK_EQ(memcmp(a->records, b->records, a->count * sizeof(*a->records)), 0);
        CHECK_EQ(memcmp(&first, &second, sizeof(first)), 0);
}

/* ---- several GPUs ---- */

#define BLOCK ((uint64_t)POLICY_BLOCK_BYTES)
#define AT    (1ull << 32)

/* A kernel of a GPU reads memory; ns that it waits. */
static uint64_t reads(struct uvm_model *m, uint32_t gpu, uint64_t bytes)
{
        uvm_model_kernel_begin(m, gpu);
        uvm_model_touch(m, 1, AT, bytes, false);
        return uvm_model_kernel_end(m);
}

/* What one GPU has goes to the other that faults on it, or is to get it: over the link, or not. */
static void test_two_gpus(void)
{
        const uint64_t bytes = 64 * BLOCK;
        uint64_t over_ns[2], moved;

        for (int linked = 0; linked < 2; linked++) {
                struct uvm_model_options options = {
                        .gpus = 2, .gpu_bytes = GPU_BYTES, .costs = uvm_costs_h200};
                struct uvm_model *m;

                options.costs.peer_mbps = linked ? 450000 : 0;
                m = uvm_model_new(&options);
                CHECK(m);
                CHECK(reads(m, 0, bytes) > 0);
                CHECK_EQ(reads(m, 0, bytes), 0);
                CHECK_EQ(uvm_model_free_bytes(m, 0), GPU_BYTES - bytes);
                CHECK_EQ(uvm_model_free_bytes(m, 1), GPU_BYTES);
                over_ns[linked] = reads(m, 1, bytes);
                CHECK_EQ(uvm_model_free_bytes(m, 0), GPU_BYTES);
                CHECK_EQ(uvm_model_free_bytes(m, 1), GPU_BYTES - bytes);
                CHECK_EQ(uvm_model_get_stats(m, 1)->peer_bytes, bytes);
                CHECK_EQ(uvm_model_get_stats(m, 1)->fetches, 64);
                CHECK_EQ(uvm_model_get_stats(m, 0)->to_host_bytes, linked ? 0 : bytes);

                uvm_model_pass(m, 1000000000);
                CHECK_EQ(uvm_model_migrate(m, 1, AT, bytes, 0, &moved), 0);
                CHECK_EQ(moved, bytes);
                CHECK_EQ(uvm_model_get_stats(m, 0)->peer_bytes, bytes);
                uvm_model_pass(m, 1000000000);
                CHECK_EQ(reads(m, 0, bytes), 0);
                CHECK_EQ(uvm_model_migrate(m, 1, AT, bytes, POLICY_HOST, &moved), 0);
                CHECK_EQ(moved, bytes);
                CHECK_EQ(uvm_model_free_bytes(m, 0), GPU_BYTES);
                CHECK_EQ(uvm_model_free_bytes(m, 1), GPU_BYTES);
                uvm_model_free(m);
        }
        CHECK(over_ns[0] > 4 * over_ns[1]);
}

static struct uvm_trace *make_on(uint32_t gpus, const char *pattern, uint32_t percent,
                                 uint32_t launches, uint64_t seed)
{
        const struct generate_options options = {.pattern = pattern,
                                                 .gpus = gpus,
                                                 .gpu_bytes = GPU_BYTES,
                                                 .percent = percent,
                                                 .launches = launches,
                                                 .seed = seed};
        struct uvm_trace *t;

        CHECK_EQ(generate(&options, &t), 0);
        CHECK_EQ(uvm_trace_gpus(t), gpus ? gpus : 1);
        return t;
}

/* However little memory there is: a trace that runs, or none. */
static void test_small_sizes(void)
{
        static const char *const names[] = {
#define X(name, doc) #name,
                GENERATE_PATTERNS(X)
#undef X
        };
        unsigned made = 0, refused = 0;

        for (size_t i = 0; i < ARRAY_SIZE(names) * 4 * 4; i++) {
                const struct generate_options options = {.pattern = names[i / 16],
                                                         .gpu_bytes = (64 + 32 * (i % 4)) *
                                                                      POLICY_BLOCK_BYTES,
                                                         .percent = 50 + 20 * (uint32_t)(i / 4 % 4),
                                                         .launches = 300};
                const struct replay_options replay_options = {
                        .gpus = 1, .gpu_bytes = options.gpu_bytes, .costs = uvm_costs_h200};
                struct uvm_trace *t = NULL;
                struct replay_result result;
                int r = generate(&options, &t);

                if (r == 0)
                        CHECK_EQ(replay(t, &replay_options, &result), 0);
                else
                        CHECK_EQ(r, -EINVAL);
                made += r == 0;
                refused += r < 0;
                uvm_trace_free(t);
        }
        CHECK(made > refused);
        CHECK(refused >= 32); /* caches that are fed are larger than any of these */
}

static struct replay_result run_gpus(const struct uvm_trace *t, const char *const *policies,
                                     bool optimum)
{
        struct replay_options options = {.gpus = uvm_trace_gpus(t),
                                         .gpu_bytes = GPU_BYTES,
                                         .costs = uvm_costs_h200,
                                         .ahead = 8,
                                         .optimum = optimum};
        struct replay_result result;

        if (policies) {
                options.prepare = load;
                options.finish = look;
                options.data = (void *)policies;
        }
        CHECK_EQ(replay(t, &options, &result), 0);
        return result;
}

/* Each has what it would have alone, with the driver and with the offline optimum. */
static void test_gpus_are_apart(void)
{
        for (int optimum = 0; optimum < 2; optimum++) {
                _cleanup_(uvm_trace_freep) struct uvm_trace *both = make_on(2, "zipf", 200, 300, 7);
                struct replay_result r = run_gpus(both, NULL, optimum);

                for (uint32_t gpu = 0; gpu < 2; gpu++) {
                        _cleanup_(uvm_trace_freep) struct uvm_trace *t =
                                make_on(0, "zipf", 200, 300, 7 + gpu);
                        struct replay_result alone = run_gpus(t, NULL, optimum);

                        CHECK(alone.memory.evictions > 100);
                        CHECK_EQ(r.gpus[gpu].faults, alone.memory.faults);
                        CHECK_EQ(r.gpus[gpu].fetches, alone.memory.fetches);
                        CHECK_EQ(r.gpus[gpu].evictions, alone.memory.evictions);
                        CHECK_EQ(r.gpus[gpu].stall_ns, alone.memory.stall_ns);
                }
                CHECK_EQ(r.memory.fetches, r.gpus[0].fetches + r.gpus[1].fetches);
        }
}

/* No policy that only chooses victims fetches fewer blocks on any of them than the optimum does. */
static void test_optimum_of_each(void)
{
        static const char *const patterns[] = {"zipf", "cyclic", "scans"};
        static const char *const policies[] = {"evict_lru", "evict_lfu", "evict_2q", "evict_mru",
                                               "evict_quota quota_mib=512"};

        for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
                _cleanup_(uvm_trace_freep) struct uvm_trace *t =
                        make_on(3, patterns[i], 150, 300, 1);
                struct replay_result best = run_gpus(t, NULL, true);

                for (size_t k = 0; k < ARRAY_SIZE(policies); k++) {
                        const char *one[3] = {policies[k]};
                        struct replay_result r = run_gpus(t, one, false);

                        for (uint32_t gpu = 0; gpu < 3; gpu++) {
                                CHECK(best.gpus[gpu].fetches > 0);
                                CHECK(r.gpus[gpu].fetches >= best.gpus[gpu].fetches);
                        }
                }
        }
}

/* Orders and quotas of each GPU work on it as they do on one: what wins there wins on each. */
static void test_policies_on_each(void)
{
        static const char *const lru[3] = {"evict_lru"}, *const mru[3] = {"evict_mru"};
        static const char *const quota[3] = {"evict_quota quota_mib=512"};
        _cleanup_(uvm_trace_freep) struct uvm_trace *zipf = make_on(2, "zipf", 200, 1000, 1);
        _cleanup_(uvm_trace_freep) struct uvm_trace *cyclic = make_on(2, "cyclic", 125, 500, 1);
        _cleanup_(uvm_trace_freep) struct uvm_trace *tenants = make_on(2, "tenants", 300, 1000, 1);
        struct replay_result driver, r;

        driver = run_gpus(zipf, NULL, false);
        r = run_gpus(zipf, lru, false);
        for (uint32_t gpu = 0; gpu < 2; gpu++)
                CHECK(r.gpus[gpu].stall_ns < driver.gpus[gpu].stall_ns * 80 / 100);
        driver = run_gpus(cyclic, NULL, false);
        r = run_gpus(cyclic, mru, false);
        for (uint32_t gpu = 0; gpu < 2; gpu++)
                CHECK(r.gpus[gpu].stall_ns < driver.gpus[gpu].stall_ns * 50 / 100);
        /* The critical process of each GPU. */
        driver = run_gpus(tenants, NULL, false);
        r = run_gpus(tenants, quota, false);
        for (uint32_t gpu = 0; gpu < 2; gpu++) {
                CHECK(driver.processes[8 * gpu].stall_ns > 0);
                CHECK(r.processes[8 * gpu].stall_ns < driver.processes[8 * gpu].stall_ns / 5);
        }
}

/* What is handed on from GPU to GPU goes over the link; without one it takes longer. */
static void test_handed_on(void)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = make_on(4, "pipeline", 90, 200, 1);
        struct replay_options options = {
                .gpus = 4, .gpu_bytes = GPU_BYTES, .costs = uvm_costs_h200, .ahead = 8};
        struct replay_result linked = run_gpus(t, NULL, false), apart;

        options.costs.peer_mbps = 0;
        CHECK_EQ(replay(t, &options, &apart), 0);
        for (uint32_t gpu = 0; gpu < 4; gpu++) {
                CHECK(linked.gpus[gpu].peer_bytes > 0);
                CHECK_EQ(linked.gpus[gpu].evictions, 0);
                CHECK_EQ(linked.gpus[gpu].to_host_bytes, 0);
        }
        CHECK_EQ(apart.memory.peer_bytes, linked.memory.peer_bytes);
        CHECK_EQ(apart.memory.to_host_bytes, linked.memory.peer_bytes);
        CHECK(apart.memory.stall_ns > linked.memory.stall_ns);
}

static void test_gpus_repeatable(void)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *a = make_on(3, "zipf", 150, 200, 5);
        _cleanup_(uvm_trace_freep) struct uvm_trace *b = make_on(3, "zipf", 150, 200, 5);
        _cleanup_(uvm_trace_freep) struct uvm_trace *c = make_on(3, "zipf", 150, 200, 6);
        static const char *const policies[3] = {"prefetch_args", "evict_2q"};
        struct replay_result first = run_gpus(a, policies, false);
        struct replay_result second = run_gpus(b, policies, false);

        CHECK_EQ(a->count, b->count);
        CHECK_EQ(memcmp(a->records, b->records, a->count * sizeof(*a->records)), 0);
        CHECK(a->count != c->count ||
              memcmp(a->records, c->records, a->count * sizeof(*a->records)) != 0);
        CHECK_EQ(memcmp(&first, &second, sizeof(first)), 0);
}

/* A trace says the GPU of each launch; what is none, or is not there, is refused. */
static void test_gpus_of_traces(void)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = make_on(2, "cyclic", 90, 10, 1);
        _cleanup_(uvm_trace_freep) struct uvm_trace *parsed = NULL;
        size_t size = sizeof(t->head) + t->count * sizeof(*t->records);
        struct replay_options one = {.gpu_bytes = GPU_BYTES, .costs = uvm_costs_h200};
        _cleanup_free_ char *bytes = malloc(size);
        struct replay_result result;
        char error[200];

        CHECK(bytes);
        memcpy(bytes, &t->head, sizeof(t->head));
        memcpy(bytes + sizeof(t->head), t->records, size - sizeof(t->head));
        CHECK_EQ(uvm_trace_parse(bytes, size, error, sizeof(error), &parsed), 0);
        CHECK_EQ(uvm_trace_gpus(parsed), 2);
        CHECK_EQ(replay(parsed, &one, &result), -ENODEV);
        for (size_t i = 0; i < t->count; i++)
                if (t->records[i].kind == UVM_TRACE_LAUNCH)
                        t->records[i].gpu = UVM_TRACE_GPUS;
        memcpy(bytes + sizeof(t->head), t->records, size - sizeof(t->head));
        parsed = uvm_trace_free(parsed);
        CHECK_EQ(uvm_trace_parse(bytes, size, error, sizeof(error), &parsed), -EBADMSG);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        fixture_policies = argv[1];
        TEST(test_costs);
        TEST(test_two_gpus);
        TEST(test_small_sizes);
        TEST(test_gpus_are_apart);
        TEST(test_handed_on);
        TEST(test_gpus_of_traces);
        fixture_need_bpf();
        TEST(test_repeatable);
        TEST(test_optimum);
        TEST(test_gpus_repeatable);
        TEST(test_optimum_of_each);
        TEST(test_policies_on_each);
        TEST(test_taken);
        TEST(test_comparisons);
        TEST(test_lru);
        return 0;
}
