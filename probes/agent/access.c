/* SPDX-License-Identifier: Apache-2.0 */

#include "access.h"

#include "../device/device_abi.h"

#define WIDE       (1u << 8)  /* in hi: addresses of 64 bits */
#define DESCRIPTOR (1u << 12) /* in hi */
#define ATOM_DESC  (1u << 7)  /* in hi */
#define PAIR       (1u << 26) /* in hi, beside a uniform register: the base is a pair */
#define ATOM_PAIR  (1u << 6)  /* in hi */

static unsigned plain_bytes(uint32_t n)
{
        static const uint8_t bytes[8] = {1, 1, 2, 2, 4, 8, 16, 0};

        return bytes[n & 7];
}

static unsigned integer_bytes(uint32_t n)
{
        static const uint8_t bytes[16] = {4, 4, 8, 8, 16};

        return bytes[n];
}

static unsigned compare_bytes(uint32_t n)
{
        static const uint8_t bytes[16] = {[0] = 4, [2] = 8, [4] = 16};

        return bytes[n];
}

/* f16x2, .v2 and .v4 of it; bf16x2 likewise; f32 likewise; f64. */
static unsigned float_bytes(uint32_t n)
{
        static const uint8_t bytes[16] = {[0] = 4,  [1] = 8, [2] = 16, [3] = 4,   [4] = 8,
                                          [5] = 16, [9] = 4, [10] = 8, [11] = 16, [15] = 8};

        return bytes[n];
}

static unsigned read_size(const struct instr *i, uint8_t rule)
{
        uint32_t n = (uint32_t)(i->hi >> 9) & 0xf;

        switch ((enum access_size)rule) {
        case ACCESS_SIZE_PLAIN:
                return plain_bytes(n);
        case ACCESS_SIZE_INTEGER:
                return integer_bytes(n);
        case ACCESS_SIZE_COMPARE:
                return compare_bytes(n);
        case ACCESS_SIZE_FLOAT:
                return float_bytes(n);
        case ACCESS_SIZE_WORD:
                return 4;
        }
        return 0;
}

static int32_t read_offset(const struct instr *i, uint8_t rule)
{
        switch ((enum access_offset)rule) {
        case ACCESS_OFFSET_24:
                return (int32_t)(i->lo >> 32) >> 8;
        case ACCESS_OFFSET_32:
                return (int32_t)(i->lo >> 32);
        case ACCESS_OFFSET_12:
                return (int32_t)((uint32_t)(i->lo >> 32) << 20) >> 20;
        }
        return 0;
}

/* A uniform register is added to the address. */
static bool add_uniform(const struct instr *i, uint8_t field, struct access *a)
{
        a->ur = (uint8_t)instr_ur_get(i, field);
        return true;
}

/* It is a descriptor, or added to the base. */
static bool read_descriptor(const struct instr *i, uint8_t field, uint64_t pair, struct access *a)
{
        if (!(i->hi & DESCRIPTOR))
                add_uniform(i, field, a);
        return (i->hi & pair) || a->base == INSTR_R_ZERO;
}

/* Whether the form of the address is understood; notes the uniform register that is part of it. */
static bool read_uniform(const struct instr *i, const struct arch_access *f, struct access *a)
{
        if (!(i->hi & INSTR_UR_PRESENT))
                return !a->is_wide || (i->hi & WIDE);
        switch ((enum access_uniform)f->uniform) {
        case ACCESS_UR_NEVER:
                return false;
        case ACCESS_UR_ADDED_B:
                return add_uniform(i, INSTR_UR_B, a);
        case ACCESS_UR_ADDED_C:
                return add_uniform(i, INSTR_UR_C, a);
        case ACCESS_UR_DESC_B:
                return (i->hi & WIDE) && read_descriptor(i, INSTR_UR_B, PAIR, a);
        case ACCESS_UR_DESC_C:
                return (i->hi & WIDE) && read_descriptor(i, INSTR_UR_C, PAIR, a);
        case ACCESS_UR_COPY_C:
                return read_descriptor(i, INSTR_UR_C, ATOM_PAIR, a);
        case ACCESS_UR_DESC_ATOM:
                return (i->hi & WIDE) && (i->hi & ATOM_DESC) && (i->hi & ATOM_PAIR);
        case ACCESS_UR_DESC_RED:
                return (i->hi & WIDE) && (i->hi & ATOM_DESC) && (i->hi & PAIR);
        }
        return false;
}

enum access_class access_read(const struct arch *a, const struct instr *i,
                              struct access *ret_access)
{
        const struct arch_access *f = &a->ops[instr_opcode(i)].access;
        struct access found = {.ur = INSTR_UR_ZERO, .base = (uint8_t)instr_register_a(i)};
        bool has_uniform = i->hi & INSTR_UR_PRESENT;

        if (!f->kind || instr_predicate(i) == INSTR_NEVER)
                return ACCESS_NONE;
        if (f->kind == ACCESS_NOT_UNDERSTOOD)
                return ACCESS_OTHER;
        found.kind = f->kind;
        found.space = f->space;
        found.size = (uint8_t)read_size(i, f->size);
        found.offset = read_offset(i, has_uniform ? f->offset : f->offset_alone);
        found.is_wide = found.space == GPUOBS_SPACE_GLOBAL || found.space == GPUOBS_SPACE_GENERIC;
        if (!found.size || !read_uniform(i, f, &found))
                return ACCESS_OTHER;
        if (found.is_wide && found.base == INSTR_R_ZERO - 1)
                return ACCESS_OTHER; /* no pair */
        *ret_access = found;
        return ACCESS_PLAIN;
}
