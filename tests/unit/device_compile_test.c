/* SPDX-License-Identifier: Apache-2.0 */

/* Parts of the device compiler that need no kernel. */
#include <errno.h>
#include <stdbool.h>

#include "device/compile.h"
#include "device/device_abi.h"
#include "device/flow_span.h"
#include "device/flow_stack.h"
#include "device/insn.h"
#include "device/section.h"
#include "device/tnum.h"
#include "device/verify.h"
#include "unit/test.h"

/* Tracked numbers: every pair of 4-bit abstract values, against every concrete pair. */

static bool contains(struct tnum t, uint64_t v)
{
        return (v & ~t.mask) == t.value;
}

static void check_pair(struct tnum a, struct tnum b)
{
        for (uint64_t x = 0; x < 16; x++) {
                if (!contains(a, x))
                        continue;
                CHECK(contains(tnum_union(a, b), x));
                CHECK(contains(tnum_union(b, a), x));
                for (uint64_t y = 0; y < 16; y++) {
                        struct tnum both;

                        if (!contains(b, y))
                                continue;
                        CHECK(contains(tnum_add(a, b), x + y));
                        CHECK(contains(tnum_sub(a, b), x - y));
                        CHECK(contains(tnum_mul(a, b), x * y));
                        CHECK(contains(tnum_and(a, b), x & y));
                        CHECK(contains(tnum_or(a, b), x | y));
                        CHECK(contains(tnum_xor(a, b), x ^ y));
                        if (x == y)
                                CHECK(tnum_intersect(a, b, &both) && contains(both, x));
                }
        }
}

static void test_tnum_is_sound(void)
{
        for (uint64_t am = 0; am < 16; am++)
                for (uint64_t av = 0; av < 16; av++)
                        for (uint64_t bm = 0; bm < 16; bm++)
                                for (uint64_t bv = 0; bv < 16; bv++)
                                        if (!(am & av) && !(bm & bv))
                                                check_pair((struct tnum){av, am},
                                                           (struct tnum){bv, bm});
}

static void test_tnum_is_sound_with_64_bits(void)
{
        uint64_t seed = 3;

        for (unsigned i = 0; i < 200000; i++) {
                uint64_t x = test_random(&seed), y = test_random(&seed);
                uint64_t am = test_random(&seed) & test_random(&seed), bm = test_random(&seed);
                struct tnum a = {x & ~am, am}, b = {y & ~bm, bm};

                CHECK(contains(tnum_add(a, b), x + y));
                CHECK(contains(tnum_sub(a, b), x - y));
                CHECK(contains(tnum_mul(a, b), x * y));
                CHECK(contains(tnum_low32(a), (uint32_t)x));
                CHECK(contains(tnum_lsh(a, y & 63), x << (y & 63)));
                CHECK(contains(tnum_rsh(a, y & 63), x >> (y & 63)));
                CHECK(contains(tnum_extend_sign(a, 8), (uint64_t)(int64_t)(int8_t)x));
                CHECK(contains(tnum_extend_sign(a, 16), (uint64_t)(int64_t)(int16_t)x));
                CHECK(contains(tnum_extend_sign(a, 32), (uint64_t)(int64_t)(int32_t)x));
                CHECK(x % tnum_alignment(a, 256) == 0);
                CHECK(tnum_min(a) <= x && x <= tnum_max(a));
        }
        CHECK_EQ(tnum_alignment(tnum_const(0), 256), 256);
        CHECK_EQ(tnum_alignment(tnum_lsh(TNUM_UNKNOWN, 5), 256), 32);
}

/* Addresses that are sums, and one or the other, against all that they can be. */
static struct value stack_at(int64_t distance)
{
        return (struct value){.kind = VALUE_STACK, .num = tnum_const((uint64_t)distance)};
}

static bool spans(const struct value *address, int64_t distance)
{
        struct span s = flow_span(address);

        return contains(address->num, (uint64_t)distance) && s.first <= distance &&
               distance <= s.last;
}

static void test_spans_are_sound(void)
{
        uint64_t seed = 11;

        for (unsigned i = 0; i < 200000; i++) {
                int64_t at[2];
                struct value address[2];

                for (unsigned k = 0; k < 2; k++) {
                        at[k] = -(int64_t)(test_random(&seed) % 512);
                        address[k] = stack_at(at[k]);
                        for (unsigned n = test_random(&seed) % 4; n; n--) {
                                uint64_t mask = test_random(&seed) >> test_random(&seed) % 64;
                                uint64_t x = test_random(&seed) >> test_random(&seed) % 64;
                                bool back = test_random(&seed) & 1;

                                flow_move_address(&address[k], (struct tnum){x & ~mask, mask},
                                                  back);
                                at[k] = (int64_t)((uint64_t)at[k] + (back ? -x : x));
                        }
                }
                for (unsigned k = 0; k < 2; k++)
                        if (at[k] > -SPAN_FAR && at[k] < SPAN_FAR)
                                CHECK(spans(&address[k], at[k]));
                value_join(&address[0], &address[1]);
                for (unsigned k = 0; k < 2; k++)
                        if (at[k] > -SPAN_FAR && at[k] < SPAN_FAR)
                                CHECK(spans(&address[0], at[k]));
        }
}

/* An array that begins at no multiple of its size; what moves in a loop; two variables. */
static void test_spans_are_narrow(void)
{
        struct value array = stack_at(-72), moving = stack_at(-72), other = stack_at(-16);

        flow_move_address(&array, (struct tnum){0, 0x38}, false);
        CHECK_EQ(flow_span(&array).first, -72);
        CHECK_EQ(flow_span(&array).last, -16);
        CHECK(value_join(&moving, &other));
        CHECK_EQ(flow_span(&moving).first, -72);
        CHECK_EQ(flow_span(&moving).last, -16);
        value_join(&moving, &array);
        CHECK_EQ(flow_span(&moving).last, -16);
        for (unsigned rounds = 0; rounds < 100; rounds++) {
                struct value next = moving;

                flow_move_address(&next, tnum_const(8), false);
                value_join(&moving, &next);
        }
        CHECK_EQ(flow_span(&moving).last, SPAN_FAR);
}

static void test_map_sizes(void)
{
        struct device_map_info map = {
                .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 12, .max_entries = 3};

        CHECK_EQ(device_map_stride(&map), 16);
        CHECK_EQ(device_map_bytes(&map), 48);
        map.spread = DEVICE_PER_THREAD;
        CHECK_EQ(device_map_bytes(&map), 48ULL * DEVICE_SMS_MAX * DEVICE_WARPS_MAX * 32);
        map.spread = DEVICE_SHARED;
        map.type = BPF_MAP_TYPE_HASH;
        CHECK_EQ(device_map_stride(&map), 32);
        CHECK_EQ(device_map_bytes(&map), 64 + 8 * 32); /* 3 entries: 8 slots */
        map.max_entries = UINT32_MAX;
        map.value_size = UINT32_MAX;
        CHECK_EQ(device_map_bytes(&map), UINT64_MAX);
        CHECK_EQ(device_hash_bits(1), 1);
        CHECK_EQ(device_hash_bits(2), 2);
        CHECK_EQ(device_hash_bits(1024), 11);
        CHECK_EQ(device_hash_bits(1025), 12);
        CHECK_EQ(device_hash_bits(UINT32_MAX), 33);
}

static void test_section_names(void)
{
        static const struct {
                const char *name;
                enum device_where where;
                enum device_scope scope;
        } good[] = {
                {"gpu/entry", DEVICE_ENTRY, DEVICE_SCOPE_BLOCK},
                {"gpu/exit", DEVICE_EXIT, DEVICE_SCOPE_BLOCK},
                {"gpu/entry.grid", DEVICE_ENTRY, DEVICE_SCOPE_GRID},
                {"gpu/exit.block", DEVICE_EXIT, DEVICE_SCOPE_BLOCK},
                {"gpu/exit.warp", DEVICE_EXIT, DEVICE_SCOPE_WARP},
                {"gpu/entry.thread", DEVICE_ENTRY, DEVICE_SCOPE_THREAD},
                {"gpu/mem", DEVICE_MEM, DEVICE_SCOPE_WARP},
                {"gpu/mem.warp", DEVICE_MEM, DEVICE_SCOPE_WARP},
                {"gpu/mem.thread", DEVICE_MEM, DEVICE_SCOPE_THREAD},
        };
        static const char *const bad[] = {"",
                                          "gpu",
                                          "gpu/",
                                          "gpu/entr",
                                          "gpu/entry.",
                                          "gpu/entry.grids",
                                          "gpu/entry.gri",
                                          "gpu/entry.grid.x",
                                          "gpu/entry/",
                                          "gpu/entry/grid",
                                          "gpu/entry.grid/x",
                                          "gpu/mem.grid",
                                          "gpu/mem.block",
                                          "gpu/memory",
                                          "uprobe/entry",
                                          "GPU/entry"};
        struct section section;
        char error[256];

        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                CHECK_EQ(section_parse(good[i].name, error, sizeof(error), &section), 0);
                CHECK_EQ(section.where, good[i].where);
                CHECK_EQ(section.scope, good[i].scope);
        }
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                const struct section before = section;

                error[0] = 0;
                CHECK_EQ(section_parse(bad[i], error, sizeof(error), &section), -EINVAL);
                CHECK(error[0]);
                CHECK(memcmp(&section, &before, sizeof(before)) == 0);
        }
}

static void test_verifier_log(void)
{
        char message[64];
        size_t insn = 99;

        CHECK_EQ(verify_read_log("0: R1=ctx() R10=fp0\n"
                                 "; int probe(struct ctx *ctx) @ x.bpf.c:3\n"
                                 "0: (b7) r0 = 0                        ; R0_w=0\n"
                                 "17: (79) r1 = *(u64 *)(r0 +0)\n"
                                 "R0 invalid mem access 'scalar'\n"
                                 "processed 2 insns (limit 1000000) max_states_per_insn 0\n",
                                 message, sizeof(message), &insn),
                 0);
        CHECK_STR(message, "R0 invalid mem access 'scalar'");
        CHECK_EQ(insn, 17);
        CHECK_EQ(verify_read_log("", message, sizeof(message), &insn), -ENOENT);
        CHECK_EQ(verify_read_log("processed 0 insns\n", message, sizeof(message), &insn), -ENOENT);
        CHECK_EQ(verify_read_log("no newline", message, sizeof(message), &insn), 0);
        CHECK_STR(message, "no newline");
        CHECK_EQ(insn, 0);
        CHECK_EQ(verify_read_depth(""), 0);
        CHECK_EQ(verify_read_depth("verification time 90 usec\nstack depth 24\nprocessed 6"), 24);
        CHECK_EQ(verify_read_depth("stack depth 0+136+16\n"), 136);
        CHECK_EQ(verify_read_depth("stack depth +"), 0);
}

/* The compiler on hand-made programs. */

static const struct device_map_info maps[] = {
        {.name = "pairs",
         .placement = GPUOBS_PLACE_DEVICE,
         .type = BPF_MAP_TYPE_ARRAY,
         .key_size = 4,
         .value_size = 16,
         .max_entries = 8,
         .bytes = 128},
        {.name = "odd",
         .placement = GPUOBS_PLACE_DEVICE,
         .type = BPF_MAP_TYPE_ARRAY,
         .key_size = 4,
         .value_size = 24,
         .max_entries = 8,
         .bytes = 192},
};

#define LOAD_MAP(map)                                                                              \
        {.code = BPF_LD | BPF_IMM | BPF_DW,                                                        \
         .dst_reg = BPF_REG_1,                                                                     \
         .src_reg = BPF_PSEUDO_MAP_FD,                                                             \
         .imm = map},                                                                              \
        {                                                                                          \
        }
/* r0 = the element of `map` at the key in r3 */
#define LOOKUP(map)                                                                                \
        {.code = BPF_STX | BPF_MEM | BPF_W,                                                        \
         .dst_reg = BPF_REG_10,                                                                    \
         .src_reg = BPF_REG_3,                                                                     \
         .off = -4},                                                                               \
                {.code = BPF_ALU64 | BPF_MOV | BPF_X,                                              \
                 .dst_reg = BPF_REG_2,                                                             \
                 .src_reg = BPF_REG_10},                                                           \
                {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},            \
                LOAD_MAP(map),                                                                     \
        {                                                                                          \
                .code = BPF_JMP | BPF_CALL, .imm = INSN_HELPER_MAP_LOOKUP                          \
        }
#define MOV(reg, value)                                                                            \
        {                                                                                          \
                .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = reg, .imm = value                  \
        }
#define STORE(offset, value)                                                                       \
        {                                                                                          \
                .code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_0, .off = offset,            \
                .imm = value                                                                       \
        }
#define NULL_CHECK(over)                                                                           \
        {                                                                                          \
                .code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .off = over               \
        }
#define SMID                                                                                       \
        {                                                                                          \
                .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_1,     \
                .off = offsetof(struct gpuobs_kernel_ctx, smid)                                    \
        }
#define EXIT                                                                                       \
        {                                                                                          \
                .code = BPF_JMP | BPF_EXIT                                                         \
        }

static unsigned known_depth; /* of the stack */

static unsigned stack_depth(void *data)
{
        return known_depth;
}

static struct text compile(const struct bpf_insn *insns, size_t count, enum device_where where)
{
        struct compile_job job = {.insns = insns,
                                  .count = count,
                                  .maps = maps,
                                  .map_count = ARRAY_SIZE(maps),
                                  .where = where,
                                  .scope = DEVICE_SCOPE_BLOCK,
                                  .stack_depth = stack_depth};
        struct device_cost cost;
        struct refusal refusal;
        struct text text = {};
        int error = device_compile(&job, &refusal, &text, &cost);

        if (error)
                fprintf(stderr, "%zu: %s\n", refusal.insn, refusal.reason);
        CHECK_EQ(error, 0);
        return text;
}

static void check_refused(const struct bpf_insn *insns, size_t count, const char *reason)
{
        struct compile_job job = {.insns = insns,
                                  .count = count,
                                  .maps = maps,
                                  .map_count = ARRAY_SIZE(maps),
                                  .where = DEVICE_ENTRY,
                                  .scope = DEVICE_SCOPE_BLOCK};
        struct device_cost cost;
        struct refusal refusal;
        struct text text = {};

        CHECK_EQ(device_compile(&job, &refusal, &text, &cost), -ENOTSUP);
        if (!strstr(refusal.reason, reason))
                fprintf(stderr, "\"%s\" expected, got \"%s\"\n", reason, refusal.reason);
        CHECK(strstr(refusal.reason, reason));
        text_done(&text);
}

/* A key that is known needs neither a bounds check nor a NULL check. */
static void test_constant_key_folds(void)
{
        static const struct bpf_insn insns[] = {MOV(BPF_REG_3, 5), LOOKUP(0), NULL_CHECK(1),
                                                STORE(0, 1), EXIT};
        struct text t = compile(insns, ARRAY_SIZE(insns), DEVICE_ENTRY);

        CHECK(strstr(t.data, "add.s64 %b0, %d0, 80") || strstr(t.data, ", 80;"));
        CHECK(!strstr(t.data, "selp") && !strstr(t.data, "%p0"));
        text_done(&t);
}

static void test_unknown_key_is_checked(void)
{
        static const struct bpf_insn insns[] = {SMID, LOOKUP(0), NULL_CHECK(1), STORE(0, 1), EXIT};
        struct text t = compile(insns, ARRAY_SIZE(insns), DEVICE_ENTRY);

        CHECK(strstr(t.data, "setp.ge.u32"));
        CHECK(strstr(t.data, ", 8;"));
        CHECK(strstr(t.data, "selp.b64 %b0, 0, %b0"));
        CHECK(strstr(t.data, "setp.eq.u64"));
        text_done(&t);
}

/* A key masked to the size of the map needs no check either. */
static void test_masked_key_is_not_checked(void)
{
        static const struct bpf_insn insns[] = {
                SMID,        {.code = BPF_ALU | BPF_AND | BPF_K, .dst_reg = BPF_REG_3, .imm = 7},
                LOOKUP(0),   NULL_CHECK(1),
                STORE(0, 1), EXIT};
        struct text t = compile(insns, ARRAY_SIZE(insns), DEVICE_ENTRY);

        CHECK(!strstr(t.data, "selp") && !strstr(t.data, "setp.eq.u64"));
        text_done(&t);
}

/* NVIDIA's compiler must not see numbers whose negative it gets wrong (ptx_alu.c). */
static void test_misread_numbers_are_hidden(void)
{
        static const struct bpf_insn insns[] = {
                SMID,
                {.code = BPF_ALU | BPF_SUB | BPF_K, .dst_reg = BPF_REG_3, .imm = INT32_MAX},
                {.code = BPF_ALU | BPF_ADD | BPF_K, .dst_reg = BPF_REG_3, .imm = 5},
                MOV(BPF_REG_4, INT32_MAX),
                {.code = BPF_ALU | BPF_SUB | BPF_X, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_4},
                LOOKUP(0),
                NULL_CHECK(1),
                STORE(0, 1),
                EXIT};
        struct text t = compile(insns, ARRAY_SIZE(insns), DEVICE_ENTRY);

        CHECK(!strstr(t.data, ", 2147483647;\n\tcvt"));
        CHECK(strstr(t.data, ", %z;"));
        CHECK(strstr(t.data, "0x7fffffff;\n\tor.b64 %b4, %b4, %zl;"));
        CHECK(strstr(t.data, ", 5;"));
        text_done(&t);
}

static unsigned occurrences(const char *text, const char *what)
{
        unsigned n = 0;

        while ((text = strstr(text, what))) {
                n++;
                text++;
        }
        return n;
}

/* Two stores become one where 16 bytes are aligned, in either order, and only there. */
static void test_stores_pair(void)
{
        static const struct bpf_insn up[] = {SMID,        LOOKUP(0),   NULL_CHECK(2),
                                             STORE(0, 1), STORE(8, 2), EXIT};
        static const struct bpf_insn down[] = {SMID,        LOOKUP(0),   NULL_CHECK(2),
                                               STORE(8, 2), STORE(0, 1), EXIT};
        static const struct bpf_insn crossing[] = {MOV(BPF_REG_3, 1), LOOKUP(1), STORE(0, 1),
                                                   STORE(8, 2), EXIT};
        static const struct bpf_insn aligned[] = {MOV(BPF_REG_3, 1), LOOKUP(1), STORE(8, 1),
                                                  STORE(16, 2), EXIT};
        struct text t = compile(up, ARRAY_SIZE(up), DEVICE_ENTRY);

        CHECK_EQ(occurrences(t.data, "st.global.v2.u64"), 1);
        CHECK_EQ(occurrences(t.data, "st.global"), 1);
        text_done(&t);
        t = compile(down, ARRAY_SIZE(down), DEVICE_ENTRY);
        CHECK_EQ(occurrences(t.data, "st.global.v2.u64"), 1);
        CHECK(strstr(t.data, "+0], {"));
        text_done(&t);
        /* element 1 of 24-byte elements starts at 24: 24 and 32 do not pair, 32 and 40 do */
        t = compile(crossing, ARRAY_SIZE(crossing), DEVICE_ENTRY);
        CHECK_EQ(occurrences(t.data, "st.global.v2.u64"), 0);
        CHECK_EQ(occurrences(t.data, "st.global.u64"), 2);
        text_done(&t);
        t = compile(aligned, ARRAY_SIZE(aligned), DEVICE_ENTRY);
        CHECK_EQ(occurrences(t.data, "st.global.v2.u64"), 1);
        text_done(&t);
}

/* An atomic whose old value is not wanted does not wait for it. */
static void test_atomics(void)
{
        static const struct bpf_insn add[] = {MOV(BPF_REG_3, 1),
                                              LOOKUP(0),
                                              MOV(BPF_REG_6, 1),
                                              {.code = BPF_STX | BPF_ATOMIC | BPF_DW,
                                               .dst_reg = BPF_REG_0,
                                               .src_reg = BPF_REG_6,
                                               .imm = BPF_ADD},
                                              EXIT};
        static const struct bpf_insn fetch[] = {MOV(BPF_REG_3, 1),
                                                LOOKUP(0),
                                                MOV(BPF_REG_6, 1),
                                                {.code = BPF_STX | BPF_ATOMIC | BPF_W,
                                                 .dst_reg = BPF_REG_0,
                                                 .src_reg = BPF_REG_6,
                                                 .imm = BPF_XCHG},
                                                EXIT};
        struct text t = compile(add, ARRAY_SIZE(add), DEVICE_ENTRY);

        CHECK(strstr(t.data, "red.global.gpu.add.u64"));
        CHECK(!strstr(t.data, "atom."));
        text_done(&t);
        t = compile(fetch, ARRAY_SIZE(fetch), DEVICE_ENTRY);
        CHECK(strstr(t.data, "atom.global.gpu.exch.b32"));
        text_done(&t);
}

/* Exit programs keep values apart per lane and have no branch that may diverge but the leader's. */
static void test_exit_is_lane_dependent(void)
{
        static const struct bpf_insn insns[] = {SMID, LOOKUP(0), NULL_CHECK(1), STORE(0, 1), EXIT};
        struct text entry = compile(insns, ARRAY_SIZE(insns), DEVICE_ENTRY);
        struct text exit_ = compile(insns, ARRAY_SIZE(insns), DEVICE_EXIT);

        CHECK(!strstr(entry.data, "shf.l.wrap.b32"));
        CHECK(strstr(exit_.data, "shf.l.wrap.b32"));
        CHECK_EQ(occurrences(exit_.data, " bra G@U@_end"), 1);
        CHECK(strstr(exit_.data, "bra.uni"));
        text_done(&entry);
        text_done(&exit_);
}

#define MASK(value)                                                                                \
        {                                                                                          \
                .code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = BPF_REG_3, .imm = value            \
        }
#define TIMES_8                                                                                    \
        {                                                                                          \
                .code = BPF_ALU64 | BPF_LSH | BPF_K, .dst_reg = BPF_REG_3, .imm = 3                \
        }
#define PLUS_STACK                                                                                 \
        {                                                                                          \
                .code = BPF_ALU64 | BPF_ADD | BPF_X, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_10   \
        }
#define STORE_STACK(size, offset)                                                                  \
        {                                                                                          \
                .code = BPF_ST | BPF_MEM | (size), .dst_reg = BPF_REG_3, .off = offset, .imm = 1   \
        }

/* How many slots of the stack are registers; 0: it is in memory. */
static unsigned count_slots(const struct bpf_insn *insns, size_t count)
{
        struct text t = compile(insns, count, DEVICE_ENTRY);
        const char *declared = strstr(t.data, ".reg .b64 %s<");
        unsigned n = 0;

        CHECK(!declared == !!strstr(t.data, ".local"));
        if (declared)
                CHECK_EQ(sscanf(declared, ".reg .b64 %%s<%u>", &n), 1);
        text_done(&t);
        return n;
}

/* As many as the index can reach are looked at. */
static void test_indexed_stack(void)
{
        static const struct bpf_insn masked[] = {
                SMID, MASK(7), TIMES_8, PLUS_STACK, STORE_STACK(BPF_DW, -72), MOV(BPF_REG_0, 0),
                EXIT};
        static const struct bpf_insn sixteen[] = {
                SMID, MASK(15), TIMES_8, PLUS_STACK, STORE_STACK(BPF_DW, -136), MOV(BPF_REG_0, 0),
                EXIT};
        static const struct bpf_insn twenty[] = {
                SMID, MASK(19), TIMES_8, PLUS_STACK, STORE_STACK(BPF_DW, -160), MOV(BPF_REG_0, 0),
                EXIT};
        static const struct bpf_insn many[] = {
                SMID, MASK(20), TIMES_8, PLUS_STACK, STORE_STACK(BPF_DW, -168), MOV(BPF_REG_0, 0),
                EXIT};
        static const struct bpf_insn bytes[] = {
                SMID, MASK(31), PLUS_STACK, STORE_STACK(BPF_B, -33), MOV(BPF_REG_0, 0), EXIT};
        static const struct bpf_insn unknown[] = {
                SMID, TIMES_8, PLUS_STACK, STORE_STACK(BPF_DW, -128), MOV(BPF_REG_0, 0), EXIT};
        static const struct bpf_insn below[] = {
                SMID, MASK(7), PLUS_STACK, STORE_STACK(BPF_B, -700), MOV(BPF_REG_0, 0), EXIT};

        known_depth = 0;
        CHECK_EQ(count_slots(masked, ARRAY_SIZE(masked)), 9);
        CHECK_EQ(count_slots(sixteen, ARRAY_SIZE(sixteen)), 17);
        CHECK_EQ(count_slots(twenty, ARRAY_SIZE(twenty)), 20);
        CHECK_EQ(count_slots(many, ARRAY_SIZE(many)), 0);
        CHECK_EQ(count_slots(bytes, ARRAY_SIZE(bytes)), 5);
        CHECK_EQ(count_slots(unknown, ARRAY_SIZE(unknown)), 0);
        CHECK_EQ(count_slots(below, ARRAY_SIZE(below)), 0);
        known_depth = 160;
        CHECK_EQ(count_slots(unknown, ARRAY_SIZE(unknown)), 20);
        known_depth = 168;
        CHECK_EQ(count_slots(unknown, ARRAY_SIZE(unknown)), 0);
        known_depth = 24;
        CHECK_EQ(count_slots(unknown, ARRAY_SIZE(unknown)), 3);
        CHECK_EQ(count_slots(masked, ARRAY_SIZE(masked)), 9);
}

static void test_malformed_programs_are_refused(void)
{
        static const struct bpf_insn runs_off[] = {MOV(BPF_REG_0, 0)};
        static const struct bpf_insn jumps_out[] = {{.code = BPF_JMP | BPF_JA, .off = 100}, EXIT};
        static const struct bpf_insn jumps_back[] = {{.code = BPF_JMP | BPF_JA, .off = -2}, EXIT};
        static const struct bpf_insn half[] = {
                {.code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = BPF_REG_1}};
        static const struct bpf_insn unwritten[] = {
                {.code = BPF_ALU64 | BPF_ADD | BPF_X, .dst_reg = 3, .src_reg = 4}, EXIT};
        static const struct bpf_insn deep[] = {
                {.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .off = -520}, EXIT};
        static const struct bpf_insn crooked[] = {
                {.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .off = -12}, EXIT};
        static const struct bpf_insn odd_division[] = {
                MOV(BPF_REG_0, 8),
                {.code = BPF_ALU64 | BPF_DIV | BPF_K, .dst_reg = BPF_REG_0, .off = 2, .imm = 2},
                EXIT};
        static const struct bpf_insn odd_move[] = {
                MOV(BPF_REG_0, 8),
                {.code = BPF_ALU | BPF_MOV | BPF_X, .dst_reg = 1, .off = 32},
                EXIT};
        static const struct bpf_insn calls_out[] = {
                {.code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = 7}, EXIT};
        static const struct bpf_insn calls_itself[] = {
                {.code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = 1},
                EXIT,
                {.code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = -1},
                EXIT};
        static const struct bpf_insn leaves_function[] = {
                {.code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = 1},
                EXIT,
                {.code = BPF_JMP | BPF_JA, .off = -2},
                EXIT};
        static const struct bpf_insn no_register[] = {
                {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 11}, EXIT};

        check_refused(runs_off, 0, "0 instructions");
        check_refused(runs_off, ARRAY_SIZE(runs_off), "runs off its end");
        check_refused(jumps_out, ARRAY_SIZE(jumps_out), "leads out of the program");
        check_refused(jumps_back, ARRAY_SIZE(jumps_back), "leads out of the program");
        check_refused(half, ARRAY_SIZE(half), "inside an instruction");
        check_refused(unwritten, ARRAY_SIZE(unwritten), "before it is written");
        check_refused(deep, ARRAY_SIZE(deep), "outside the stack");
        check_refused(crooked, ARRAY_SIZE(crooked), "unaligned");
        check_refused(odd_division, ARRAY_SIZE(odd_division), "unknown arithmetic");
        check_refused(odd_move, ARRAY_SIZE(odd_move), "unknown arithmetic");
        check_refused(calls_out, ARRAY_SIZE(calls_out), "a call leads out of the program");
        check_refused(calls_itself, ARRAY_SIZE(calls_itself), "nested more than 7 deep");
        check_refused(leaves_function, ARRAY_SIZE(leaves_function), "leads out of the program");
        check_refused(no_register, ARRAY_SIZE(no_register), "unknown register");
}

/*
 * Eight functions, each in the one before, and the last with thousands of branches: the
 * states of all of it would not fit.
 */
static void test_memory_is_bounded(void)
{
        static struct bpf_insn insns[4000];
        size_t n = 0;

        for (int depth = 0; depth < 7; depth++) {
                insns[n++] = (struct bpf_insn){
                        .code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = 1};
                insns[n++] = (struct bpf_insn)EXIT;
        }
        insns[n++] = (struct bpf_insn)MOV(BPF_REG_0, 0);
        insns[n++] = (struct bpf_insn){.code = BPF_JMP | BPF_CALL, .imm = INSN_HELPER_KTIME_GET_NS};
        while (n < ARRAY_SIZE(insns) - 1)
                insns[n++] = (struct bpf_insn){
                        .code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .imm = (int32_t)n};
        insns[n++] = (struct bpf_insn)EXIT;
        check_refused(insns, n, "too many branches");
}

int main(void)
{
        TEST(test_tnum_is_sound);
        TEST(test_tnum_is_sound_with_64_bits);
        TEST(test_spans_are_sound);
        TEST(test_spans_are_narrow);
        TEST(test_map_sizes);
        TEST(test_section_names);
        TEST(test_verifier_log);
        TEST(test_constant_key_folds);
        TEST(test_unknown_key_is_checked);
        TEST(test_masked_key_is_not_checked);
        TEST(test_misread_numbers_are_hidden);
        TEST(test_stores_pair);
        TEST(test_atomics);
        TEST(test_exit_is_lane_dependent);
        TEST(test_indexed_stack);
        TEST(test_malformed_programs_are_refused);
        TEST(test_memory_is_bounded);
        return 0;
}
