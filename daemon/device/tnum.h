/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A tracked number: what is known of the bits of a 64-bit value. A bit set in
 * `mask` is unknown; the others are as in `value` (which is 0 under the mask).
 * This gives constants (mask 0), upper bounds and alignment in one domain.
 */
#include <stdbool.h>
#include <stdint.h>

struct tnum {
        uint64_t value;
        uint64_t mask;
};

#define TNUM_UNKNOWN ((struct tnum){0, UINT64_MAX})

static inline struct tnum tnum_const(uint64_t v)
{
        return (struct tnum){v, 0};
}

static inline bool tnum_is_const(struct tnum a)
{
        return a.mask == 0;
}

static inline uint64_t tnum_min(struct tnum a)
{
        return a.value;
}

static inline uint64_t tnum_max(struct tnum a)
{
        return a.value | a.mask;
}

/* Any value of at most `bytes` bytes. */
struct tnum tnum_of_size(unsigned bytes);

/* Every value of a and every value of b. */
struct tnum tnum_union(struct tnum a, struct tnum b);

/* The values both allow; false when there are none. */
bool tnum_intersect(struct tnum a, struct tnum b, struct tnum *ret);

struct tnum tnum_add(struct tnum a, struct tnum b);
struct tnum tnum_sub(struct tnum a, struct tnum b);
struct tnum tnum_and(struct tnum a, struct tnum b);
struct tnum tnum_or(struct tnum a, struct tnum b);
struct tnum tnum_xor(struct tnum a, struct tnum b);
struct tnum tnum_mul(struct tnum a, struct tnum b);

/* Shifts by a known amount below 64. */
struct tnum tnum_lsh(struct tnum a, unsigned shift);
struct tnum tnum_rsh(struct tnum a, unsigned shift);

/* The low 32 bits, zero-extended. */
struct tnum tnum_low32(struct tnum a);

/* The low `bits` bits (1..63), sign-extended. */
struct tnum tnum_extend_sign(struct tnum a, unsigned bits);

/* The largest power of two, at most `limit` (a power of two), that divides every value. */
uint64_t tnum_alignment(struct tnum a, uint64_t limit);
