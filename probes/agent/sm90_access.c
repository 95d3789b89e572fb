/* SPDX-License-Identifier: Apache-2.0 */

#include "../device/device_abi.h"
#include "sm90_access.h"

/* How the size is said: always in hi[12:9], without the bits that mean something else. */
enum size_rule {
        SIZE_PLAIN,   /* hi[11:9] */
        SIZE_INTEGER, /* of integer atomics */
        SIZE_COMPARE, /* of compare-and-swap */
        SIZE_FLOAT,   /* of atomics on floating-point numbers and vectors of them */
        SIZE_WORD,    /* always 4 */
};

/* Where the distance from the base stands. */
enum offset_rule {
        OFFSET_24, /* lo[63:40] */
        OFFSET_32, /* lo[63:32] */
        OFFSET_12, /* lo[43:32] */
};

/* What a uniform register is where hi[27] says that there is one. */
enum uniform_rule {
        UNIFORM_NEVER,     /* such a form has not been seen */
        UNIFORM_ADDED_B,   /* added to the address; in field B */
        UNIFORM_ADDED_C,   /* in field C */
        UNIFORM_DESC_B,    /* a descriptor where hi[12] is set, else added; in field B */
        UNIFORM_DESC_C,    /* in field C */
        UNIFORM_COPY_C,    /* the same, but what else is said stands elsewhere */
        UNIFORM_DESC_ATOM, /* in field C, and it is hi[7] that says so */
        UNIFORM_DESC_RED,
};

/* By opcode; kind 0: no access. */
struct form {
        uint8_t kind, space;
        uint8_t size, offset, uniform;
        uint8_t offset_alone; /* without uniform register */
};

#define OTHER   0xff /* in place of a kind */
#define LOAD    GPUOBS_ACCESS_LOAD
#define STORE   GPUOBS_ACCESS_STORE
#define ATOMIC  GPUOBS_ACCESS_ATOMIC
#define GLOBAL  GPUOBS_SPACE_GLOBAL
#define GENERIC GPUOBS_SPACE_GENERIC
#define SHARED  GPUOBS_SPACE_SHARED
#define LOCAL   GPUOBS_SPACE_LOCAL

/* clang-format off */
static const struct form forms[4096] = {
        [0x381] = {LOAD, GLOBAL, SIZE_PLAIN, OFFSET_24, UNIFORM_NEVER, OFFSET_24},         /* LDG */
        [0x981] = {LOAD, GLOBAL, SIZE_PLAIN, OFFSET_24, UNIFORM_DESC_B, OFFSET_24},
        [0x980] = {LOAD, GENERIC, SIZE_PLAIN, OFFSET_24, UNIFORM_DESC_B, OFFSET_32},       /* LD */
        [0x983] = {LOAD, LOCAL, SIZE_PLAIN, OFFSET_24, UNIFORM_ADDED_B, OFFSET_24},        /* LDL */
        [0x984] = {LOAD, SHARED, SIZE_PLAIN, OFFSET_24, UNIFORM_ADDED_B, OFFSET_24},       /* LDS */
        [0x386] = {STORE, GLOBAL, SIZE_PLAIN, OFFSET_24, UNIFORM_NEVER, OFFSET_24},        /* STG */
        [0x986] = {STORE, GLOBAL, SIZE_PLAIN, OFFSET_24, UNIFORM_DESC_C, OFFSET_24},
        [0x385] = {STORE, GENERIC, SIZE_PLAIN, OFFSET_32, UNIFORM_NEVER, OFFSET_32},       /* ST */
        [0x985] = {STORE, GENERIC, SIZE_PLAIN, OFFSET_24, UNIFORM_DESC_C, OFFSET_24},
        [0x387] = {STORE, LOCAL, SIZE_PLAIN, OFFSET_24, UNIFORM_NEVER, OFFSET_24},         /* STL */
        [0x987] = {STORE, LOCAL, SIZE_PLAIN, OFFSET_24, UNIFORM_ADDED_C, OFFSET_24},
        [0x388] = {STORE, SHARED, SIZE_PLAIN, OFFSET_24, UNIFORM_NEVER, OFFSET_24},        /* STS */
        [0x988] = {STORE, SHARED, SIZE_PLAIN, OFFSET_24, UNIFORM_ADDED_C, OFFSET_24},
        [0x38a] = {ATOMIC, GENERIC, SIZE_INTEGER, OFFSET_24, UNIFORM_NEVER, OFFSET_24},    /* ATOM */
        [0x98a] = {ATOMIC, GENERIC, SIZE_INTEGER, OFFSET_24, UNIFORM_DESC_ATOM, OFFSET_24},
        [0x9a2] = {ATOMIC, GENERIC, SIZE_FLOAT, OFFSET_24, UNIFORM_DESC_ATOM, OFFSET_24},
        [0x38b] = {ATOMIC, GENERIC, SIZE_COMPARE, OFFSET_24, UNIFORM_NEVER, OFFSET_24},    /* .CAS */
        [0x38c] = {ATOMIC, SHARED, SIZE_INTEGER, OFFSET_24, UNIFORM_NEVER, OFFSET_24},     /* ATOMS */
        [0x98c] = {ATOMIC, SHARED, SIZE_INTEGER, OFFSET_24, UNIFORM_ADDED_C, OFFSET_24},
        [0xf8c] = {ATOMIC, SHARED, SIZE_WORD, OFFSET_24, UNIFORM_ADDED_C, OFFSET_24},      /* .POPC */
        [0x38d] = {ATOMIC, SHARED, SIZE_COMPARE, OFFSET_24, UNIFORM_NEVER, OFFSET_24},     /* .CAS */
        [0x9a8] = {ATOMIC, GLOBAL, SIZE_INTEGER, OFFSET_24, UNIFORM_DESC_ATOM, OFFSET_24}, /* ATOMG */
        [0x3a3] = {ATOMIC, GLOBAL, SIZE_FLOAT, OFFSET_24, UNIFORM_NEVER, OFFSET_24},
        [0x9a3] = {ATOMIC, GLOBAL, SIZE_FLOAT, OFFSET_24, UNIFORM_DESC_ATOM, OFFSET_24},
        [0x3a9] = {ATOMIC, GLOBAL, SIZE_COMPARE, OFFSET_24, UNIFORM_NEVER, OFFSET_24},     /* .CAS */
        [0x98e] = {ATOMIC, GLOBAL, SIZE_INTEGER, OFFSET_24, UNIFORM_DESC_RED, OFFSET_24},  /* REDG */
        [0x9a6] = {ATOMIC, GLOBAL, SIZE_FLOAT, OFFSET_24, UNIFORM_DESC_RED, OFFSET_24},
        [0xfae] = {LOAD, GLOBAL, SIZE_PLAIN, OFFSET_12, UNIFORM_COPY_C, OFFSET_12},        /* LDGSTS */

        /* memory without an address for each thread, and forms that have not been understood */
        [0x380] = {.kind = OTHER}, [0x3a8] = {.kind = OTHER}, [0x83b] = {.kind = OTHER}, [0x844] = {.kind = OTHER},
        [0x9a4] = {.kind = OTHER}, [0x9a5] = {.kind = OTHER}, [0xdae] = {.kind = OTHER}, [0xdbd] = {.kind = OTHER},
        [0xf66] = {.kind = OTHER}, [0x3b4] = {.kind = OTHER}, [0x5b4] = {.kind = OTHER}, [0x3b5] = {.kind = OTHER},
        [0x9b7] = {.kind = OTHER}, [0x9f0] = {.kind = OTHER}, [0xdf0] = {.kind = OTHER}, [0x9f1] = {.kind = OTHER},
        [0xdf1] = {.kind = OTHER}, [0x9f3] = {.kind = OTHER}, [0xdf3] = {.kind = OTHER}, [0xf60] = {.kind = OTHER},
        [0xf63] = {.kind = OTHER}, [0xf6c] = {.kind = OTHER}, [0xf99] = {.kind = OTHER}, [0xf9b] = {.kind = OTHER},
        [0xf9d] = {.kind = OTHER}, [0xf9f] = {.kind = OTHER}, [0x3b6] = {.kind = OTHER}, [0x3ba] = {.kind = OTHER},
        [0x3bb] = {.kind = OTHER},
};
/* clang-format on */

#define NEVER      0xfu       /* guard: the predicate that is always true, negated */
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

static unsigned read_size(const struct sm90_instr *i, uint8_t rule)
{
        uint32_t n = (uint32_t)(i->hi >> 9) & 0xf;

        switch ((enum size_rule)rule) {
        case SIZE_PLAIN:
                return plain_bytes(n);
        case SIZE_INTEGER:
                return integer_bytes(n);
        case SIZE_COMPARE:
                return compare_bytes(n);
        case SIZE_FLOAT:
                return float_bytes(n);
        case SIZE_WORD:
                return 4;
        }
        return 0;
}

static int32_t read_offset(const struct sm90_instr *i, uint8_t rule)
{
        switch ((enum offset_rule)rule) {
        case OFFSET_24:
                return (int32_t)(i->lo >> 32) >> 8;
        case OFFSET_32:
                return (int32_t)(i->lo >> 32);
        case OFFSET_12:
                return (int32_t)((uint32_t)(i->lo >> 32) << 20) >> 20;
        }
        return 0;
}

/* A uniform register is added to the address. */
static bool add_uniform(const struct sm90_instr *i, uint8_t field, struct sm90_access *a)
{
        a->ur = (uint8_t)sm90_ur_get(i, field);
        return true;
}

/* It is a descriptor, or added to the base. */
static bool read_descriptor(const struct sm90_instr *i, uint8_t field, uint64_t pair,
                            struct sm90_access *a)
{
        if (!(i->hi & DESCRIPTOR))
                add_uniform(i, field, a);
        return (i->hi & pair) || a->base == SM90_R_ZERO;
}

/* Whether the form of the address is understood; notes the uniform register that is part of it. */
static bool read_uniform(const struct sm90_instr *i, const struct form *f, struct sm90_access *a)
{
        if (!(i->hi & SM90_UR_PRESENT))
                return !a->is_wide || (i->hi & WIDE);
        switch ((enum uniform_rule)f->uniform) {
        case UNIFORM_NEVER:
                return false;
        case UNIFORM_ADDED_B:
                return add_uniform(i, SM90_UR_B, a);
        case UNIFORM_ADDED_C:
                return add_uniform(i, SM90_UR_C, a);
        case UNIFORM_DESC_B:
                return (i->hi & WIDE) && read_descriptor(i, SM90_UR_B, PAIR, a);
        case UNIFORM_DESC_C:
                return (i->hi & WIDE) && read_descriptor(i, SM90_UR_C, PAIR, a);
        case UNIFORM_COPY_C:
                return read_descriptor(i, SM90_UR_C, ATOM_PAIR, a);
        case UNIFORM_DESC_ATOM:
                return (i->hi & WIDE) && (i->hi & ATOM_DESC) && (i->hi & ATOM_PAIR);
        case UNIFORM_DESC_RED:
                return (i->hi & WIDE) && (i->hi & ATOM_DESC) && (i->hi & PAIR);
        }
        return false;
}

enum sm90_access_class sm90_access(const struct sm90_instr *i, struct sm90_access *ret_access)
{
        const struct form *f = &forms[sm90_opcode(i)];
        struct sm90_access a = {.ur = SM90_UR_ZERO, .base = (uint8_t)(i->lo >> 24)};
        bool has_uniform = i->hi & SM90_UR_PRESENT;

        if (!f->kind || sm90_predicate(i) == NEVER)
                return SM90_ACCESS_NONE;
        if (f->kind == OTHER)
                return SM90_ACCESS_OTHER;
        a.kind = f->kind;
        a.space = f->space;
        a.size = (uint8_t)read_size(i, f->size);
        a.offset = read_offset(i, has_uniform ? f->offset : f->offset_alone);
        a.is_wide = a.space == GPUOBS_SPACE_GLOBAL || a.space == GPUOBS_SPACE_GENERIC;
        if (!a.size || !read_uniform(i, f, &a))
                return SM90_ACCESS_OTHER;
        if (a.is_wide && a.base == SM90_R_ZERO - 1)
                return SM90_ACCESS_OTHER; /* no pair */
        *ret_access = a;
        return SM90_ACCESS_PLAIN;
}
