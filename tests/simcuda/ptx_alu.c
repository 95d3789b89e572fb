/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Arithmetic, logic, comparison and conversion. Each handler is one loop over
 * the active lanes with the operation in its body; macros write the loops.
 */
#include "ptx_alu.h"

#include <math.h>

static inline uint64_t get_u64(uint64_t v)
{
        return v;
}
static inline int64_t get_s64(uint64_t v)
{
        return (int64_t)v;
}
static inline uint32_t get_u32(uint64_t v)
{
        return (uint32_t)v;
}
static inline int32_t get_s32(uint64_t v)
{
        return (int32_t)v;
}
static inline uint16_t get_u16(uint64_t v)
{
        return (uint16_t)v;
}
static inline int16_t get_s16(uint64_t v)
{
        return (int16_t)v;
}
static inline bool get_pred(uint64_t v)
{
        return v & 1;
}
static inline float get_f32(uint64_t v)
{
        uint32_t bits = (uint32_t)v;
        float f;

        memcpy(&f, &bits, sizeof(f));
        return f;
}
static inline double get_f64(uint64_t v)
{
        double d;

        memcpy(&d, &v, sizeof(d));
        return d;
}

static inline uint64_t put_u64(uint64_t v)
{
        return v;
}
static inline uint64_t put_s64(int64_t v)
{
        return (uint64_t)v;
}
static inline uint64_t put_u32(uint32_t v)
{
        return v;
}
static inline uint64_t put_s32(int32_t v)
{
        return (uint32_t)v;
}
static inline uint64_t put_u16(uint16_t v)
{
        return v;
}
static inline uint64_t put_s16(int16_t v)
{
        return (uint16_t)v;
}
static inline uint64_t put_pred(bool v)
{
        return v;
}
static inline uint64_t put_f32(float v)
{
        uint32_t bits;

        memcpy(&bits, &v, sizeof(bits));
        return bits;
}
static inline uint64_t put_f64(double v)
{
        uint64_t bits;

        memcpy(&bits, &v, sizeof(bits));
        return bits;
}

#define HANDLER(name)                                                                              \
        static void name(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)

#define SOURCE(n)                                                                                  \
        const uint64_t *src##n = ptx_src(warp, insn->src[n]);                                      \
        const unsigned stride##n = ptx_stride(insn->src[n])

#define UNARY(name, ta, tr, expression)                                                            \
        HANDLER(name)                                                                              \
        {                                                                                          \
                SOURCE(0);                                                                         \
                uint64_t *dst = ptx_dst(warp, insn->dst);                                          \
                PTX_LANES(mask, lane)                                                              \
                {                                                                                  \
                        __auto_type a = get_##ta(src0[lane * stride0]);                            \
                        dst[lane] = put_##tr(expression);                                          \
                }                                                                                  \
        }

#define BINARY(name, ta, tb, tr, expression)                                                       \
        HANDLER(name)                                                                              \
        {                                                                                          \
                SOURCE(0);                                                                         \
                SOURCE(1);                                                                         \
                uint64_t *dst = ptx_dst(warp, insn->dst);                                          \
                PTX_LANES(mask, lane)                                                              \
                {                                                                                  \
                        __auto_type a = get_##ta(src0[lane * stride0]);                            \
                        __auto_type b = get_##tb(src1[lane * stride1]);                            \
                        dst[lane] = put_##tr(expression);                                          \
                }                                                                                  \
        }

#define TERNARY(name, ta, tb, tc, tr, expression)                                                  \
        HANDLER(name)                                                                              \
        {                                                                                          \
                SOURCE(0);                                                                         \
                SOURCE(1);                                                                         \
                SOURCE(2);                                                                         \
                uint64_t *dst = ptx_dst(warp, insn->dst);                                          \
                PTX_LANES(mask, lane)                                                              \
                {                                                                                  \
                        __auto_type a = get_##ta(src0[lane * stride0]);                            \
                        __auto_type b = get_##tb(src1[lane * stride1]);                            \
                        __auto_type c = get_##tc(src2[lane * stride2]);                            \
                        dst[lane] = put_##tr(expression);                                          \
                }                                                                                  \
        }

#define QUATERNARY(name, t, tc, td, expression)                                                    \
        HANDLER(name)                                                                              \
        {                                                                                          \
                SOURCE(0);                                                                         \
                SOURCE(1);                                                                         \
                SOURCE(2);                                                                         \
                SOURCE(3);                                                                         \
                uint64_t *dst = ptx_dst(warp, insn->dst);                                          \
                PTX_LANES(mask, lane)                                                              \
                {                                                                                  \
                        __auto_type a = get_##t(src0[lane * stride0]);                             \
                        __auto_type b = get_##t(src1[lane * stride1]);                             \
                        __auto_type c = get_##tc(src2[lane * stride2]);                            \
                        __auto_type e = get_##td(src3[lane * stride3]);                            \
                        dst[lane] = put_##t(expression);                                           \
                }                                                                                  \
        }

/* Integers. Wrap-around is the same for signed and unsigned: computed unsigned. */
BINARY(add_16, u16, u16, u16, (uint16_t)(a + b))
BINARY(add_32, u32, u32, u32, a + b)
BINARY(add_64, u64, u64, u64, a + b)
BINARY(sub_16, u16, u16, u16, (uint16_t)(a - b))
BINARY(sub_32, u32, u32, u32, a - b)
BINARY(sub_64, u64, u64, u64, a - b)
BINARY(mul_lo_16, u16, u16, u16, (uint16_t)((uint32_t)a *b))
BINARY(mul_lo_32, u32, u32, u32, a *b)
BINARY(mul_lo_64, u64, u64, u64, a *b)
BINARY(mul_hi_u16, u16, u16, u16, (uint16_t)(((uint32_t)a * b) >> 16))
BINARY(mul_hi_s16, s16, s16, s16, (int16_t)(((int32_t)a * b) >> 16))
BINARY(mul_hi_u32, u32, u32, u32, (uint32_t)(((uint64_t)a * b) >> 32))
BINARY(mul_hi_s32, s32, s32, s32, (int32_t)(((int64_t)a * b) >> 32))
BINARY(mul_hi_u64, u64, u64, u64, (uint64_t)(((unsigned __int128)a * b) >> 64))
BINARY(mul_hi_s64, s64, s64, s64, (int64_t)(((__int128)a * b) >> 64))
BINARY(mul_wide_u16, u16, u16, u32, (uint32_t)a *b)
BINARY(mul_wide_s16, s16, s16, s32, (int32_t)a *b)
BINARY(mul_wide_u32, u32, u32, u64, (uint64_t)a *b)
BINARY(mul_wide_s32, s32, s32, s64, (int64_t)a *b)
TERNARY(mad_lo_16, u16, u16, u16, u16, (uint16_t)((uint32_t)a *b + c))
TERNARY(mad_lo_32, u32, u32, u32, u32, a *b + c)
TERNARY(mad_lo_64, u64, u64, u64, u64, a *b + c)
TERNARY(mad_hi_u16, u16, u16, u16, u16, (uint16_t)((((uint32_t)a * b) >> 16) + c))
TERNARY(mad_hi_s16, s16, s16, u16, u16, (uint16_t)((((int32_t)a * b) >> 16) + c))
TERNARY(mad_hi_u32, u32, u32, u32, u32, (uint32_t)(((uint64_t)a * b) >> 32) + c)
TERNARY(mad_hi_s32, s32, s32, u32, u32, (uint32_t)(((int64_t)a * b) >> 32) + c)
TERNARY(mad_hi_u64, u64, u64, u64, u64, (uint64_t)(((unsigned __int128)a * b) >> 64) + c)
TERNARY(mad_hi_s64, s64, s64, u64, u64, (uint64_t)(((__int128)a * b) >> 64) + c)
TERNARY(mad_wide_u16, u16, u16, u32, u32, (uint32_t)a *b + c)
TERNARY(mad_wide_s16, s16, s16, u32, u32, (uint32_t)((int32_t)a *b) + c)
TERNARY(mad_wide_u32, u32, u32, u64, u64, (uint64_t)a *b + c)
TERNARY(mad_wide_s32, s32, s32, u64, u64, (uint64_t)((int64_t)a *b) + c)

#define LOW_24(v)  ((v)&0xffffff)
#define SIGN_24(v) ((int64_t)(int32_t)((uint32_t)(v) << 8) >> 8)
BINARY(mul24_lo_u32, u32, u32, u32, (uint32_t)((uint64_t)LOW_24(a) * LOW_24(b)))
BINARY(mul24_lo_s32, u32, u32, u32, (uint32_t)(SIGN_24(a) * SIGN_24(b)))
BINARY(mul24_hi_u32, u32, u32, u32, (uint32_t)(((uint64_t)LOW_24(a) * LOW_24(b)) >> 16))
BINARY(mul24_hi_s32, u32, u32, u32, (uint32_t)((SIGN_24(a) * SIGN_24(b)) >> 16))
TERNARY(mad24_lo_u32, u32, u32, u32, u32, (uint32_t)((uint64_t)LOW_24(a) * LOW_24(b)) + c)
TERNARY(mad24_hi_u32, u32, u32, u32, u32, (uint32_t)(((uint64_t)LOW_24(a) * LOW_24(b)) >> 16) + c)
TERNARY(mad24_hi_s32, u32, u32, u32, u32, (uint32_t)((SIGN_24(a) * SIGN_24(b)) >> 16) + c)
TERNARY(mad24_lo_s32, u32, u32, u32, u32, (uint32_t)(SIGN_24(a) * SIGN_24(b)) + c)

/* Division by zero gives all ones and the dividend as remainder, as the hardware does. */
BINARY(div_u16, u16, u16, u16, (uint16_t)(b ? a / b : 0xffff))
BINARY(div_s16, s16, s16, s16, (int16_t)(b ? a / b : -1))
BINARY(div_u32, u32, u32, u32, b ? a / b : UINT32_MAX)
BINARY(div_s32, s32, s32, s32, b == 0 ? -1 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b)
BINARY(div_u64, u64, u64, u64, b ? a / b : UINT64_MAX)
BINARY(div_s64, s64, s64, s64, b == 0 ? -1 : b == -1 ? (int64_t)(0ull - (uint64_t)a) : a / b)
BINARY(rem_u16, u16, u16, u16, (uint16_t)(b ? a % b : a))
BINARY(rem_s16, s16, s16, s16, (int16_t)(b ? a % b : a))
BINARY(rem_u32, u32, u32, u32, b ? a % b : a)
BINARY(rem_s32, s32, s32, s32, b == 0 ? a : b == -1 ? 0 : a % b)
BINARY(rem_u64, u64, u64, u64, b ? a % b : a)
BINARY(rem_s64, s64, s64, s64, b == 0 ? a : b == -1 ? 0 : a % b)

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
BINARY(min_u16, u16, u16, u16, MIN(a, b))
BINARY(min_s16, s16, s16, s16, MIN(a, b))
BINARY(min_u32, u32, u32, u32, MIN(a, b))
BINARY(min_s32, s32, s32, s32, MIN(a, b))
BINARY(min_u64, u64, u64, u64, MIN(a, b))
BINARY(min_s64, s64, s64, s64, MIN(a, b))
BINARY(max_u16, u16, u16, u16, MAX(a, b))
BINARY(max_s16, s16, s16, s16, MAX(a, b))
BINARY(max_u32, u32, u32, u32, MAX(a, b))
BINARY(max_s32, s32, s32, s32, MAX(a, b))
BINARY(max_u64, u64, u64, u64, MAX(a, b))
BINARY(max_s64, s64, s64, s64, MAX(a, b))

UNARY(abs_s16, s16, s16, (int16_t)(a < 0 ? -a : a))
UNARY(abs_s32, s32, u32, a < 0 ? 0u - (uint32_t)a : (uint32_t)a)
UNARY(abs_s64, s64, u64, a < 0 ? 0ull - (uint64_t)a : (uint64_t)a)
UNARY(neg_s16, u16, u16, (uint16_t)(0 - a))
UNARY(neg_s32, u32, u32, 0 - a)
UNARY(neg_s64, u64, u64, 0 - a)

BINARY(and_64, u64, u64, u64, a &b)
BINARY(or_64, u64, u64, u64, a | b)
BINARY(xor_64, u64, u64, u64, a ^ b)
BINARY(and_32, u32, u32, u32, a &b)
BINARY(or_32, u32, u32, u32, a | b)
BINARY(xor_32, u32, u32, u32, a ^ b)
BINARY(and_16, u16, u16, u16, (uint16_t)(a &b))
BINARY(or_16, u16, u16, u16, (uint16_t)(a | b))
BINARY(xor_16, u16, u16, u16, (uint16_t)(a ^ b))
BINARY(and_pred, pred, pred, pred, a &b)
BINARY(or_pred, pred, pred, pred, a | b)
BINARY(xor_pred, pred, pred, pred, a ^ b)
UNARY(not_16, u16, u16, (uint16_t)~a)
UNARY(not_32, u32, u32, ~a)
UNARY(not_64, u64, u64, ~a)
UNARY(not_pred, pred, pred, !a)
UNARY(cnot_16, u16, u16, a == 0)
UNARY(cnot_32, u32, u32, a == 0)
UNARY(cnot_64, u64, u64, a == 0)

/* Shift amounts beyond the width act as the width. */
BINARY(shl_16, u16, u32, u16, (uint16_t)(b > 15 ? 0 : (uint32_t)a << b))
BINARY(shl_32, u32, u32, u32, b > 31 ? 0 : a << b)
BINARY(shl_64, u64, u32, u64, b > 63 ? 0 : a << b)
BINARY(shr_u16, u16, u32, u16, (uint16_t)(b > 15 ? 0 : a >> b))
BINARY(shr_u32, u32, u32, u32, b > 31 ? 0 : a >> b)
BINARY(shr_u64, u64, u32, u64, b > 63 ? 0 : a >> b)
BINARY(shr_s16, s16, u32, s16, (int16_t)(a >> MIN(b, 15)))
BINARY(shr_s32, s32, u32, s32, a >> MIN(b, 31))
BINARY(shr_s64, s64, u32, s64, a >> MIN(b, 63))

static inline uint32_t funnel_left(uint32_t low, uint32_t high, unsigned n)
{
        return n == 0 ? high : n >= 32 ? low : high << n | low >> (32 - n);
}
static inline uint32_t funnel_right(uint32_t low, uint32_t high, unsigned n)
{
        return n == 0 ? low : n >= 32 ? high : high << (32 - n) | low >> n;
}
TERNARY(shf_l_wrap, u32, u32, u32, u32, funnel_left(a, b, c & 31))
TERNARY(shf_l_clamp, u32, u32, u32, u32, funnel_left(a, b, MIN(c, 32)))
TERNARY(shf_r_wrap, u32, u32, u32, u32, funnel_right(a, b, c & 31))
TERNARY(shf_r_clamp, u32, u32, u32, u32, funnel_right(a, b, MIN(c, 32)))

UNARY(popc_32, u32, u32, (uint32_t)__builtin_popcount(a))
UNARY(popc_64, u64, u32, (uint32_t)__builtin_popcountll(a))
UNARY(clz_32, u32, u32, a ? (uint32_t)__builtin_clz(a) : 32)
UNARY(clz_64, u64, u32, a ? (uint32_t)__builtin_clzll(a) : 64)

static inline uint64_t reverse_bits(uint64_t v)
{
        v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
        v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
        v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
        return __builtin_bswap64(v);
}
UNARY(brev_32, u32, u32, (uint32_t)(reverse_bits(a) >> 32))
UNARY(brev_64, u64, u64, reverse_bits(a))

/* Position of the highest one (of the highest bit unlike the sign), or all ones. */
static inline uint32_t find_high(uint64_t v)
{
        return v ? 63 - (uint32_t)__builtin_clzll(v) : UINT32_MAX;
}
static inline uint32_t shift_amount(uint32_t position, uint32_t top)
{
        return position == UINT32_MAX ? UINT32_MAX : top - position;
}
UNARY(bfind_u32, u32, u32, find_high(a))
UNARY(bfind_s32, s32, u32, find_high((uint32_t)(a < 0 ? ~a : a)))
UNARY(bfind_u64, u64, u32, find_high(a))
UNARY(bfind_s64, s64, u32, find_high((uint64_t)(a < 0 ? ~a : a)))
UNARY(bfind_shift_u32, u32, u32, shift_amount(find_high(a), 31))
UNARY(bfind_shift_s32, s32, u32, shift_amount(find_high((uint32_t)(a < 0 ? ~a : a)), 31))
UNARY(bfind_shift_u64, u64, u32, shift_amount(find_high(a), 63))
UNARY(bfind_shift_s64, s64, u32, shift_amount(find_high((uint64_t)(a < 0 ? ~a : a)), 63))

static inline uint64_t low_bits(unsigned n)
{
        return n >= 64 ? UINT64_MAX : (1ULL << n) - 1;
}

/* Field extract: bits beyond the top read as zero, or as the sign. */
static uint64_t extract(uint64_t value, uint32_t position, uint32_t length, unsigned width,
                        bool is_signed)
{
        unsigned pos = position & 0xff, len = length & 0xff, sign_at;
        uint64_t field = pos >= width ? 0 : value >> pos;
        uint64_t present = pos >= width ? 0 : MIN(len, width - pos);

        field &= low_bits((unsigned)present);
        if (!is_signed || len == 0)
                return field;
        sign_at = MIN(pos + len - 1, width - 1);
        if (value >> sign_at & 1)
                field |= ~low_bits((unsigned)present);
        return field & low_bits(width);
}
TERNARY(bfe_u32, u32, u32, u32, u64, extract(a, b, c, 32, false))
TERNARY(bfe_s32, u32, u32, u32, u64, extract(a, b, c, 32, true))
TERNARY(bfe_u64, u64, u32, u32, u64, extract(a, b, c, 64, false))
TERNARY(bfe_s64, u64, u32, u32, u64, extract(a, b, c, 64, true))

static uint64_t insert(uint64_t field, uint64_t base, uint32_t position, uint32_t length,
                       unsigned width)
{
        unsigned pos = position & 0xff, len = length & 0xff;
        uint64_t bits;

        if (pos >= width || len == 0)
                return base;
        bits = low_bits(MIN(len, width - pos)) << pos;
        return (base & ~bits) | (field << pos & bits);
}
QUATERNARY(bfi_32, u32, u32, u32, (uint32_t)insert(a, b, c, e, 32))
QUATERNARY(bfi_64, u64, u32, u32, insert(a, b, c, e, 64))

static uint32_t permute(uint32_t low, uint32_t high, uint32_t selector)
{
        uint64_t bytes = (uint64_t)high << 32 | low;
        uint32_t result = 0;

        for (unsigned i = 0; i < 4; i++) {
                unsigned pick = selector >> (4 * i);
                uint8_t byte = (uint8_t)(bytes >> (8 * (pick & 7)));

                if (pick & 8)
                        byte = byte & 0x80 ? 0xff : 0;
                result |= (uint32_t)byte << (8 * i);
        }
        return result;
}
TERNARY(prmt_32, u32, u32, u32, u32, permute(a, b, c))

static uint32_t logic3(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
        uint32_t result = 0;

        for (unsigned row = 0; row < 8; row++) {
                if (table >> row & 1)
                        result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
        }
        return result;
}
QUATERNARY(lop3_32, u32, u32, u32, logic3(a, b, c, e))

TERNARY(sad_u16, u16, u16, u16, u16, (uint16_t)(c + (a < b ? b - a : a - b)))
TERNARY(sad_s16, s16, s16, u16, u16, (uint16_t)(c + (a < b ? b - a : a - b)))
TERNARY(sad_u32, u32, u32, u32, u32, c + (a < b ? b - a : a - b))
TERNARY(sad_s32, s32, s32, u32, u32,
        c + (a < b ? (uint32_t)b - (uint32_t)a : (uint32_t)a - (uint32_t)b))
TERNARY(sad_u64, u64, u64, u64, u64, c + (a < b ? b - a : a - b))
TERNARY(sad_s64, s64, s64, u64, u64,
        c + (a < b ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b))

TERNARY(selp_64, u64, u64, pred, u64, c ? a : b)

/*
 * Extended precision: the carry lives in a register of its own (dst2 to write,
 * the source after the operands to read).
 */
#define CARRY(name, t, wide, sources, carry_in, expression)                                        \
        HANDLER(name)                                                                              \
        {                                                                                          \
                SOURCE(0);                                                                         \
                SOURCE(1);                                                                         \
                const uint64_t *src2 = sources > 2 ? ptx_src(warp, insn->src[2]) : src0;           \
                const unsigned stride2 = sources > 2 ? ptx_stride(insn->src[2]) : stride0;         \
                const int32_t carry_ref = carry_in ? insn->src[sources] : insn->src[0];            \
                uint64_t *dst = ptx_dst(warp, insn->dst);                                          \
                PTX_LANES(mask, lane)                                                              \
                {                                                                                  \
                        wide a = get_##t(src0[lane * stride0]);                                    \
                        wide b = get_##t(src1[lane * stride1]);                                    \
                        wide c __attribute__((unused)) = get_##t(src2[lane * stride2]);            \
                        wide k __attribute__((unused)) = ptx_read(warp, carry_ref, lane) & 1;      \
                        wide r = expression;                                                       \
                        if (insn->dst2 >= 0)                                                       \
                                ptx_dst(warp, insn->dst2)[lane] = r >> (4 * sizeof(wide)) & 1;     \
                        dst[lane] = put_##t((__typeof__(get_##t(0)))r);                            \
                }                                                                                  \
        }
#define LOW_HALF(v)  ((v) & (((__typeof__(v))1 << (4 * sizeof(v))) - 1))
#define HIGH_HALF(v) ((v) >> (4 * sizeof(v)))
typedef unsigned __int128 u128;
CARRY(add_cc_32, u32, uint64_t, 2, false, a + b)
CARRY(add_cc_64, u64, u128, 2, false, a + b)
CARRY(addc_32, u32, uint64_t, 2, true, a + b + k)
CARRY(addc_64, u64, u128, 2, true, a + b + k)
CARRY(sub_cc_32, u32, uint64_t, 2, false, a - b)
CARRY(sub_cc_64, u64, u128, 2, false, a - b)
CARRY(subc_32, u32, uint64_t, 2, true, a - b - k)
CARRY(subc_64, u64, u128, 2, true, a - b - k)
CARRY(mad_lo_cc_32, u32, uint64_t, 3, false, LOW_HALF(a *b) + c)
CARRY(mad_lo_cc_64, u64, u128, 3, false, LOW_HALF(a *b) + c)
CARRY(mad_hi_cc_32, u32, uint64_t, 3, false, HIGH_HALF(a *b) + c)
CARRY(mad_hi_cc_64, u64, u128, 3, false, HIGH_HALF(a *b) + c)
CARRY(madc_lo_32, u32, uint64_t, 3, true, LOW_HALF(a *b) + c + k)
CARRY(madc_lo_64, u64, u128, 3, true, LOW_HALF(a *b) + c + k)
CARRY(madc_hi_32, u32, uint64_t, 3, true, HIGH_HALF(a *b) + c + k)
CARRY(madc_hi_64, u64, u128, 3, true, HIGH_HALF(a *b) + c + k)

/* Floating point. */
BINARY(add_f32, f32, f32, f32, a + b)
BINARY(add_f64, f64, f64, f64, a + b)
BINARY(sub_f32, f32, f32, f32, a - b)
BINARY(sub_f64, f64, f64, f64, a - b)
BINARY(mul_f32, f32, f32, f32, a *b)
BINARY(mul_f64, f64, f64, f64, a *b)
BINARY(div_f32, f32, f32, f32, a / b)
BINARY(div_f64, f64, f64, f64, a / b)
TERNARY(fma_f32, f32, f32, f32, f32, fmaf(a, b, c))
TERNARY(fma_f64, f64, f64, f64, f64, fma(a, b, c))
BINARY(min_f32, f32, f32, f32, fminf(a, b))
BINARY(min_f64, f64, f64, f64, fmin(a, b))
BINARY(max_f32, f32, f32, f32, fmaxf(a, b))
BINARY(max_f64, f64, f64, f64, fmax(a, b))
UNARY(abs_f32, f32, f32, fabsf(a))
UNARY(abs_f64, f64, f64, fabs(a))
UNARY(neg_f32, f32, f32, -a)
UNARY(neg_f64, f64, f64, -a)
UNARY(sqrt_f32, f32, f32, sqrtf(a))
UNARY(sqrt_f64, f64, f64, sqrt(a))
UNARY(rsqrt_f32, f32, f32, 1.0f / sqrtf(a))
UNARY(rsqrt_f64, f64, f64, 1.0 / sqrt(a))
UNARY(rcp_f32, f32, f32, 1.0f / a)
UNARY(rcp_f64, f64, f64, 1.0 / a)
UNARY(sin_f32, f32, f32, sinf(a))
UNARY(cos_f32, f32, f32, cosf(a))
UNARY(lg2_f32, f32, f32, log2f(a))
UNARY(ex2_f32, f32, f32, exp2f(a))
UNARY(tanh_f32, f32, f32, tanhf(a))
BINARY(copysign_f32, f32, f32, f32, copysignf(b, a))
BINARY(copysign_f64, f64, f64, f64, copysign(b, a))
UNARY(finite_f32, f32, pred, isfinite(a) != 0)
UNARY(finite_f64, f64, pred, isfinite(a) != 0)
UNARY(infinite_f32, f32, pred, isinf(a) != 0)
UNARY(infinite_f64, f64, pred, isinf(a) != 0)
UNARY(number_f32, f32, pred, !isnan(a))
UNARY(number_f64, f64, pred, !isnan(a))
UNARY(notanumber_f32, f32, pred, isnan(a) != 0)
UNARY(notanumber_f64, f64, pred, isnan(a) != 0)

#define INT3(name, sig, fn)                                                                        \
        {name, "", PTX_U16, sig, "", fn##_16}, {name, "", PTX_S16, sig, "", fn##_16},              \
                {name, "", PTX_U32, sig, "", fn##_32}, {name, "", PTX_S32, sig, "", fn##_32},      \
                {name, "", PTX_U64, sig, "", fn##_64},                                             \
        {                                                                                          \
                name, "", PTX_S64, sig, "", fn##_64                                                \
        }
#define LOW3(name, sig, fn)                                                                        \
        {name, "lo", PTX_U16, sig, "", fn##_16}, {name, "lo", PTX_S16, sig, "", fn##_16},          \
                {name, "lo", PTX_U32, sig, "", fn##_32}, {name, "lo", PTX_S32, sig, "", fn##_32},  \
                {name, "lo", PTX_U64, sig, "", fn##_64},                                           \
        {                                                                                          \
                name, "lo", PTX_S64, sig, "", fn##_64                                              \
        }
#define SIGN3(name, variant, sig, fn)                                                              \
        {name, variant, PTX_U16, sig, "", fn##_u16}, {name, variant, PTX_S16, sig, "", fn##_s16},  \
                SIGN2(name, variant, sig, fn)
#define SIGN2(name, variant, sig, fn)                                                              \
        {name, variant, PTX_U32, sig, "", fn##_u32}, {name, variant, PTX_S32, sig, "", fn##_s32},  \
                {name, variant, PTX_U64, sig, "", fn##_u64},                                       \
        {                                                                                          \
                name, variant, PTX_S64, sig, "", fn##_s64                                          \
        }
#define WIDE2(name, sig, fn)                                                                       \
        {name, "wide", PTX_U16, sig, "", fn##_u16}, {name, "wide", PTX_S16, sig, "", fn##_s16},    \
                {name, "wide", PTX_U32, sig, "", fn##_u32},                                        \
        {                                                                                          \
                name, "wide", PTX_S32, sig, "", fn##_s32                                           \
        }
#define BITS3(name, sig, fn)                                                                       \
        {name, "", PTX_B16, sig, "", fn##_16}, {name, "", PTX_B32, sig, "", fn##_32},              \
        {                                                                                          \
                name, "", PTX_B64, sig, "", fn##_64                                                \
        }
#define LOGIC(name, sig, fn)                                                                       \
        BITS3(name, sig, fn),                                                                      \
        {                                                                                          \
                name, "", PTX_PRED, sig, "", fn##_pred                                             \
        }
#define FLOAT2(name, sig, ignorable, fn)                                                           \
        {name, "", PTX_F32, sig, ignorable, fn##_f32},                                             \
        {                                                                                          \
                name, "", PTX_F64, sig, ignorable, fn##_f64                                        \
        }
#define CARRY2(name, variant, sig, fn)                                                             \
        {name, variant, PTX_U32, sig, "", fn##_32}, {name, variant, PTX_S32, sig, "", fn##_32},    \
                {name, variant, PTX_U64, sig, "", fn##_64},                                        \
        {                                                                                          \
                name, variant, PTX_S64, sig, "", fn##_64                                           \
        }
#define SELECT(type)                                                                               \
        {                                                                                          \
                "selp", "", type, "tttp", "", selp_64                                              \
        }
#define TESTP(variant, fn)                                                                         \
        {"testp", variant, PTX_F32, "pt", "", fn##_f32},                                           \
        {                                                                                          \
                "testp", variant, PTX_F64, "pt", "", fn##_f64                                      \
        }

const struct ptx_simple_op ptx_simple_ops[] = {
        INT3("add", "ttt", add),
        INT3("sub", "ttt", sub),
        LOW3("mul", "ttt", mul_lo),
        SIGN3("mul", "hi", "ttt", mul_hi),
        WIDE2("mul", "wtt", mul_wide),
        LOW3("mad", "tttt", mad_lo),
        SIGN3("mad", "hi", "tttt", mad_hi),
        WIDE2("mad", "wttw", mad_wide),
        {"mul24", "lo", PTX_U32, "ttt", "", mul24_lo_u32},
        {"mul24", "lo", PTX_S32, "ttt", "", mul24_lo_s32},
        {"mul24", "hi", PTX_U32, "ttt", "", mul24_hi_u32},
        {"mul24", "hi", PTX_S32, "ttt", "", mul24_hi_s32},
        {"mad24", "lo", PTX_U32, "tttt", "", mad24_lo_u32},
        {"mad24", "lo", PTX_S32, "tttt", "", mad24_lo_s32},
        {"mad24", "hi", PTX_U32, "tttt", "", mad24_hi_u32},
        {"mad24", "hi", PTX_S32, "tttt", "", mad24_hi_s32},
        SIGN3("div", "", "ttt", div),
        SIGN3("rem", "", "ttt", rem),
        SIGN3("min", "", "ttt", min),
        SIGN3("max", "", "ttt", max),
        {"abs", "", PTX_S16, "tt", "", abs_s16},
        {"abs", "", PTX_S32, "tt", "", abs_s32},
        {"abs", "", PTX_S64, "tt", "", abs_s64},
        {"neg", "", PTX_S16, "tt", "", neg_s16},
        {"neg", "", PTX_S32, "tt", "", neg_s32},
        {"neg", "", PTX_S64, "tt", "", neg_s64},
        LOGIC("and", "ttt", and),
        LOGIC("or", "ttt", or),
        LOGIC("xor", "ttt", xor),
        LOGIC("not", "tt", not ),
        BITS3("cnot", "tt", cnot),
        BITS3("shl", "ttu", shl),
        {"shr", "", PTX_B16, "ttu", "", shr_u16},
        {"shr", "", PTX_B32, "ttu", "", shr_u32},
        {"shr", "", PTX_B64, "ttu", "", shr_u64},
        SIGN3("shr", "", "ttu", shr),
        {"shf", "l wrap", PTX_B32, "tttu", "", shf_l_wrap},
        {"shf", "l clamp", PTX_B32, "tttu", "", shf_l_clamp},
        {"shf", "r wrap", PTX_B32, "tttu", "", shf_r_wrap},
        {"shf", "r clamp", PTX_B32, "tttu", "", shf_r_clamp},
        {"popc", "", PTX_B32, "ut", "", popc_32},
        {"popc", "", PTX_B64, "ut", "", popc_64},
        {"clz", "", PTX_B32, "ut", "", clz_32},
        {"clz", "", PTX_B64, "ut", "", clz_64},
        {"brev", "", PTX_B32, "tt", "", brev_32},
        {"brev", "", PTX_B64, "tt", "", brev_64},
        SIGN2("bfind", "", "ut", bfind),
        SIGN2("bfind", "shiftamt", "ut", bfind_shift),
        SIGN2("bfe", "", "ttuu", bfe),
        {"bfi", "", PTX_B32, "tttuu", "", bfi_32},
        {"bfi", "", PTX_B64, "tttuu", "", bfi_64},
        {"prmt", "", PTX_B32, "tttu", "", prmt_32},
        {"lop3", "", PTX_B32, "ttttu", "", lop3_32},
        SIGN3("sad", "", "tttt", sad),
        SELECT(PTX_B16),
        SELECT(PTX_B32),
        SELECT(PTX_B64),
        SELECT(PTX_U16),
        SELECT(PTX_U32),
        SELECT(PTX_U64),
        SELECT(PTX_S16),
        SELECT(PTX_S32),
        SELECT(PTX_S64),
        SELECT(PTX_F32),
        SELECT(PTX_F64),
        CARRY2("add", "cc", "Cttt", add_cc),
        CARRY2("addc", "", "tttc", addc),
        CARRY2("addc", "cc", "Ctttc", addc),
        CARRY2("sub", "cc", "Cttt", sub_cc),
        CARRY2("subc", "", "tttc", subc),
        CARRY2("subc", "cc", "Ctttc", subc),
        CARRY2("mad", "lo cc", "Ctttt", mad_lo_cc),
        CARRY2("mad", "hi cc", "Ctttt", mad_hi_cc),
        CARRY2("madc", "lo", "ttttc", madc_lo),
        CARRY2("madc", "hi", "ttttc", madc_hi),
        CARRY2("madc", "lo cc", "Cttttc", madc_lo),
        CARRY2("madc", "hi cc", "Cttttc", madc_hi),
        FLOAT2("add", "ttt", " rn ", add),
        FLOAT2("sub", "ttt", " rn ", sub),
        FLOAT2("mul", "ttt", " rn ", mul),
        FLOAT2("div", "ttt", "! rn approx full ftz ", div),
        FLOAT2("fma", "tttt", "! rn ", fma),
        FLOAT2("mad", "tttt", "! rn ", fma),
        FLOAT2("min", "ttt", "", min),
        FLOAT2("max", "ttt", "", max),
        FLOAT2("abs", "tt", "", abs),
        FLOAT2("neg", "tt", "", neg),
        FLOAT2("sqrt", "tt", "! rn approx ftz ", sqrt),
        FLOAT2("rsqrt", "tt", "! approx ftz ", rsqrt),
        FLOAT2("rcp", "tt", "! rn approx ftz ", rcp),
        FLOAT2("copysign", "ttt", "", copysign),
        {"sin", "", PTX_F32, "tt", "! approx ftz ", sin_f32},
        {"cos", "", PTX_F32, "tt", "! approx ftz ", cos_f32},
        {"lg2", "", PTX_F32, "tt", "! approx ftz ", lg2_f32},
        {"ex2", "", PTX_F32, "tt", "! approx ftz ", ex2_f32},
        {"tanh", "", PTX_F32, "tt", "! approx ", tanh_f32},
        TESTP("finite", finite),
        TESTP("infinite", infinite),
        TESTP("number", number),
        TESTP("notanumber", notanumber),
};
const size_t ptx_simple_op_count = sizeof(ptx_simple_ops) / sizeof(ptx_simple_ops[0]);

static bool compare_signed(enum ptx_compare op, int64_t a, int64_t b)
{
        switch (op) {
        case PTX_EQ:
                return a == b;
        case PTX_NE:
                return a != b;
        case PTX_LT:
                return a < b;
        case PTX_LE:
                return a <= b;
        case PTX_GT:
                return a > b;
        default:
                return a >= b;
        }
}

static bool compare_unsigned(enum ptx_compare op, uint64_t a, uint64_t b)
{
        switch (op) {
        case PTX_EQ:
                return a == b;
        case PTX_NE:
                return a != b;
        case PTX_LT:
                return a < b;
        case PTX_LE:
                return a <= b;
        case PTX_GT:
                return a > b;
        default:
                return a >= b;
        }
}

static bool compare_float(enum ptx_compare op, double a, double b)
{
        bool unordered = isnan(a) || isnan(b);

        switch (op) {
        case PTX_EQ:
                return a == b;
        case PTX_NE:
                return !unordered && a != b;
        case PTX_LT:
                return a < b;
        case PTX_LE:
                return a <= b;
        case PTX_GT:
                return a > b;
        case PTX_GE:
                return a >= b;
        case PTX_NUM:
                return !unordered;
        case PTX_NAN:
                return unordered;
        default:
                return unordered || compare_float((enum ptx_compare)(op - PTX_EQU), a, b);
        }
}

static bool compare(const struct ptx_insn *insn, uint64_t a, uint64_t b)
{
        enum ptx_type type = (enum ptx_type)insn->type;
        enum ptx_compare op = (enum ptx_compare)insn->sub;
        unsigned bytes = ptx_type_bytes(type);

        if (type == PTX_F32)
                return compare_float(op, (double)get_f32(a), (double)get_f32(b));
        if (type == PTX_F64)
                return compare_float(op, get_f64(a), get_f64(b));
        if (ptx_type_signed(type))
                return compare_signed(op, (int64_t)ptx_sign_extend(a, bytes),
                                      (int64_t)ptx_sign_extend(b, bytes));
        return compare_unsigned(op, ptx_truncate(a, bytes), ptx_truncate(b, bytes));
}

static bool combine(enum ptx_bool op, bool a, bool b)
{
        switch (op) {
        case PTX_BOOL_AND:
                return a && b;
        case PTX_BOOL_OR:
                return a || b;
        case PTX_BOOL_XOR:
                return a != b;
        default:
                return a;
        }
}

void ptx_op_setp(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        SOURCE(0);
        SOURCE(1);
        enum ptx_bool op = (enum ptx_bool)insn->sub2;
        uint64_t *dst = ptx_dst(warp, insn->dst);

        PTX_LANES(mask, lane)
        {
                bool result = compare(insn, src0[lane * stride0], src1[lane * stride1]);
                bool other = op ? ptx_read(warp, insn->src[2], lane) & 1 : false;

                dst[lane] = combine(op, result, other);
                if (insn->dst2 >= 0)
                        ptx_dst(warp, insn->dst2)[lane] = combine(op, !result, other);
        }
}

void ptx_op_set(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        SOURCE(0);
        SOURCE(1);
        enum ptx_bool op = (enum ptx_bool)insn->sub2;
        uint64_t yes = insn->type2 == PTX_F32 ? put_f32(1.0f) : UINT32_MAX;

        PTX_LANES(mask, lane)
        {
                bool result = compare(insn, src0[lane * stride0], src1[lane * stride1]);
                bool other = op ? ptx_read(warp, insn->src[2], lane) & 1 : false;

                ptx_dst(warp, insn->dst)[lane] = combine(op, result, other) ? yes : 0;
        }
}

void ptx_op_not_pred(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        not_pred(warp, insn, mask);
}

void ptx_op_move(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        SOURCE(0);
        uint64_t *dst = ptx_dst(warp, insn->dst);

        PTX_LANES(mask, lane)
        dst[lane] = src0[lane * stride0];
}

void ptx_op_pack(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type) / insn->vec;

        PTX_LANES(mask, lane)
        {
                uint64_t value = 0;

                for (unsigned i = 0; i < insn->vec; i++) {
                        int32_t ref = warp->entry->vectors[insn->src[1] + (int32_t)i];

                        value |= ptx_truncate(ptx_read(warp, ref, lane), bytes) << (8 * bytes * i);
                }
                ptx_dst(warp, insn->dst)[lane] = value;
        }
}

void ptx_op_unpack(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type) / insn->vec;

        PTX_LANES(mask, lane)
        {
                uint64_t value = ptx_read(warp, insn->src[0], lane);

                for (unsigned i = 0; i < insn->vec; i++) {
                        int32_t reg = warp->entry->vectors[insn->dst + (int32_t)i];

                        ptx_dst(warp, reg)[lane] = ptx_truncate(value >> (8 * bytes * i), bytes);
                }
        }
}

static double round_to_integral(double v, enum ptx_rounding rounding)
{
        switch (rounding) {
        case PTX_ROUND_NEAREST:
                return nearbyint(v);
        case PTX_ROUND_ZERO:
                return trunc(v);
        case PTX_ROUND_DOWN:
                return floor(v);
        case PTX_ROUND_UP:
                return ceil(v);
        default:
                return v;
        }
}

/* Out of range goes to the nearest end; not-a-number to 0, in 64 bits to the lowest or highest bit.
 */
static uint64_t float_to_integer(double v, enum ptx_type type)
{
        unsigned bits = 8 * ptx_type_bytes(type);

        if (isnan(v))
                return bits == 64 ? 1ULL << 63 : 0;
        if (ptx_type_signed(type)) {
                double limit = ldexp(1.0, (int)bits - 1);
                uint64_t top = 1ULL << (bits - 1);

                if (v >= limit)
                        return top - 1;
                return v < -limit ? top : ptx_truncate((uint64_t)(int64_t)v, bits / 8);
        }
        if (v >= ldexp(1.0, (int)bits))
                return low_bits(bits);
        return v <= 0.0 ? 0 : (uint64_t)v;
}

static uint64_t clamp_integer(uint64_t value, enum ptx_type from, enum ptx_type to)
{
        unsigned bits = 8 * ptx_type_bytes(to);
        bool negative = ptx_type_signed(from) && (int64_t)value < 0;
        uint64_t top = ptx_type_signed(to) ? low_bits(bits - 1) : low_bits(bits);

        if (negative && !ptx_type_signed(to))
                return 0;
        if (negative)
                return (int64_t)value < -(int64_t)top - 1 ? ~top & low_bits(bits)
                                                          : ptx_truncate(value, bits / 8);
        return value > top ? top : value;
}

static uint64_t convert_integer(const struct ptx_insn *insn, uint64_t value)
{
        enum ptx_type from = (enum ptx_type)insn->type2, to = (enum ptx_type)insn->type;
        unsigned bytes = ptx_type_bytes(from);

        value = ptx_type_signed(from) ? ptx_sign_extend(value, bytes) : ptx_truncate(value, bytes);
        if (to == PTX_F32)
                return put_f32(ptx_type_signed(from) ? (float)(int64_t)value : (float)value);
        if (to == PTX_F64)
                return put_f64(ptx_type_signed(from) ? (double)(int64_t)value : (double)value);
        if (insn->sub2)
                return clamp_integer(value, from, to);
        return value;
}

static uint64_t convert_float(const struct ptx_insn *insn, uint64_t value)
{
        enum ptx_type to = (enum ptx_type)insn->type;
        double v = insn->type2 == PTX_F32 ? (double)get_f32(value) : get_f64(value);

        v = round_to_integral(v, (enum ptx_rounding)insn->sub);
        if (!ptx_type_float(to))
                return float_to_integer(v, to);
        if (insn->sub2)
                v = isnan(v) ? 0.0 : fmin(fmax(v, 0.0), 1.0);
        return to == PTX_F32 ? put_f32((float)v) : put_f64(v);
}

void ptx_op_cvt(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        SOURCE(0);
        uint64_t *dst = ptx_dst(warp, insn->dst);
        bool from_float = ptx_type_float((enum ptx_type)insn->type2);
        /* The value is extended to the register, which may be wider than the type. */
        bool extend = ptx_type_signed((enum ptx_type)insn->type);
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type);

        PTX_LANES(mask, lane)
        {
                uint64_t v = src0[lane * stride0];

                v = from_float ? convert_float(insn, v) : convert_integer(insn, v);
                dst[lane] = extend ? ptx_sign_extend(v, bytes) : ptx_truncate(v, bytes);
        }
}
