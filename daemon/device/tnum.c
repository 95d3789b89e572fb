/* SPDX-License-Identifier: Apache-2.0 */
#include "device/tnum.h"

struct tnum tnum_of_size(unsigned bytes)
{
        return (struct tnum){0, bytes >= 8 ? UINT64_MAX : (1ULL << (8 * bytes)) - 1};
}

struct tnum tnum_union(struct tnum a, struct tnum b)
{
        uint64_t mask = a.mask | b.mask | (a.value ^ b.value);

        return (struct tnum){a.value & ~mask, mask};
}

bool tnum_intersect(struct tnum a, struct tnum b, struct tnum *ret)
{
        uint64_t mask = a.mask & b.mask;

        if ((a.value ^ b.value) & ~a.mask & ~b.mask)
                return false;
        *ret = (struct tnum){(a.value | b.value) & ~mask, mask};
        return true;
}

/*
 * A bit of the sum is known where both operands are known and the carry into it
 * is the same whether all unknown bits are 0 or all are 1.
 */
struct tnum tnum_add(struct tnum a, struct tnum b)
{
        uint64_t low = a.value + b.value;
        uint64_t high = tnum_max(a) + tnum_max(b);
        uint64_t mask = (low ^ high) | a.mask | b.mask;

        return (struct tnum){low & ~mask, mask};
}

/* As for the sum: the borrow is largest with a smallest and b largest. */
struct tnum tnum_sub(struct tnum a, struct tnum b)
{
        uint64_t low = a.value - tnum_max(b);
        uint64_t high = tnum_max(a) - b.value;
        uint64_t mask = (low ^ high) | a.mask | b.mask;

        return (struct tnum){(a.value - b.value) & ~mask, mask};
}

struct tnum tnum_and(struct tnum a, struct tnum b)
{
        uint64_t ones = a.value & b.value;

        return (struct tnum){ones, tnum_max(a) & tnum_max(b) & ~ones};
}

struct tnum tnum_or(struct tnum a, struct tnum b)
{
        uint64_t ones = a.value | b.value;

        return (struct tnum){ones, (a.mask | b.mask) & ~ones};
}

struct tnum tnum_xor(struct tnum a, struct tnum b)
{
        uint64_t mask = a.mask | b.mask;

        return (struct tnum){(a.value ^ b.value) & ~mask, mask};
}

/* Long multiplication: an unknown bit of a adds "0 or b" at its place. */
struct tnum tnum_mul(struct tnum a, struct tnum b)
{
        struct tnum sum = tnum_const(0);

        if (tnum_is_const(a) && tnum_is_const(b))
                return tnum_const(a.value * b.value);
        for (unsigned i = 0; i < 64 && (a.value | a.mask) >> i; i++) {
                struct tnum term = tnum_lsh(b, i);

                if (a.mask >> i & 1)
                        sum = tnum_add(sum, (struct tnum){0, tnum_max(term)});
                else if (a.value >> i & 1)
                        sum = tnum_add(sum, term);
        }
        return sum;
}

struct tnum tnum_lsh(struct tnum a, unsigned shift)
{
        return (struct tnum){a.value << shift, a.mask << shift};
}

struct tnum tnum_rsh(struct tnum a, unsigned shift)
{
        return (struct tnum){a.value >> shift, a.mask >> shift};
}

struct tnum tnum_low32(struct tnum a)
{
        return (struct tnum){(uint32_t)a.value, (uint32_t)a.mask};
}

uint64_t tnum_alignment(struct tnum a, uint64_t limit)
{
        uint64_t bits = tnum_max(a) | limit;

        return bits & -bits;
}

struct tnum tnum_extend_sign(struct tnum a, unsigned bits)
{
        uint64_t sign = UINT64_C(1) << (bits - 1), low = sign | (sign - 1);

        if (a.mask & sign)
                return (struct tnum){a.value & (sign - 1), (a.mask & (sign - 1)) | ~(sign - 1)};
        a = tnum_and(a, tnum_const(low));
        return a.value & sign ? tnum_or(a, tnum_const(~low)) : a;
}
