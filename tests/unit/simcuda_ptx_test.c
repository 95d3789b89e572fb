/* SPDX-License-Identifier: Apache-2.0 */

/* The PTX interpreter: each instruction against the same computed in C, then programs. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>

#include "ptx_interp.h"
#include "test.h"

#define HEADER ".version 8.0\n.target sm_90\n.address_size 64\n"

static struct ptx_machine *machine;
static const struct ptx_env plain_env = {.sm_count = 4};

static struct ptx_module *load(const char *text)
{
        struct ptx_module *module = NULL;
        char log[300];
        int r = ptx_module_load(text, strlen(text), 90, log, sizeof(log), &module);

        if (r < 0)
                fprintf(stderr, "%s\n%s\n", log, text);
        CHECK_EQ(r, 0);
        return module;
}

/* The text is refused, and the reason mentions `word`. */
static void refused(const char *body, const char *word)
{
        struct ptx_module *module = NULL;
        char text[4096], log[300];

        snprintf(text, sizeof(text), HEADER ".visible .entry k(.param .u64 p)\n{\n%s\n}\n", body);
        CHECK_EQ(ptx_module_load(text, strlen(text), 90, log, sizeof(log), &module), -EINVAL);
        if (!strstr(log, word))
                fprintf(stderr, "the reason is: %s\n", log);
        CHECK(strstr(log, word) != NULL);
        CHECK(strncmp(log, "line ", 5) == 0);
}

static enum ptx_fault run(struct ptx_module *module, const char *name, unsigned blocks,
                          unsigned threads, const void *params, const struct ptx_env *env)
{
        const struct ptx_entry *entry = ptx_module_find_entry(module, name);
        struct ptx_launch launch = {.grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .gridid = 7};
        enum ptx_fault fault;

        CHECK(entry != NULL);
        CHECK_EQ(ptx_run(machine, entry, &launch, params, env ? env : &plain_env, &fault), 0);
        return fault;
}

/* ---- single instructions ---- */

union value {
        uint64_t u64;
        int64_t s64;
        uint32_t u32;
        int32_t s32;
        uint16_t u16;
        int16_t s16;
        float f32;
        double f64;
};

static uint64_t seed = 12345;

static uint64_t random_integer(void)
{
        static const uint64_t edges[] = {0,
                                         1,
                                         2,
                                         31,
                                         32,
                                         63,
                                         64,
                                         0x7fff,
                                         0x8000,
                                         0xffff,
                                         0x7fffffff,
                                         0x80000000,
                                         0xffffffff,
                                         0x7fffffffffffffff,
                                         0x8000000000000000,
                                         UINT64_MAX};
        uint64_t r = test_random(&seed);

        if (r % 3 == 0)
                return edges[(r >> 8) % (sizeof(edges) / sizeof(edges[0]))];
        return test_random(&seed) >> (r >> 8) % 64;
}

/*
 * A kernel whose body computes %o<kind> from the inputs, which it finds in
 * registers of every kind: %a (64 bits), %w (32), %h (16), %f, %d, and %p (bit 0).
 */
static struct ptx_module *make_module(char kind, const char *body)
{
        static const char *const stores[] = {
                "d st.global.f64 [%out], %od;",
                "f st.global.f32 [%out], %of;",
                "a st.global.u64 [%out], %oa;",
                "w st.global.u32 [%out], %ow;",
                "h st.global.u16 [%out], %oh;",
                "p selp.u32 %ow, 1, 0, %op; st.global.u32 [%out], %ow;"};
        static char text[8192];
        size_t n;

        n = (size_t)snprintf(
                text, sizeof(text),
                HEADER ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
                       ".reg .b64 %%a<4>, %%in, %%out, %%oa; .reg .b32 %%w<4>, %%ow, %%t<4>;\n"
                       ".reg .b16 %%h<4>, %%oh; .reg .f32 %%f<4>, %%of; .reg .f64 %%d<4>, %%od;\n"
                       ".reg .pred %%p<4>, %%op, %%oq;\n"
                       "ld.param.u64 %%in, [in]; ld.param.u64 %%out, [out];\n");
        for (int i = 0; i < 3; i++)
                n += (size_t)snprintf(text + n, sizeof(text) - n,
                                      "ld.global.u64 %%a%d, [%%in+%d]; ld.global.u32 %%w%d, "
                                      "[%%in+%d]; ld.global.u16 %%h%d, [%%in+%d];\n"
                                      "ld.global.f32 %%f%d, [%%in+%d]; ld.global.f64 %%d%d, "
                                      "[%%in+%d]; and.b32 %%t3, %%w%d, 1; setp.ne.u32 %%p%d, "
                                      "%%t3, 0;\n",
                                      i, 8 * i, i, 8 * i, i, 8 * i, i, 8 * i, i, 8 * i, i, i);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s\n", body);
        for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++) {
                if (stores[i][0] == kind)
                        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s\nret;\n}\n",
                                              stores[i] + 2);
        }
        return load(text);
}

static union value compute(struct ptx_module *module, union value *in)
{
        union value out = {0};
        struct {
                void *in, *out;
        } params = {in, &out};

        CHECK_EQ(run(module, "k", 1, 1, &params, NULL), PTX_FAULT_NONE);
        return out;
}

static void fail_case(const char *body, const union value *in, uint64_t got, uint64_t want)
{
        fprintf(stderr,
                "%s\n  of %#" PRIx64 " %#" PRIx64 " %#" PRIx64 " gave %#" PRIx64 ", not %#" PRIx64
                "\n",
                body, in[0].u64, in[1].u64, in[2].u64, got, want);
        exit(1);
}

/* For many inputs a, b, c: the kernel's result, as `field`, is what the expression gives. */
#define INTEGER_CASE(kind, field, type, body, expression)                                          \
        do {                                                                                       \
                struct ptx_module *m_ = make_module(kind, body);                                   \
                for (int round_ = 0; round_ < 150; round_++) {                                     \
                        union value in_[3], got_;                                                  \
                        for (int i_ = 0; i_ < 3; i_++)                                             \
                                in_[i_].u64 = random_integer();                                    \
                        got_ = compute(m_, in_);                                                   \
                        {                                                                          \
                                type a __attribute__((unused)) = in_[0].field;                     \
                                type b __attribute__((unused)) = in_[1].field;                     \
                                type c __attribute__((unused)) = in_[2].field;                     \
                                type want_ = (type)(expression);                                   \
                                if (got_.field != want_)                                           \
                                        fail_case(body, in_, (uint64_t)got_.field,                 \
                                                  (uint64_t)want_);                                \
                        }                                                                          \
                }                                                                                  \
                ptx_module_free(m_);                                                               \
        } while (0)
#define U32(body, expression) INTEGER_CASE('w', u32, uint32_t, body, expression)
#define S32(body, expression) INTEGER_CASE('w', s32, int32_t, body, expression)
#define U64(body, expression) INTEGER_CASE('a', u64, uint64_t, body, expression)
#define S64(body, expression) INTEGER_CASE('a', s64, int64_t, body, expression)
#define U16(body, expression) INTEGER_CASE('h', u16, uint16_t, body, expression)
#define S16(body, expression) INTEGER_CASE('h', s16, int16_t, body, expression)

typedef __int128 s128;
typedef unsigned __int128 u128;

static void test_add_sub_mul(void)
{
        U32("add.u32 %ow, %w0, %w1;", a + b);
        U32("add.s32 %ow, %w0, -7;", a - 7);
        U32("sub.s32 %ow, %w0, %w1;", a - b);
        U64("add.s64 %oa, %a0, %a1;", a + b);
        U64("sub.u64 %oa, %a0, 0x123456789abcdef0;", a - 0x123456789abcdef0ULL);
        U16("add.u16 %oh, %h0, %h1;", a + b);
        U32("mul.lo.u32 %ow, %w0, %w1;", a * b);
        U64("mul.lo.s64 %oa, %a0, %a1;", a * b);
        U16("mul.lo.s16 %oh, %h0, %h1;", (uint32_t)a * b);
        U32("mul.hi.u32 %ow, %w0, %w1;", ((uint64_t)a * b) >> 32);
        S32("mul.hi.s32 %ow, %w0, %w1;", ((int64_t)a * b) >> 32);
        U64("mul.hi.u64 %oa, %a0, %a1;", ((u128)a * b) >> 64);
        S64("mul.hi.s64 %oa, %a0, %a1;", ((s128)a * b) >> 64);
        U64("mul.wide.u32 %oa, %w0, %w1;", (uint64_t)(uint32_t)a * (uint32_t)b);
        S64("mul.wide.s32 %oa, %w0, %w1;", (int64_t)(int32_t)a * (int32_t)b);
        S32("mul.wide.s16 %ow, %h0, %h1;", (int32_t)(int16_t)a * (int16_t)b);
        U32("mad.lo.s32 %ow, %w0, %w1, %w2;", a * b + c);
        U64("mad.lo.u64 %oa, %a0, %a1, %a2;", a * b + c);
        U32("mad.hi.u32 %ow, %w0, %w1, %w2;", (uint32_t)(((uint64_t)a * b) >> 32) + c);
        U64("mad.wide.u32 %oa, %w0, %w1, %a2;", (uint64_t)(uint32_t)a * (uint32_t)b + c);
        U64("mad.wide.s32 %oa, %w0, 12, %a2;", (uint64_t)((int64_t)(int32_t)a * 12) + c);
        U32("mul24.lo.u32 %ow, %w0, %w1;", (uint64_t)(a & 0xffffff) * (b & 0xffffff));
        U32("sad.u32 %ow, %w0, %w1, %w2;", c + (a > b ? a - b : b - a));
}

static void test_divide(void)
{
        U32("div.u32 %ow, %w0, %w1;", b ? a / b : UINT32_MAX);
        U32("rem.u32 %ow, %w0, %w1;", b ? a % b : a);
        U64("div.u64 %oa, %a0, %a1;", b ? a / b : UINT64_MAX);
        U64("rem.u64 %oa, %a0, 1000;", a % 1000);
        S32("div.s32 %ow, %w0, %w1;", b == 0 ? -1 : (int64_t)a / b);
        S32("rem.s32 %ow, %w0, %w1;", b == 0 ? a : (int64_t)a % b);
        S64("div.s64 %oa, %a0, %a1;", b == 0 ? -1 : (s128)a / b);
        S64("rem.s64 %oa, %a0, %a1;", b == 0 ? a : (s128)a % b);
        S16("div.s16 %oh, %h0, %h1;", b == 0 ? -1 : a / b);
}

static void test_minimum_absolute(void)
{
        U32("min.u32 %ow, %w0, %w1;", a < b ? a : b);
        S32("min.s32 %ow, %w0, %w1;", a < b ? a : b);
        U64("max.u64 %oa, %a0, %a1;", a > b ? a : b);
        S64("max.s64 %oa, %a0, %a1;", a > b ? a : b);
        S16("min.s16 %oh, %h0, %h1;", a < b ? a : b);
        U32("abs.s32 %ow, %w0;", (int32_t)a < 0 ? 0 - a : a);
        U64("abs.s64 %oa, %a0;", (int64_t)a < 0 ? 0 - a : a);
        U32("neg.s32 %ow, %w0;", 0 - a);
        U64("neg.s64 %oa, %a0;", 0 - a);
}

static void test_logic_shift(void)
{
        U32("and.b32 %ow, %w0, %w1;", a & b);
        U64("or.b64 %oa, %a0, %a1;", a | b);
        U16("xor.b16 %oh, %h0, %h1;", a ^ b);
        U32("not.b32 %ow, %w0;", ~a);
        U64("not.b64 %oa, %a0;", ~a);
        U32("cnot.b32 %ow, %w0;", a == 0);
        U32("shl.b32 %ow, %w0, %w1;", b > 31 ? 0 : a << b);
        U64("shl.b64 %oa, %a0, %w1;", (uint32_t)b > 63 ? 0 : a << (uint32_t)b);
        U32("shr.u32 %ow, %w0, %w1;", b > 31 ? 0 : a >> b);
        S32("shr.s32 %ow, %w0, %w1;", a >> ((uint32_t)b > 31 ? 31 : (uint32_t)b));
        S64("shr.s64 %oa, %a0, %w1;", a >> ((uint32_t)b > 63 ? 63 : (uint32_t)b));
        U64("shr.b64 %oa, %a0, 5;", a >> 5);
        U32("shf.l.wrap.b32 %ow, %w0, %w1, %w2;", (((uint64_t)b << 32 | a) << (c & 31)) >> 32);
        U32("shf.r.wrap.b32 %ow, %w0, %w1, %w2;", ((uint64_t)b << 32 | a) >> (c & 31));
        U32("shf.r.clamp.b32 %ow, %w0, %w1, %w2;", ((uint64_t)b << 32 | a) >> (c > 32 ? 32 : c));
        U32("lop3.b32 %ow, %w0, %w1, %w2, 0xe8;", (a & b) | (a & c) | (b & c));
        U32("lop3.b32 %ow, %w0, %w1, %w2, 0x96;", a ^ b ^ c);
}

static uint64_t reference_bfe(uint64_t a, unsigned pos, unsigned len, unsigned width, bool sign)
{
        uint64_t result = 0;
        unsigned top = pos + len - 1 < width - 1 ? pos + len - 1 : width - 1;
        bool fill = sign && len ? a >> top & 1 : false;

        for (unsigned i = 0; i < width; i++) {
                bool bit = i < len && pos + i < width ? a >> (pos + i) & 1 : fill;

                result |= (uint64_t)bit << i;
        }
        return result;
}

static uint64_t reference_bfi(uint64_t a, uint64_t b, unsigned pos, unsigned len, unsigned width)
{
        for (unsigned i = 0; i < len && pos + i < width; i++) {
                b &= ~(1ULL << (pos + i));
                b |= (a >> i & 1) << (pos + i);
        }
        return b;
}

static uint32_t reference_prmt(uint32_t a, uint32_t b, uint32_t s)
{
        uint32_t result = 0;

        for (int i = 0; i < 4; i++) {
                unsigned pick = s >> (4 * i) & 0xf;
                uint32_t byte = (pick & 4 ? b : a) >> (8 * (pick & 3)) & 0xff;

                if (pick & 8)
                        byte = byte & 0x80 ? 0xff : 0;
                result |= byte << (8 * i);
        }
        return result;
}

static uint32_t reference_brev(uint32_t a)
{
        uint32_t result = 0;

        for (int i = 0; i < 32; i++)
                result |= (a >> i & 1) << (31 - i);
        return result;
}

static void test_bits(void)
{
        U32("popc.b32 %ow, %w0;", __builtin_popcount(a));
        U32("popc.b64 %ow, %a0; ", __builtin_popcountll(in_[0].u64));
        U32("clz.b32 %ow, %w0;", a ? __builtin_clz(a) : 32);
        U32("clz.b64 %ow, %a0;", in_[0].u64 ? __builtin_clzll(in_[0].u64) : 64);
        U32("brev.b32 %ow, %w0;", reference_brev(a));
        U64("brev.b64 %oa, %a0;",
            (uint64_t)reference_brev((uint32_t)a) << 32 | reference_brev((uint32_t)(a >> 32)));
        U32("bfind.u32 %ow, %w0;", a ? 31 - __builtin_clz(a) : -1);
        U32("bfind.s32 %ow, %w0;",
            (a ^ (a >> 31 ? ~0u : 0)) ? 31 - __builtin_clz(a ^ (a >> 31 ? ~0u : 0)) : -1);
        U32("bfind.shiftamt.u32 %ow, %w0;", a ? __builtin_clz(a) : -1);
        U32("bfe.u32 %ow, %w0, %w1, %w2;", reference_bfe(a, b & 255, c & 255, 32, false));
        U32("bfe.s32 %ow, %w0, %w1, %w2;", reference_bfe(a, b & 255, c & 255, 32, true));
        U64("bfe.u64 %oa, %a0, %w1, %w2;", reference_bfe(a, b & 255, c & 255, 64, false));
        U64("bfe.s64 %oa, %a0, 8, 16;", reference_bfe(a, 8, 16, 64, true));
        U32("bfi.b32 %ow, %w0, %w1, %w2, 9;", reference_bfi(a, b, c & 255, 9, 32));
        U64("bfi.b64 %oa, %a0, %a1, 20, 24;", reference_bfi(a, b, 20, 24, 64));
        U32("prmt.b32 %ow, %w0, %w1, %w2;", reference_prmt(a, b, c));
        U32("prmt.b32 %ow, %w0, 0, 0x0123;", __builtin_bswap32(a));
}

static void test_compare_select(void)
{
        U32("setp.lt.u32 %op, %w0, %w1; selp.u32 %ow, 1, 0, %op;", a < b);
        U32("setp.lt.s32 %op, %w0, %w1; selp.u32 %ow, 1, 0, %op;", (int32_t)a < (int32_t)b);
        U32("setp.ge.u64 %op, %a0, %a1; selp.u32 %ow, 1, 0, %op;", in_[0].u64 >= in_[1].u64);
        U32("setp.le.s64 %op, %a0, %a1; selp.u32 %ow, 1, 0, %op;", in_[0].s64 <= in_[1].s64);
        U32("setp.gt.s16 %op, %h0, %h1; selp.u32 %ow, 1, 0, %op;", in_[0].s16 > in_[1].s16);
        U32("setp.hi.u32 %op, %w0, %w1; selp.u32 %ow, 1, 0, %op;", a > b);
        U32("setp.ne.b64 %op, %a0, 0; selp.u32 %ow, 1, 0, %op;", in_[0].u64 != 0);
        U32("setp.eq.and.u32 %op, %w0, %w1, %p2; selp.u32 %ow, 1, 0, %op;", a == b && (c & 1));
        U32("setp.lt.or.u32 %op, %w0, %w1, !%p2; selp.u32 %ow, 1, 0, %op;", a < b || !(c & 1));
        U32("setp.lt.xor.u32 %op|%oq, %w0, %w1, %p2; selp.u32 %t0, 1, 0, %op; selp.u32 %t1, 2, 0, "
            "%oq; or.b32 %ow, %t0, %t1;",
            ((a < b) ^ (c & 1)) | ((a >= b) ^ (c & 1)) << 1);
        U32("set.lt.u32.u32 %ow, %w0, %w1;", a < b ? ~0u : 0);
        U64("selp.b64 %oa, %a0, %a1, %p2;", c & 1 ? a : b);
        U32("not.pred %op, %p0; and.pred %op, %op, %p1; xor.pred %op, %op, %p2; selp.u32 %ow, 1, "
            "0, "
            "%op;",
            ((~a & b) ^ c) & 1);
        U32("mov.u32 %ow, 5; @%p0 mov.u32 %ow, 6; @!%p1 add.u32 %ow, %ow, 10;",
            (a & 1 ? 6u : 5u) + (b & 1 ? 0u : 10u));
}

static void test_carry(void)
{
        U64("{ .reg .b32 %lo<3>, %hi<3>; mov.b64 {%lo0, %hi0}, %a0; mov.b64 {%lo1, %hi1}, %a1;\n"
            "add.cc.u32 %lo2, %lo0, %lo1; addc.u32 %hi2, %hi0, %hi1; mov.b64 %oa, {%lo2, %hi2}; }",
            a + b);
        U64("{ .reg .b32 %lo<3>, %hi<3>; mov.b64 {%lo0, %hi0}, %a0; mov.b64 {%lo1, %hi1}, %a1;\n"
            "sub.cc.u32 %lo2, %lo0, %lo1; subc.u32 %hi2, %hi0, %hi1; mov.b64 %oa, {%lo2, %hi2}; }",
            a - b);
        U64("{ .reg .b64 %l; mad.lo.cc.u64 %l, %a0, %a1, %a2; madc.hi.u64 %oa, %a0, %a1, 0; }",
            (uint64_t)(((u128)a * b + c) >> 64));
}

static int64_t saturate(double v, double low, double high)
{
        return (int64_t)(v < low ? low : v > high ? high : v);
}

static void test_convert(void)
{
        S64("cvt.s64.s32 %oa, %w0;", (int32_t)a);
        U64("cvt.u64.u32 %oa, %w0;", (uint32_t)a);
        U32("cvt.u32.u64 %ow, %a0;", a);
        S32("cvt.s32.s8 %ow, %w0;", (int8_t)a);
        U32("cvt.u32.u16 %ow, %h0;", (uint16_t)a);
        U16("cvt.u16.u32 %oh, %w0;", a);
        S32("cvt.sat.s8.s32 %ow, %w0;", a < -128 ? -128 : a > 127 ? 127 : a);
        U32("cvt.sat.u8.s32 %ow, %w0;", (int32_t)a < 0 ? 0u : (int32_t)a > 255 ? 255u : a);
        S32("{ .reg .f64 %x; cvt.rn.f64.s32 %x, %w0; mul.f64 %x, %x, 0d3FE8000000000000; "
            "cvt.rzi.s32.f64 %ow, %x; }",
            (int32_t)(a * 0.75));
        S32("{ .reg .f64 %x; cvt.rn.f64.s64 %x, %a0; cvt.rni.s32.f64 %ow, %x; }",
            saturate((double)in_[0].s64, -2147483648.0, 2147483647.0));
        U32("{ .reg .f32 %x; cvt.rn.f32.u32 %x, %w0; mov.b32 %ow, %x; }",
            ((union value){.f32 = (float)a}).u32);
        U64("{ .reg .f64 %x; cvt.rn.f64.u64 %x, %a0; mov.b64 %oa, %x; }",
            ((union value){.f64 = (double)a}).u64);
}

static float random_float(void)
{
        static const float edges[] = {0.0f, -0.0f, 1.0f, -1.5f, INFINITY, -INFINITY, 3e38f, 1e-40f};
        uint64_t r = test_random(&seed);

        if (r % 8 == 0)
                return edges[(r >> 8) % 8];
        return (float)((double)(int64_t)test_random(&seed) / 9.2e18 *
                       pow(10, (double)(r % 12) - 4));
}

#define FLOAT_CASE(kind, field, type, body, expression)                                            \
        do {                                                                                       \
                struct ptx_module *m_ = make_module(kind, body);                                   \
                for (int round_ = 0; round_ < 150; round_++) {                                     \
                        union value in_[3] = {0}, got_, want_ = {0};                               \
                        for (int i_ = 0; i_ < 3; i_++)                                             \
                                in_[i_].field = (type)random_float();                              \
                        got_ = compute(m_, in_);                                                   \
                        {                                                                          \
                                type a __attribute__((unused)) = in_[0].field;                     \
                                type b __attribute__((unused)) = in_[1].field;                     \
                                type c __attribute__((unused)) = in_[2].field;                     \
                                want_.field = (type)(expression);                                  \
                        }                                                                          \
                        if (got_.u64 != want_.u64 && !(isnan(got_.field) && isnan(want_.field)))   \
                                fail_case(body, in_, got_.u64, want_.u64);                         \
                }                                                                                  \
                ptx_module_free(m_);                                                               \
        } while (0)
#define F32(body, expression) FLOAT_CASE('f', f32, float, body, expression)
#define F64(body, expression) FLOAT_CASE('d', f64, double, body, expression)

static void test_float(void)
{
        F32("add.f32 %of, %f0, %f1;", a + b);
        F32("sub.rn.f32 %of, %f0, %f1;", a - b);
        F32("mul.f32 %of, %f0, 0f40490FDB;", a * 3.14159274f);
        F32("div.rn.f32 %of, %f0, %f1;", a / b);
        F32("fma.rn.f32 %of, %f0, %f1, %f2;", fmaf(a, b, c));
        F32("sqrt.rn.f32 %of, %f0;", sqrtf(a));
        F32("min.f32 %of, %f0, %f1;", fminf(a, b));
        F32("max.f32 %of, %f0, 1.5;", fmaxf(a, 1.5f));
        F32("abs.f32 %of, %f0;", fabsf(a));
        F32("neg.f32 %of, %f0;", -a);
        F32("copysign.f32 %of, %f0, %f1;", copysignf(b, a));
        F32("setp.lt.f32 %op, %f0, %f1; selp.f32 %of, %f0, %f1, %op;", a < b ? a : b);
        F32("{ .reg .f64 %x; cvt.f64.f32 %x, %f0; add.f64 %x, %x, 0d3FF0000000000000; "
            "cvt.rn.f32.f64 %of, %x; }",
            (double)a + 1.0);
        F32("cvt.rmi.f32.f32 %of, %f0;", floorf(a));
        F32("cvt.rpi.f32.f32 %of, %f0;", ceilf(a));
        F64("add.f64 %od, %d0, %d1;", a + b);
        F64("mul.rn.f64 %od, %d0, -2.5;", a * -2.5);
        F64("fma.rn.f64 %od, %d0, %d1, %d2;", fma(a, b, c));
        F64("div.rn.f64 %od, %d0, %d1;", a / b);
        F64("sqrt.rn.f64 %od, %d0;", sqrt(a));
        F64("neg.f64 %od, %d0;", -a);
}

/* Not-a-number is unequal to everything, and "unordered" comparisons say so. */
static void test_unordered(void)
{
        static const struct {
                const char *body;
                uint32_t with_nan, equal;
        } cases[] = {
                {"setp.eq.f32 %op, %f0, %f1;", 0, 1},  {"setp.ne.f32 %op, %f0, %f1;", 0, 0},
                {"setp.equ.f32 %op, %f0, %f1;", 1, 1}, {"setp.neu.f32 %op, %f0, %f1;", 1, 0},
                {"setp.ltu.f32 %op, %f0, %f1;", 1, 0}, {"setp.ge.f32 %op, %f0, %f1;", 0, 1},
                {"setp.num.f32 %op, %f0, %f1;", 0, 1}, {"setp.nan.f32 %op, %f0, %f1;", 1, 0},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct ptx_module *m = make_module('p', cases[i].body);
                union value in[3] = {{.f32 = NAN}, {.f32 = 1.0f}};

                CHECK_EQ(compute(m, in).u32, cases[i].with_nan);
                in[0].f32 = 1.0f;
                CHECK_EQ(compute(m, in).u32, cases[i].equal);
                ptx_module_free(m);
        }
}

/* ---- memory ---- */

static void test_memory_widths(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
                ".reg .b64 %rd<8>; .reg .b32 %r<8>;\n"
                "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];\n"
                "ld.global.s8 %r0, [%rd0]; st.global.u32 [%rd1], %r0;\n"
                "ld.global.u8 %r1, [%rd0+1]; st.global.u32 [%rd1+4], %r1;\n"
                "ld.volatile.global.s16 %r2, [%rd0+2]; st.volatile.global.b32 [%rd1+8], %r2;\n"
                "ld.global.v2.u32 {%r3, %r4}, [%rd0+8]; st.global.v2.u32 [%rd1+16], {%r4, %r3};\n"
                "ld.relaxed.sys.global.u64 %rd2, [%rd0+16]; st.release.sys.global.u64 [%rd1+24], "
                "%rd2;\n"
                "ld.global.v4.b32 {%r3, _, %r5, %r6}, [%rd0+32]; st.global.v4.b32 [%rd1+32], {%r6, "
                "%r5, 7, %r3};\n"
                "st.global.u8 [%rd1+48], %r6; ld.global.nc.L1::no_allocate.b64 %rd3, [%rd0+16];\n"
                "st.global.wt.u64 [%rd1+56], %rd3;\n"
                "ret;\n}\n");
        _Alignas(16) uint8_t in[64], out[64] = {0};
        uint32_t word;
        uint64_t wide;
        struct {
                void *in, *out;
        } params = {in, out};

        for (size_t i = 0; i < sizeof(in); i++)
                in[i] = (uint8_t)(0x80 + 3 * i);
        CHECK_EQ(run(m, "k", 1, 1, &params, NULL), PTX_FAULT_NONE);
        memcpy(&word, out, 4);
        CHECK_EQ((int32_t)word, (int8_t)in[0]);
        memcpy(&word, out + 4, 4);
        CHECK_EQ(word, in[1]);
        memcpy(&word, out + 8, 4);
        CHECK_EQ((int32_t)word, (int16_t)(in[2] | in[3] << 8));
        CHECK(memcmp(out + 16, in + 12, 4) == 0 && memcmp(out + 20, in + 8, 4) == 0);
        CHECK(memcmp(out + 24, in + 16, 8) == 0);
        CHECK(memcmp(out + 32, in + 44, 4) == 0 && memcmp(out + 36, in + 40, 4) == 0);
        memcpy(&word, out + 40, 4);
        CHECK_EQ(word, 7);
        CHECK(memcmp(out + 44, in + 32, 4) == 0);
        CHECK_EQ(out[48], in[44]);
        CHECK_EQ(out[49], 0);
        memcpy(&wide, out + 56, 8);
        CHECK(memcmp(&wide, in + 16, 8) == 0);
        ptx_module_free(m);
}

static void test_atomics(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 p)\n{\n"
                ".reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .f32 %f<2>; .reg .f64 %d<2>;\n"
                "ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; cvt.u64.u32 %rd1, %r0;\n"
                "atom.global.add.u32 %r1, [%rd0], 1; red.global.add.u64 [%rd0+8], %rd1;\n"
                "red.relaxed.gpu.global.max.u64 [%rd0+16], %rd1; red.global.min.s32 [%rd0+24], "
                "%r0;\n"
                "red.global.or.b32 [%rd0+28], %r0; red.global.xor.b32 [%rd0+32], %r0;\n"
                "atom.global.inc.u32 %r2, [%rd0+36], 9; cvt.rn.f32.u32 %f0, %r0;\n"
                "red.global.add.f32 [%rd0+40], %f0; cvt.rn.f64.u32 %d0, %r0; red.global.add.f64 "
                "[%rd0+48], %d0;\n"
                "atom.global.cas.b32 %r3, [%rd0+56], %r0, 100; atom.sys.global.exch.b32 %r4, "
                "[%rd0+60], %r0;\n"
                "red.global.and.b32 [%rd0+64], 0xf0f0; atom.global.dec.u32 %r5, [%rd0+68], 50;\n"
                "ret;\n}\n");
        struct {
                uint32_t add, pad;
                uint64_t sum, max;
                int32_t min;
                uint32_t or, xor, inc;
                float f32;
                uint32_t pad2;
                double f64;
                uint32_t cas, exch, and, dec;
        } v = {.min = 5, .cas = 63, .and = 0xffff, .dec = 3};
        void *p = &v;

        CHECK_EQ(run(m, "k", 1, 64, &p, NULL), PTX_FAULT_NONE);
        CHECK_EQ(v.add, 64);
        CHECK_EQ(v.sum, 2016);
        CHECK_EQ(v.max, 63);
        CHECK_EQ(v.min, 0);
        CHECK_EQ(v.or, 63);
        CHECK_EQ(v.xor, 0);
        CHECK_EQ(v.inc, 64 % 10);
        CHECK(v.f32 == 2016.0f && v.f64 == 2016.0);
        CHECK_EQ(v.cas, 100);
        CHECK_EQ(v.exch, 63);
        CHECK_EQ(v.and, 0xf0f0);
        CHECK_EQ(v.dec, 3 + 51 * 2 - 64); /* 3 2 1 0 50 49 … */
        ptx_module_free(m);
}

static void test_spaces(void)
{
        struct ptx_module *m = load(
                HEADER
                ".const .align 8 .u32 table[4] = {3, 0x10, -1, 7};\n"
                ".visible .global .align 8 .u64 pointer = generic(table)+8;\n"
                ".global .f32 ratio[2] = {1.5, 0fBF800000};\n"
                ".extern .shared .align 16 .b8 dynamic[];\n"
                ".visible .entry k(.param .u64 out, .param .align 4 .b8 s[12])\n{\n"
                ".local .align 8 .b8 frame[32]; .shared .align 4 .u32 fixed[2];\n"
                ".reg .b64 %rd<10>; .reg .b32 %r<10>; .reg .f32 %f<3>; .reg .pred %p<3>;\n"
                "ld.param.u64 %rd0, [out]; ld.param.u32 %r0, [s+8];\n"
                "mov.b64 %rd1, s; ld.param.u32 %r1, [%rd1+4]; add.u32 %r0, %r0, %r1;\n"
                "st.global.u32 [%rd0], %r0;\n"
                "ld.const.u32 %r2, [table+4]; st.global.u32 [%rd0+4], %r2;\n"
                "ld.global.u64 %rd2, [pointer]; ld.u32 %r3, [%rd2]; st.global.u32 [%rd0+8], %r3;\n"
                "mov.u64 %rd3, frame; cvta.local.u64 %rd4, %rd3; st.u32 [%rd4+4], 77; ld.local.u32 "
                "%r4, [frame+4]; st.global.u32 [%rd0+12], %r4;\n"
                "st.shared.u32 [fixed+4], 88; mov.u32 %r5, dynamic; st.shared.u32 [%r5+4], 99;\n"
                "mov.u64 %rd5, fixed; cvta.shared.u64 %rd6, %rd5; ld.u32 %r6, [%rd6+4]; "
                "st.global.u32 [%rd0+16], %r6;\n"
                "ld.shared.u32 %r7, [dynamic+4]; st.global.u32 [%rd0+20], %r7;\n"
                "isspacep.shared %p0, %rd6; isspacep.global %p1, %rd6; selp.u32 %r8, 1, 0, %p0; "
                "selp.u32 %r9, 2, 0, %p1; or.b32 %r8, %r8, %r9; st.global.u32 [%rd0+24], %r8;\n"
                "ld.global.v2.f32 {%f0, %f1}, [ratio]; add.f32 %f2, %f0, %f1; st.global.f32 "
                "[%rd0+28], %f2;\n"
                "ret;\n}\n");
        const struct ptx_entry *entry = ptx_module_find_entry(m, "k");
        const struct ptx_entry_info *info = ptx_entry_info(entry);
        struct ptx_launch launch = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .shared_bytes = 8};
        uint32_t out[8] = {0};
        struct {
                void *out;
                uint32_t s[3];
        } params = {out, {1, 20, 300}};
        float ratio;
        enum ptx_fault fault;
        size_t bytes;
        void *address;

        CHECK_EQ(info->param_count, 2);
        CHECK_EQ(info->params[1].offset, 8);
        CHECK_EQ(info->params[1].bytes, 12);
        CHECK_EQ(info->param_bytes, 20);
        CHECK_EQ(info->shared_bytes, 16);
        CHECK_EQ(info->local_bytes, 32);
        CHECK_EQ(ptx_run(machine, entry, &launch, &params, &plain_env, &fault), 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        CHECK_EQ(out[0], 320);
        CHECK_EQ(out[1], 16);
        CHECK_EQ(out[2], 0xffffffff);
        CHECK_EQ(out[3], 77);
        CHECK_EQ(out[4], 88);
        CHECK_EQ(out[5], 99);
        CHECK_EQ(out[6], 1);
        memcpy(&ratio, &out[7], sizeof(ratio));
        CHECK(ratio == 0.5f);
        CHECK_EQ(ptx_module_find_global(m, "table", &address, &bytes), 0);
        CHECK_EQ(bytes, 16);
        CHECK_EQ(((uint32_t *)address)[3], 7);
        CHECK_EQ(ptx_module_find_global(m, "nothing", &address, &bytes), -ENOENT);
        ptx_module_free(m);
}

/* ---- control ---- */

static void test_scopes(void)
{
        struct ptx_module *m =
                load(HEADER
                     ".visible .entry k(.param .u64 out)\n{\n"
                     ".reg .b64 %rd<2>; .reg .b32 %r<4>; .reg .pred %p;\n"
                     "ld.param.u64 %rd0, [out]; mov.u32 %r0, 1;\n"
                     "{\n.reg .b32 %r<4>; mov.u32 %r0, 50; setp.eq.u32 %p, %r0, 50; @%p bra over; "
                     "mov.u32 %r0, 60;\nover:\n st.global.u32 [%rd0], %r0; bra.uni outer;\n}\n"
                     "mov.u32 %r0, 2;\n"
                     "outer:\n"
                     "{\n.reg .b32 x; mov.u32 x, 9; bra over; mov.u32 x, 10;\nover: st.global.u32 "
                     "[%rd0+8], x;\n}\n"
                     "st.global.u32 [%rd0+4], %r0; ret;\n}\n");
        uint32_t out[3] = {0};
        void *p = out;

        CHECK_EQ(run(m, "k", 1, 1, &p, NULL), PTX_FAULT_NONE);
        CHECK_EQ(out[0], 50);
        CHECK_EQ(out[1], 1);
        CHECK_EQ(out[2], 9);
        ptx_module_free(m);
}

static void test_divergence(void)
{
        /* Each lane loops its own number of times, then all vote at the join. */
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 out)\n{\n"
                ".reg .b64 %rd<3>; .reg .b32 %r<8>; .reg .pred %p<3>;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 8; add.s64 "
                "%rd0, %rd0, %rd1;\n"
                "mov.u32 %r1, 0; mov.u32 %r2, 0;\n"
                "loop:\n setp.ge.u32 %p0, %r1, %r0; @%p0 bra join; add.u32 %r1, %r1, 1; add.u32 "
                "%r2, "
                "%r2, %r1; bra loop;\n"
                "join:\n activemask.b32 %r3; st.global.v2.u32 [%rd0], {%r2, %r3};\n"
                "setp.lt.u32 %p1, %r0, 5; @%p1 exit; activemask.b32 %r3; st.global.u32 [%rd0+4], "
                "%r3;\n"
                "ret;\n}\n");
        uint32_t out[40][2] = {0};
        void *p = out;

        CHECK_EQ(run(m, "k", 1, 40, &p, NULL), PTX_FAULT_NONE);
        for (unsigned i = 0; i < 40; i++) {
                CHECK_EQ(out[i][0], i * (i + 1) / 2);
                CHECK_EQ(out[i][1], i < 5 ? 0xffffffff : i < 32 ? 0xffffffe0 : 0xff);
        }
        ptx_module_free(m);
}

static void test_calls(void)
{
        struct ptx_module *m = load(
                HEADER
                ".func (.param .b64 r) twice(.param .b64 x);\n"
                ".func (.reg .u32 r) larger(.reg .u32 x, .reg .u32 y)\n{\n.reg .pred %p;\n"
                "setp.gt.u32 %p, x, y; @%p bra first; mov.u32 r, y; ret;\nfirst: mov.u32 r, x; "
                "ret;\n}\n"
                ".visible .entry k(.param .u64 out)\n{\n"
                ".reg .b64 %rd<4>; .reg .b32 %r<6>;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 16; "
                "add.s64 "
                "%rd0, %rd0, %rd1;\n"
                "call (%r1), larger, (%r0, 3);\n"
                "cvt.u64.u32 %rd2, %r0;\n"
                "{ .param .b64 a; st.param.b64 [a+0], %rd2; .param .b64 b;\n"
                "call.uni (b), twice, (a);\n ld.param.b64 %rd3, [b+0]; }\n"
                "st.global.u64 [%rd0], %rd3; st.global.u32 [%rd0+8], %r1; ret;\n}\n"
                ".func (.param .b64 r) twice(.param .b64 x)\n{\n.reg .b64 %rd<3>;\n"
                "ld.param.b64 %rd0, [x]; add.u64 %rd1, %rd0, %rd0; st.param.b64 [r+0], %rd1; "
                "ret;\n}\n");
        struct {
                uint64_t twice;
                uint32_t larger, pad;
        } out[8];
        void *p = out;

        CHECK_EQ(run(m, "k", 1, 8, &p, NULL), PTX_FAULT_NONE);
        for (unsigned i = 0; i < 8; i++) {
                CHECK_EQ(out[i].twice, 2 * i);
                CHECK_EQ(out[i].larger, i > 3 ? i : 3);
        }
        ptx_module_free(m);
}

static void test_branch_table(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 out)\n{\n"
                ".reg .b64 %rd<3>; .reg .b32 %r<4>;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.s64 "
                "%rd0, %rd0, %rd1; rem.u32 %r1, %r0, 3;\n"
                "ts: .branchtargets A, B, C;\nbrx.idx %r1, ts;\n"
                "A: mov.u32 %r2, 10; bra end;\nB: mov.u32 %r2, 20; bra end;\nC: mov.u32 %r2, 30;\n"
                "end: st.global.u32 [%rd0], %r2; ret;\n}\n");
        uint32_t out[32] = {0};
        void *p = out;

        CHECK_EQ(run(m, "k", 1, 32, &p, NULL), PTX_FAULT_NONE);
        for (unsigned i = 0; i < 32; i++)
                CHECK_EQ(out[i], 10 * (i % 3 + 1));
        ptx_module_free(m);
}

/* ---- blocks ---- */

static void test_barrier(void)
{
        /* Threads pass values around the block; half of the last warp has ended. */
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 out)\n{\n"
                ".shared .align 4 .b8 s[512];\n"
                ".reg .b64 %rd<3>; .reg .b32 %r<12>; .reg .pred %p<3>;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 80; @%p0 "
                "exit;\n"
                "mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2; mov.u32 %r4, 0; "
                "mov.u32 %r5, %r0;\n"
                "round: st.shared.u32 [%r3], %r5; bar.sync 0;\n"
                "add.u32 %r6, %r0, 1; rem.u32 %r6, %r6, 80; shl.b32 %r6, %r6, 2; add.u32 %r6, %r1, "
                "%r6; ld.shared.u32 %r5, [%r6]; barrier.sync.aligned 0;\n"
                "add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 10; @%p1 bra round;\n"
                "setp.gt.u32 %p2, %r5, 40; bar.red.popc.u32 %r7, 1, %p2;\n"
                "mul.wide.u32 %rd1, %r0, 8; add.s64 %rd0, %rd0, %rd1; st.global.v2.u32 [%rd0], "
                "{%r5, "
                "%r7}; ret;\n}\n");
        uint32_t out[96][2] = {0};
        void *p = out;

        CHECK_EQ(run(m, "k", 1, 96, &p, NULL), PTX_FAULT_NONE);
        for (unsigned i = 0; i < 80; i++) {
                CHECK_EQ(out[i][0], (i + 10) % 80);
                CHECK_EQ(out[i][1], 39);
        }
        CHECK_EQ(out[80][0], 0);
        ptx_module_free(m);
}

/* Two warps take turns through named barriers, one arriving, one waiting. */
static void test_named_barrier(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 out)\n{\n"
                ".shared .u32 s; .reg .b64 %rd<3>; .reg .b32 %r<4>; .reg .pred %p;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r0, %warpid; setp.eq.u32 %p, %r0, 0; @%p bra "
                "reader;\n"
                "st.shared.u32 [s], 42; bar.arrive 3, 64; ret;\n"
                "reader: bar.sync 3, 64; ld.shared.u32 %r1, [s]; st.global.u32 [%rd0], %r1; ret;\n"
                "}\n");
        uint32_t out = 0;
        void *p = &out;

        CHECK_EQ(run(m, "k", 1, 64, &p, NULL), PTX_FAULT_NONE);
        CHECK_EQ(out, 42);
        ptx_module_free(m);
}

static void test_warp_operations(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 out)\n{\n"
                ".reg .b64 %rd<3>; .reg .b32 %r<16>; .reg .pred %p<6>;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r0, %laneid; mul.wide.u32 %rd1, %r0, 32; "
                "add.s64 "
                "%rd0, %rd0, %rd1;\n"
                "shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffffffff;\n"
                "shfl.sync.up.b32 %r2|%p0, %r0, 3, 0, -1;\n"
                "shfl.sync.down.b32 %r3, %r0, 4, 0x181f, -1;\n" /* segments of 8 */
                "shfl.sync.idx.b32 %r4, %r0, 13, 31, -1;\n"
                "setp.lt.u32 %p1, %r0, 7; vote.sync.ballot.b32 %r5, !%p1, -1; vote.sync.any.pred "
                "%p2, "
                "%p1, -1; vote.sync.all.pred %p3, %p1, -1;\n"
                "redux.sync.add.s32 %r6, %r0, -1;\n"
                "and.b32 %r7, %r0, 3; match.any.sync.b32 %r8, %r7, -1;\n"
                "selp.u32 %r9, 1, 0, %p0; selp.u32 %r10, 2, 0, %p2; selp.u32 %r11, 4, 0, %p3; "
                "or.b32 "
                "%r9, %r9, %r10; or.b32 %r9, %r9, %r11;\n"
                "st.global.v4.u32 [%rd0], {%r1, %r2, %r3, %r4}; st.global.v4.u32 [%rd0+16], {%r5, "
                "%r6, %r8, %r9}; ret;\n}\n");
        _Alignas(32) uint32_t out[32][8];
        void *p = out;

        CHECK_EQ(run(m, "k", 1, 32, &p, NULL), PTX_FAULT_NONE);
        for (unsigned i = 0; i < 32; i++) {
                CHECK_EQ(out[i][0], i ^ 1);
                CHECK_EQ(out[i][1], i >= 3 ? i - 3 : i);
                CHECK_EQ(out[i][2], i % 8 < 4 ? i + 4 : i);
                CHECK_EQ(out[i][3], 13);
                CHECK_EQ(out[i][4], 0xffffff80);
                CHECK_EQ(out[i][5], 496);
                CHECK_EQ(out[i][6], 0x11111111u << i % 4);
                CHECK_EQ(out[i][7], (i >= 3 ? 1u : 0u) | 2);
        }
        ptx_module_free(m);
}

/* A shuffle waits for lanes that come by another way. */
static void test_sync_after_divergence(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 out)\n{\n"
                ".reg .b64 %rd<3>; .reg .b32 %r<8>; .reg .pred %p<3>;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r0, %laneid; mov.u32 %r1, 0; setp.lt.u32 %p0, "
                "%r0, 16; @%p0 bra sum;\n"
                "again: add.u32 %r1, %r1, 2; setp.lt.u32 %p1, %r1, 20; @%p1 bra again; bra sum2;\n"
                "sum: mov.u32 %r1, 1;\n"
                "sum2: bar.warp.sync -1; shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1; mul.wide.u32 "
                "%rd1, "
                "%r0, 4; add.s64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r2; ret;\n}\n");
        uint32_t out[32];
        void *p = out;

        CHECK_EQ(run(m, "k", 1, 32, &p, NULL), PTX_FAULT_NONE);
        for (unsigned i = 0; i < 32; i++)
                CHECK_EQ(out[i], i < 16 ? 20 : 1);
        ptx_module_free(m);
}

static uint64_t fixed_timer(void *userdata)
{
        return (*(uint64_t *)userdata) += 32;
}

static void test_special_registers(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 out)\n{\n"
                ".reg .b64 %rd<6>; .reg .b32 %r<24>;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r3, %tid.x; mov.u32 %r4, %tid.y; mov.u32 %r5, "
                "%ctaid.x; mov.u32 %r6, %ctaid.y; mov.u32 %r13, %nctaid.x; mov.u32 %r14, %ntid.x;\n"
                "mad.lo.u32 %r0, %r6, %r13, %r5; mad.lo.u32 %r1, %r4, %r14, %r3; mad.lo.u32 %r2, "
                "%r0, 6, %r1;\n"
                "mul.wide.u32 %rd1, %r2, 64; add.s64 %rd0, %rd0, %rd1;\n"
                "mov.u32 %r3, %tid.x; mov.u32 %r4, %tid.y; mov.u32 %r5, %ctaid.x; mov.u32 %r6, "
                "%ctaid.y; st.global.v4.u32 [%rd0], {%r3, %r4, %r5, %r6};\n"
                "mov.u32 %r7, %ntid.y; mov.u32 %r8, %nctaid.y; mov.u32 %r9, %smid; mov.u32 %r10, "
                "%laneid; st.global.v4.u32 [%rd0+16], {%r7, %r8, %r9, %r10};\n"
                "mov.u64 %rd2, %gridid; mov.u64 %rd3, %globaltimer; st.global.v2.u64 [%rd0+32], "
                "{%rd2, %rd3}; mov.u32 %r11, %lanemask_lt; mov.u32 %r12, WARP_SZ; st.global.v2.u32 "
                "[%rd0+48], {%r11, %r12}; ret;\n}\n");
        struct {
                uint32_t tid_x, tid_y, ctaid_x, ctaid_y, ntid_y, nctaid_y, smid, laneid;
                uint64_t gridid, timer;
                uint32_t lt, warp;
                uint64_t pad;
        } out[36];
        uint64_t now = 1000;
        struct ptx_env env = {.userdata = &now, .globaltimer = fixed_timer, .sm_count = 4};
        struct ptx_launch launch = {
                .grid = {3, 2, 1}, .block = {3, 2, 1}, .gridid = 0x123456789, .first_sm = 2};
        enum ptx_fault fault;
        void *p = out;

        CHECK_EQ(ptx_run(machine, ptx_module_find_entry(m, "k"), &launch, &p, &env, &fault), 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        for (unsigned i = 0; i < 36; i++) {
                unsigned thread = i % 6, block = i / 6;

                CHECK_EQ(out[i].tid_x, thread % 3);
                CHECK_EQ(out[i].tid_y, thread / 3);
                CHECK_EQ(out[i].ctaid_x, block % 3);
                CHECK_EQ(out[i].ctaid_y, block / 3);
                CHECK_EQ(out[i].ntid_y, 2);
                CHECK_EQ(out[i].nctaid_y, 2);
                CHECK_EQ(out[i].smid, (2 + block) % 4);
                CHECK_EQ(out[i].laneid, thread);
                CHECK_EQ(out[i].gridid, 0x123456789);
                CHECK_EQ(out[i].timer, 1000 + 32 * (block + 1));
                CHECK_EQ(out[i].lt, (1u << thread) - 1);
                CHECK_EQ(out[i].warp, 32);
        }
        ptx_module_free(m);
}

/* What the driver tells a grid: environment registers, and words below the parameters. */
static void test_constant_bank(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 out, .param .u32 n)\n{\n"
                ".reg .b64 %rd<4>; .reg .b32 %r<8>;\n"
                "ld.param.u64 %rd0, [out]; mov.u32 %r0, %envreg6; mov.u32 %r1, %envreg31; "
                "ld.param.u32 %r2, [out+-0x1d8]; ld.param.u32 %r3, [out+-0x1b8]; "
                "st.global.v4.u32 [%rd0], {%r0, %r1, %r2, %r3};\n"
                "ld.param.u64 %rd1, [out+-480]; ld.param.v2.u32 {%r4, %r5}, [out+-0x1d8]; "
                "ld.param.u32 %r6, [n]; ld.param.u32 %r7, [out+-528];\n"
                "st.global.u64 [%rd0+16], %rd1; st.global.v2.u32 [%rd0+24], {%r4, %r5}; "
                "st.global.v2.u32 [%rd0+32], {%r6, %r7}; ret;\n}\n"
                ".visible .entry beyond(.param .u64 p)\n{\n.reg .b32 %r; ld.param.u32 %r, "
                "[p+-532]; ret; }\n"
                ".visible .entry across(.param .u64 p)\n{\n.reg .b32 %r<2>; ld.param.v2.u32 {%r0, "
                "%r1}, [p+-4]; ret; }\n");
        struct {
                _Alignas(16) uint32_t context;
                uint32_t unused, queue, same_context;
                uint64_t gridid;
                uint32_t low, high, n, first;
        } out = {0};
        struct {
                void *p;
                uint32_t n;
        } params = {&out, 11};
        struct ptx_launch launch = {.grid = {1, 1, 1},
                                    .block = {1, 1, 1},
                                    .gridid = 0x987654321,
                                    .context = 3,
                                    .queue = 0x7f2e00014800};
        enum ptx_fault fault;

        memset(&out, 0xff, sizeof(out));
        CHECK_EQ(ptx_run(machine, ptx_module_find_entry(m, "k"), &launch, &params, &plain_env,
                         &fault),
                 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        CHECK_EQ(out.context, 3);
        CHECK_EQ(out.unused, 0);
        CHECK_EQ(out.queue, 0x00014800);
        CHECK_EQ(out.same_context, 3);
        CHECK_EQ(out.gridid, 0x987654321);
        CHECK_EQ(out.low, 0x00014800);
        CHECK_EQ(out.high, 0x7f2e);
        CHECK_EQ(out.n, 11);
        CHECK_EQ(out.first, 0);
        CHECK_EQ(run(m, "beyond", 1, 1, &params, NULL), PTX_FAULT_ADDRESS);
        CHECK(run(m, "across", 1, 1, &params, NULL) != PTX_FAULT_NONE);
        ptx_module_free(m);
}

/* ---- faults ---- */

static uint32_t allowed[16];
static unsigned dropped;

static bool only_allowed(void *userdata, uint64_t address, struct ptx_region *ret_region)
{
        uint64_t start = (uint64_t)allowed;

        if (address < start || address >= start + sizeof(allowed))
                return false;
        *ret_region = (struct ptx_region){
                .start = start, .end = start + sizeof(allowed), .watched = true};
        return true;
}

static bool drop_odd(void *userdata, uint64_t address, unsigned bytes)
{
        bool drop = (address - (uint64_t)allowed) / 4 % 2;

        dropped += drop;
        return drop;
}

static void test_faults(void)
{
        static const struct ptx_env env = {.find_region = only_allowed, .drop_store = drop_odd};
        static const struct ptx_env limited = {.max_instructions = 100000};
        struct ptx_module *m = load(
                HEADER
                ".visible .entry at(.param .u64 p)\n{ .reg .b64 %rd<2>; ld.param.u64 %rd0, [p]; "
                "st.global.u32 [%rd0], 1; ret; }\n"
                ".visible .entry fill(.param .u64 p)\n{ .reg .b64 %rd<3>; .reg .b32 %r<2>; "
                "ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.s64 "
                "%rd0, %rd0, %rd1; st.global.u32 [%rd0], 1; ret; }\n"
                ".visible .entry forever()\n{ again: bra again; }\n"
                ".visible .entry stuck()\n{ .reg .pred %p; .reg .b32 %r; mov.u32 %r, %tid.x; "
                "setp.eq.u32 %p, %r, 0; @%p bra one; bar.sync 1; ret; one: bar.sync 2; ret; }\n"
                ".visible .entry broken()\n{ trap; }\n"
                ".visible .entry outside()\n{ .shared .b8 s[4]; .reg .b32 %r; ld.shared.u32 %r, "
                "[s+4]; ret; }\n"
                ".visible .entry shape()\n.reqntid 32, 2\n{ ret; }\n");
        struct ptx_launch launch = {.grid = {1, 1, 1}, .block = {64, 1, 1}};
        enum ptx_fault fault;
        void *p = allowed;

        CHECK_EQ(run(m, "fill", 1, 16, &p, &env), PTX_FAULT_NONE);
        CHECK_EQ(dropped, 8);
        CHECK_EQ(allowed[0] + allowed[2] + allowed[14], 3);
        CHECK_EQ(allowed[1] + allowed[15], 0);
        CHECK_EQ(run(m, "fill", 1, 17, &p, &env), PTX_FAULT_ADDRESS);
        CHECK_EQ(ptx_machine_fault_address(machine), (uint64_t)&allowed[16]);
        CHECK_EQ(ptx_machine_fault_line(machine), 7);
        p = NULL;
        CHECK_EQ(run(m, "at", 1, 1, &p, &env), PTX_FAULT_ADDRESS);
        p = (uint8_t *)allowed + 2;
        CHECK_EQ(run(m, "at", 1, 1, &p, &env), PTX_FAULT_MISALIGNED);
        CHECK_EQ(run(m, "forever", 1, 1, NULL, &limited), PTX_FAULT_LIMIT);
        CHECK_EQ(run(m, "stuck", 1, 32, NULL, NULL), PTX_FAULT_DEADLOCK);
        CHECK_EQ(run(m, "broken", 1, 1, NULL, NULL), PTX_FAULT_TRAP);
        CHECK_EQ(run(m, "outside", 1, 1, NULL, NULL), PTX_FAULT_ADDRESS);
        CHECK_EQ(ptx_run(machine, ptx_module_find_entry(m, "shape"), &launch, NULL, &plain_env,
                         &fault),
                 -EINVAL);
        ptx_module_free(m);
}

/* Blocks that wait for each other: only possible when all are resident. */
static void test_cooperative(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 p)\n{ .reg .b64 %rd<2>; .reg .b32 %r<3>; .reg .pred "
                "%p; ld.param.u64 %rd0, [p]; red.global.add.u32 [%rd0], 1;\n"
                "wait: nanosleep.u32 100; ld.volatile.global.u32 %r0, [%rd0]; setp.lt.u32 %p, %r0, "
                "96; @%p bra wait; ret; }\n");
        struct ptx_env limited = {.max_instructions = 1000000};
        struct ptx_launch launch = {.grid = {3, 1, 1}, .block = {32, 1, 1}, .cooperative = true};
        uint32_t counter = 0;
        enum ptx_fault fault;
        void *p = &counter;

        CHECK_EQ(ptx_run(machine, ptx_module_find_entry(m, "k"), &launch, &p, &limited, &fault), 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        counter = 0;
        launch.cooperative = false;
        CHECK_EQ(ptx_run(machine, ptx_module_find_entry(m, "k"), &launch, &p, &limited, &fault), 0);
        CHECK_EQ(fault, PTX_FAULT_LIMIT);
        ptx_module_free(m);
}

/* A lane that holds a lock lets the others wait for it within its warp. */
static void test_lock_in_warp(void)
{
        struct ptx_module *m = load(
                HEADER
                ".visible .entry k(.param .u64 p)\n{ .reg .b64 %rd<2>; .reg .b32 %r<4>; .reg .pred "
                "%p; ld.param.u64 %rd0, [p];\n"
                "try: atom.global.cas.b32 %r0, [%rd0], 0, 1; setp.ne.u32 %p, %r0, 0; @%p bra try;\n"
                "ld.volatile.global.u32 %r1, [%rd0+4]; add.u32 %r1, %r1, 1; st.volatile.global.u32 "
                "[%rd0+4], %r1; membar.gl; atom.global.exch.b32 %r0, [%rd0], 0; ret; }\n");
        struct ptx_env limited = {.max_instructions = 10000000};
        uint32_t words[2] = {0};
        void *p = words;

        CHECK_EQ(run(m, "k", 2, 64, &p, &limited), PTX_FAULT_NONE);
        CHECK_EQ(words[1], 128);
        ptx_module_free(m);
}

/* ---- refusals ---- */

static void test_refusals(void)
{
        struct ptx_module *m;
        char log[100];

        refused(".reg .b32 %r<2>; frobnicate.u32 %r0, %r1;", "frobnicate");
        refused(".reg .b32 %r<2>; add.rz.u32 %r0, %r1, %r1;", "add.rz.u32");
        refused(".reg .f32 %f<2>; add.sat.f32 %f0, %f1, %f1;", "add.sat.f32");
        refused(".reg .b16 %h<2>; add.f16 %h0, %h1, %h1;", "add");
        refused(".reg .b32 %r<2>; add.u64 %r0, %r1, %r1;", "%r0");
        refused(".reg .b32 %r<2>; add.u32 %r0, %r2, %r1;", "%r2");
        refused(".reg .f32 %f; .reg .b32 %r; add.u32 %r, %f, 1;", "%f");
        refused(".reg .b32 %r; ld.global.evict_maybe.u32 %r, [0];", "evict_maybe");
        refused(".reg .b32 %r; ld.global.u32 %r, [%r;", "expected");
        refused("bra nowhere;", "nowhere");
        refused("{ inner: } bra inner;", "inner");
        refused("again: again: ret;", "twice");
        refused(".reg .b32 %r; mov.u32 %r, %envreg32;", "%envreg32");
        refused(".reg .b64 %rd; mov.u64 %rd, %envreg3;", "does not fit");
        refused("call unknown;", "unknown");
        refused(".reg .b32 %r<2>; mov.u32 %r0, %r1", "expected");
        refused(".reg .b32 %r; cvt.u32.f32 %r, 1.0;", "rounding");
        refused(".unheard_of 3;", "unheard_of");
        refused(".reg .b64 %rd; atom.global.add.s64 %rd, [0], %rd;", "atomic");
        CHECK_EQ(ptx_module_load("", 0, 90, log, sizeof(log), &m), -EINVAL);
        CHECK(strstr(log, ".version") != NULL);
        CHECK_EQ(ptx_module_load(".version 8.0\n.target sm_100\n", 28, 90, log, sizeof(log), &m),
                 -EINVAL);
        CHECK(strstr(log, "sm_100") != NULL);
        CHECK_EQ(ptx_module_load(HEADER "\x01", strlen(HEADER) + 1, 90, log, sizeof(log), &m),
                 -EINVAL);
        CHECK(strstr(log, "line 4") != NULL);
        refused(".reg .b32 %r; mov.u32 %r, 99999999999999999999;", "line 6");
}

static void test_recursion_is_refused(void)
{
        struct ptx_module *m;
        char log[200];
        const char *text = HEADER ".func f(.reg .u32 x)\n{ call f, (x); ret; }\n"
                                  ".visible .entry k()\n{ call f, (1); ret; }\n";

        CHECK_EQ(ptx_module_load(text, strlen(text), 90, log, sizeof(log), &m), -EINVAL);
        CHECK(strstr(log, "recursion") != NULL);
}

/* Functions that nothing calls have to be understood all the same. */
static void test_uncalled_functions(void)
{
        struct ptx_module *m;
        char log[200];
        const char *fine =
                HEADER ".func (.param .b32 r) f(.reg .u32 x, .param .b64 y)\n{ .reg .u32 z; "
                       "add.u32 z, x, 1; st.param.b32 [r], z; ret; }\n"
                       ".visible .entry k()\n{ ret; }\n";
        const char *wrong = HEADER ".func f(.reg .u32 x)\n{ frobnicate x; ret; }\n"
                                   ".visible .entry k()\n{ ret; }\n";

        m = load(fine);
        CHECK_EQ(ptx_module_entry_count(m), 1);
        ptx_module_free(m);
        CHECK_EQ(ptx_module_load(wrong, strlen(wrong), 90, log, sizeof(log), &m), -EINVAL);
        CHECK(strstr(log, "line 5") && strstr(log, "frobnicate"));
}

int main(void)
{
        machine = ptx_machine_new();
        CHECK(machine != NULL);
        TEST(test_add_sub_mul);
        TEST(test_divide);
        TEST(test_minimum_absolute);
        TEST(test_logic_shift);
        TEST(test_bits);
        TEST(test_compare_select);
        TEST(test_carry);
        TEST(test_convert);
        TEST(test_float);
        TEST(test_unordered);
        TEST(test_memory_widths);
        TEST(test_atomics);
        TEST(test_spaces);
        TEST(test_scopes);
        TEST(test_divergence);
        TEST(test_calls);
        TEST(test_branch_table);
        TEST(test_barrier);
        TEST(test_named_barrier);
        TEST(test_warp_operations);
        TEST(test_sync_after_divergence);
        TEST(test_special_registers);
        TEST(test_constant_bank);
        TEST(test_faults);
        TEST(test_cooperative);
        TEST(test_lock_in_warp);
        TEST(test_refusals);
        TEST(test_recursion_is_refused);
        TEST(test_uncalled_functions);
        ptx_machine_free(machine);
        return 0;
}
