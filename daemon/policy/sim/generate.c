/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sim/generate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "policies/policy_abi.h"
#include "util/macro.h"

#define BLOCK      ((uint64_t)POLICY_BLOCK_BYTES)
#define PAGE       65536ull
#define BASE       0x700000000000ull
#define PER_LAUNCH 16 /* blocks a kernel works on */
#define KERNEL_NS  200000ull
#define CLUSTER    32 /* blocks */

struct maker {
        struct uvm_trace *trace;
        const struct generate_options *options;
        uint64_t state;
        uint64_t capacity; /* of the GPU, blocks */
        uint64_t blocks;   /* of memory used */
        uint64_t *zipf;    /* cumulative weights */
        bool failed;
        bool too_small; /* the pattern does not fit into so few blocks */
        uint8_t gpu;    /* of launches */
};

/* ---- numbers ---- */

/* splitmix64 */
static uint64_t draw(struct maker *m)
{
        uint64_t z = (m->state += 0x9e3779b97f4a7c15ull);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
}

static uint64_t below(struct maker *m, uint64_t n)
{
        return n ? draw(m) % n : 0;
}

/* Rank r has weight 1 / r, in integers, so that every machine draws the same. */
static bool zipf_init(struct maker *m, uint64_t n)
{
        uint64_t sum = 0;

        m->zipf = calloc(n, sizeof(*m->zipf));
        for (uint64_t i = 0; m->zipf && i < n; i++)
                m->zipf[i] = sum += (1ull << 40) / (i + 1);
        return m->zipf != NULL;
}

static uint64_t zipf(struct maker *m, uint64_t n)
{
        uint64_t at = below(m, m->zipf[n - 1]), low = 0, high = n - 1;

        while (low < high) {
                uint64_t middle = low + (high - low) / 2;

                if (m->zipf[middle] > at)
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

/* Where a rank lives: hot blocks are not neighbours. A bijection for any n. */
static uint64_t scatter(uint64_t rank, uint64_t n)
{
        uint64_t step = n * 618 / 1000 + 1;

        while (step > 1) {
                uint64_t a = step, b = n;

                while (b) {
                        uint64_t rest = a % b;

                        a = b;
                        b = rest;
                }
                if (a == 1)
                        break;
                step--;
        }
        return rank * step % n;
}

/* ---- records ---- */

static void put(struct maker *m, enum uvm_trace_kind kind, uint16_t process, uint64_t address,
                uint64_t bytes, uint64_t ns)
{
        struct uvm_trace_record r = {.kind = (uint8_t)kind,
                                     .process = process,
                                     .address = address,
                                     .bytes = bytes,
                                     .ns = ns};

        if (uvm_trace_add(m->trace, &r) < 0)
                m->failed = true;
}

static void begin(struct maker *m, uint16_t process, const char *name)
{
        char text[16] = {0};
        uint64_t words[2];

        snprintf(text, sizeof(text), "%.15s", name);
        memcpy(words, text, sizeof(words));
        put(m, UVM_TRACE_PROCESS, process, words[0], words[1], 0);
}

static void alloc(struct maker *m, uint16_t process, uint64_t first, uint64_t blocks)
{
        put(m, UVM_TRACE_ALLOC, process, BASE + first * BLOCK, blocks * BLOCK, 0);
}

static void launch(struct maker *m, uint16_t process)
{
        const struct uvm_trace_record r = {
                .kind = UVM_TRACE_LAUNCH, .gpu = m->gpu, .process = process, .ns = KERNEL_NS};

        if (uvm_trace_add(m->trace, &r) < 0)
                m->failed = true;
}

static void given(struct maker *m, uint16_t process, uint64_t first, uint64_t blocks)
{
        put(m, UVM_TRACE_RANGE, process, BASE + first * BLOCK, blocks * BLOCK, 0);
}

static void touch(struct maker *m, uint16_t process, uint64_t first, uint64_t blocks)
{
        put(m, UVM_TRACE_TOUCH, process, BASE + first * BLOCK, blocks * BLOCK, 0);
}

static void one_process(struct maker *m)
{
        begin(m, 0, m->trace->head.pattern);
        alloc(m, 0, 0, m->blocks);
}

/* ---- patterns ---- */

static void make_zipf(struct maker *m)
{
        one_process(m);
        if (!zipf_init(m, m->blocks)) {
                m->failed = true;
                return;
        }
        for (uint32_t i = 0; i < m->options->launches; i++) {
                uint64_t at[PER_LAUNCH];

                launch(m, 0);
                for (int k = 0; k < PER_LAUNCH; k++) {
                        at[k] = scatter(zipf(m, m->blocks), m->blocks);
                        given(m, 0, at[k], 1);
                }
                for (int k = 0; k < PER_LAUNCH; k++)
                        touch(m, 0, at[k], 1);
        }
}

static void work(struct maker *m, uint16_t process, uint64_t first, uint64_t blocks)
{
        launch(m, process);
        given(m, process, first, blocks);
        touch(m, process, first, blocks);
}

/* Whether so many blocks are used at least; without them there is no such pattern. */
static bool has_blocks(struct maker *m, uint64_t least)
{
        m->too_small = m->blocks < least;
        return !m->too_small;
}

static void make_cyclic(struct maker *m)
{
        uint64_t steps = m->blocks / PER_LAUNCH;

        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i++)
                work(m, 0, i % steps * PER_LAUNCH, PER_LAUNCH);
}

static void make_streaming(struct maker *m)
{
        one_process(m);
        for (uint64_t b = 0; b + PER_LAUNCH <= m->blocks; b += PER_LAUNCH) {
                launch(m, 0);
                given(m, 0, 0, m->blocks);
                touch(m, 0, b, PER_LAUNCH);
        }
}

static void make_strided(struct maker *m)
{
        const uint64_t stride = 3;

        one_process(m);
        for (uint64_t phase = 0; phase < stride; phase++) {
                for (uint64_t b = phase; b + 4 * stride <= m->blocks; b += 4 * stride) {
                        launch(m, 0);
                        given(m, 0, 0, m->blocks);
                        for (uint64_t k = 0; k < 4; k++)
                                touch(m, 0, b + k * stride, 1);
                }
        }
}

static void make_random(struct maker *m)
{
        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                launch(m, 0);
                given(m, 0, 0, m->blocks);
                for (int k = 0; k < PER_LAUNCH; k++)
                        put(m, UVM_TRACE_TOUCH, 0,
                            BASE + below(m, m->blocks * (BLOCK / PAGE)) * PAGE, 4096, 0);
        }
}

/* Forth and back over the layers, as training does. */
static void make_layers(struct maker *m)
{
        uint64_t layers = m->blocks / PER_LAUNCH;

        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                uint64_t at = i % (2 * layers);

                work(m, 0, (at < layers ? at : 2 * layers - 1 - at) * PER_LAUNCH, PER_LAUNCH);
        }
}

static void shuffle(struct maker *m, uint16_t *order, uint16_t n)
{
        for (uint16_t i = 0; i < n; i++)
                order[i] = i;
        for (uint16_t i = (uint16_t)(n - 1); i > 0; i--) {
                uint16_t k = (uint16_t)below(m, i + 1u), swap = order[i];

                order[i] = order[k];
                order[k] = swap;
        }
}

static void make_clusters(struct maker *m)
{
        uint64_t clusters = m->blocks / CLUSTER;
        uint16_t order[CLUSTER];

        one_process(m);
        for (uint64_t c = 0; c < clusters; c++) {
                uint64_t at = scatter(c, clusters) * CLUSTER;

                shuffle(m, order, CLUSTER);
                for (int k = 0; k < CLUSTER; k++) {
                        if (k % 4 == 0)
                                launch(m, 0);
                        touch(m, 0, at + order[k], 1);
                }
        }
}

/* Half of the GPU is hot; each 64th launch begins a sweep of 16 over the rest. */
static void make_scans(struct maker *m)
{
        uint64_t hot = m->capacity / 2, swept = 0;

        if (!has_blocks(m, hot + 2 * PER_LAUNCH + 1))
                return;
        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                if (i % 64 < 16) {
                        uint64_t at =
                                hot + swept++ * 2 * PER_LAUNCH % (m->blocks - hot - 2 * PER_LAUNCH);

                        work(m, 0, at, 2 * PER_LAUNCH);
                        continue;
                }
                work(m, 0, below(m, hot / PER_LAUNCH) * PER_LAUNCH, PER_LAUNCH);
        }
}

/* Each phase works on its own half a GPU, long enough for counts to grow. */
static void make_shift(struct maker *m)
{
        uint64_t hot = m->capacity * 3 / 4 / PER_LAUNCH;
        uint32_t phase = m->options->launches / 4 + 1;

        if (!has_blocks(m, hot * PER_LAUNCH))
                return;
        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                uint64_t first = i / phase * (m->blocks / PER_LAUNCH - hot) / 3;

                work(m, 0, (first + below(m, hot)) * PER_LAUNCH, PER_LAUNCH);
        }
}

/*
 * Weights take a third of the GPU and are used in each step. Four sequences
 * append a block every eighth step and attend to their last sixteen blocks; one
 * step in fifty looks back at an old one.
 */
static void make_kv(struct maker *m)
{
        const uint64_t sequences = 4, window = 16;
        uint64_t weights = m->capacity / 3, room = (m->blocks - weights) / sequences;

        if (!has_blocks(m, weights + sequences))
                return;
        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                uint64_t grown = i / 8 % room + 1, s = i % sequences;
                uint64_t first = weights + s * room;
                uint64_t from = grown > window ? grown - window : 0;

                launch(m, 0);
                given(m, 0, 0, weights);
                given(m, 0, first, room);
                touch(m, 0, i * 8ull % (weights - 7), 8);
                touch(m, 0, first + from, grown - from);
                if (below(m, 50) == 0)
                        put(m, UVM_TRACE_TOUCH, 0, BASE + (first + below(m, grown)) * BLOCK, PAGE,
                            0);
        }
}

/* Four caches that together grow to all of the memory, each read from its beginning. */
static void make_attention(struct maker *m)
{
        const uint64_t sequences = 4;
        uint64_t room = m->blocks / sequences;

        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                uint64_t grown = (uint64_t)i * room / m->options->launches + 1;
                uint64_t first = i % sequences * room;

                launch(m, 0);
                given(m, 0, first, grown);
                touch(m, 0, first, grown);
        }
}

static void make_comb(struct maker *m)
{
        uint64_t teeth = m->blocks / 3;

        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                launch(m, 0);
                given(m, 0, 0, m->blocks);
                for (uint64_t k = 0; k < PER_LAUNCH; k++)
                        touch(m, 0, (i * (uint64_t)PER_LAUNCH + k) % teeth * 3, 2);
        }
}

static void make_runs(struct maker *m)
{
        uint64_t places = m->blocks / 4;

        one_process(m);
        if (!zipf_init(m, places)) {
                m->failed = true;
                return;
        }
        for (uint32_t i = 0; i < m->options->launches; i += 4) {
                uint64_t at = scatter(zipf(m, places), places) * 4;

                for (uint64_t k = 0; k < 4; k++) {
                        launch(m, 0);
                        given(m, 0, 0, m->blocks);
                        touch(m, 0, at + k, 1);
                }
        }
}

static void make_squatter(struct maker *m)
{
        uint64_t squat = m->capacity * 3 / 4, other = m->capacity / 2 / PER_LAUNCH * PER_LAUNCH;

        begin(m, 0, "critical");
        begin(m, 1, "batch");
        alloc(m, 0, 0, squat);
        alloc(m, 1, squat, other);
        work(m, 0, 0, squat);
        for (uint32_t i = 1; i < m->options->launches; i++)
                work(m, 1, squat + i * (uint64_t)PER_LAUNCH % other, PER_LAUNCH);
}

static void make_graph(struct maker *m)
{
        uint64_t vertices = m->capacity / 4, edges = m->blocks - vertices;

        begin(m, 0, "graph");
        alloc(m, 0, 0, vertices);
        alloc(m, 0, vertices, edges);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                launch(m, 0);
                given(m, 0, 0, vertices);
                given(m, 0, vertices, edges);
                touch(m, 0, i * 8ull % (vertices - 7), 8);
                for (int k = 0; k < 32; k++)
                        put(m, UVM_TRACE_TOUCH, 0,
                            BASE + (vertices * (BLOCK / PAGE) + below(m, edges * (BLOCK / PAGE))) *
                                            PAGE,
                            256, 0);
        }
}

/* Process 0 uses a quarter of the GPU, all of it, each 32nd launch; 1 streams. */
static void make_tenants(struct maker *m)
{
        uint64_t small = m->capacity / 4, large = m->blocks - small, at = 0;

        if (!has_blocks(m, small + PER_LAUNCH + 1))
                return;
        begin(m, 0, "critical");
        begin(m, 1, "batch");
        alloc(m, 0, 0, small);
        alloc(m, 1, small, large);
        for (uint32_t i = 0; i < m->options->launches; i++) {
                if (i % 32 == 0) {
                        work(m, 0, 0, small);
                        continue;
                }
                work(m, 1, small + at, PER_LAUNCH);
                at = (at + PER_LAUNCH) % (large - PER_LAUNCH);
        }
}

/*
 * Three caches in turn: the host writes 32 layers of eight blocks, then kernels read of
 * each layer so many blocks, a few times. The host writes 5 GB/s.
 */
static void feed(struct maker *m, uint64_t read)
{
        const uint64_t layers = 32, written = 8, write_ns = BLOCK / 5;
        uint64_t room = m->blocks / 3 / layers;

        if (!has_blocks(m, 3 * layers * written))
                return;
        one_process(m);
        for (uint32_t i = 0; i < m->options->launches; i += (uint32_t)layers * 4) {
                uint64_t first = i / (layers * 4) % 3 * room * layers;

                for (uint64_t k = 0; k < layers * written; k++) {
                        uint64_t at = first + k / written * room + k % written;

                        put(m, UVM_TRACE_HOST, 0, BASE + at * BLOCK, BLOCK, 0);
                        put(m, UVM_TRACE_IDLE, 0, 0, 0, write_ns);
                }
                for (uint64_t k = 0; k < layers * 4; k++)
                        work(m, 0, first + k % layers * room, read);
        }
}

static void make_fed(struct maker *m)
{
        feed(m, 8);
}

static void make_scraps(struct maker *m)
{
        feed(m, 1);
}

/*
 * Each GPU has layers of its own, all of which a step uses, in order; what it works out, a ring of
 * activations of PER_LAUNCH blocks a step, the next GPU reads before anything else.
 */
static void make_pipeline(struct maker *m)
{
        uint32_t gpus = m->options->gpus ? m->options->gpus : 1;
        uint64_t ring = 4 * PER_LAUNCH, layers = (m->blocks - ring) / PER_LAUNCH;
        uint32_t at[UVM_TRACE_GPUS] = {0};

        if (!has_blocks(m, ring + PER_LAUNCH))
                return;
        begin(m, 0, m->trace->head.pattern);
        alloc(m, 0, 0, ring);
        for (uint64_t gpu = 0; gpu < gpus; gpu++)
                alloc(m, 0, ring + gpu * layers * PER_LAUNCH, layers * PER_LAUNCH);
        for (uint32_t i = 0; i < m->options->launches * gpus; i++) {
                uint64_t stage = i / 4, activation = stage / gpus % 4 * PER_LAUNCH;
                uint64_t first;

                m->gpu = (uint8_t)(stage % gpus);
                first = ring + (m->gpu * layers + at[m->gpu]++ % layers) * PER_LAUNCH;
                launch(m, 0);
                given(m, 0, activation, PER_LAUNCH);
                given(m, 0, first, PER_LAUNCH);
                touch(m, 0, activation, PER_LAUNCH);
                touch(m, 0, first, PER_LAUNCH);
        }
}

/* ---- several GPUs ---- */

#define PROCESSES_EACH 8

/* The next launch of a trace with all that belongs to it, or what is before the first. */
static size_t copy_step(struct maker *m, const struct uvm_trace *from, size_t at, uint8_t gpu)
{
        bool launched = false;

        for (; at < from->count; at++) {
                struct uvm_trace_record r = from->records[at];

                if (r.kind == UVM_TRACE_LAUNCH) {
                        if (launched)
                                break;
                        launched = true;
                        r.gpu = gpu;
                }
                r.process = (uint16_t)(r.process + gpu * PROCESSES_EACH);
                if (uvm_trace_add(m->trace, &r) < 0)
                        m->failed = true;
        }
        return at;
}

static void take_turns(struct maker *m, struct uvm_trace *const *traces, uint32_t gpus)
{
        size_t at[UVM_TRACE_GPUS] = {0};
        bool more = true;

        while (more && !m->failed) {
                more = false;
                for (uint32_t gpu = 0; gpu < gpus; gpu++) {
                        at[gpu] = copy_step(m, traces[gpu], at[gpu], (uint8_t)gpu);
                        more = more || at[gpu] < traces[gpu]->count;
                }
        }
}

static void make_each(struct maker *m, void (*make)(struct maker *m), uint32_t gpus)
{
        struct uvm_trace *traces[UVM_TRACE_GPUS] = {0};

        for (uint32_t gpu = 0; gpu < gpus && !m->failed; gpu++) {
                struct maker one = *m;

                one.trace = traces[gpu] = uvm_trace_new(m->options->pattern, m->options->seed);
                one.state = m->state + gpu;
                if (one.trace)
                        make(&one);
                free(one.zipf);
                m->failed = !one.trace || one.failed;
                m->too_small = one.too_small;
        }
        if (!m->failed)
                take_turns(m, traces, gpus);
        for (uint32_t gpu = 0; gpu < gpus; gpu++)
                uvm_trace_free(traces[gpu]);
}

/* ---- choosing ---- */

static const struct {
        const char *name;
        void (*make)(struct maker *m);
} patterns[] = {
#define X(name, doc) {#name, make_##name},
        GENERATE_PATTERNS(X)
#undef X
};

static void make(struct maker *m, void (*make_one)(struct maker *m))
{
        if (m->options->gpus > 1 && make_one != make_pipeline)
                make_each(m, make_one, m->options->gpus);
        else
                make_one(m);
}

static bool sizes_make_sense(const struct generate_options *o)
{
        return o->gpu_bytes >= 64 * BLOCK && o->gpu_bytes <= 1ull << 40 && o->percent >= 50 &&
               o->percent <= 1000 && o->launches >= 1 && o->launches <= 1000000 &&
               o->gpus <= UVM_TRACE_GPUS;
}

int generate(const struct generate_options *options, struct uvm_trace **ret_trace)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = NULL;
        struct maker m = {.options = options, .state = options->seed};

        if (!sizes_make_sense(options))
                return -EINVAL;
        m.capacity = options->gpu_bytes / BLOCK;
        m.blocks = m.capacity * options->percent / 100 / CLUSTER * CLUSTER;
        for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
                if (strcmp(patterns[i].name, options->pattern) != 0)
                        continue;
                t = m.trace = uvm_trace_new(options->pattern, options->seed);
                if (!t)
                        return -ENOMEM;
                make(&m, patterns[i].make);
                free(m.zipf);
                if (m.failed || m.too_small)
                        return m.failed ? -ENOMEM : -EINVAL;
                *ret_trace = TAKE_PTR(t);
                return 0;
        }
        return -ENOENT;
}
