/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The decoded form of a kernel, shared by the interpreter's files.
 *
 * Every register is a 64-bit slot per lane; values are stored zero-extended
 * from their type. An operand is a reference: a register number when it is not
 * negative, else the complement of an index into the kernel's immediates. So
 * "pointer and stride" serve both: lane l reads p[l * stride].
 */
#include <string.h>

#include "ptx_interp.h"

#define PTX_WARP      32
#define PTX_BARRIERS  16
#define PTX_NO_GUARD  (-1)
#define PTX_MAX_SRC   4
#define PTX_REACHABLE 0x1000000 /* in the param window: from here on, local memory */

enum ptx_type {
        PTX_NONE,
        PTX_PRED,
        PTX_B8,
        PTX_B16,
        PTX_B32,
        PTX_B64,
        PTX_U8,
        PTX_U16,
        PTX_U32,
        PTX_U64,
        PTX_S8,
        PTX_S16,
        PTX_S32,
        PTX_S64,
        PTX_F32,
        PTX_F64,
        PTX_TYPE_COUNT,
};

enum ptx_space {
        PTX_GENERIC,
        PTX_GLOBAL, /* and const: host addresses like generic */
        PTX_SHARED, /* offsets from the start of the block's shared memory */
        PTX_LOCAL,  /* offsets from the start of the thread's local memory */
        PTX_PARAM,  /* offsets into the parameters; from PTX_REACHABLE on, local memory */
};

/* How the run loop treats an instruction. */
enum ptx_kind {
        PTX_KIND_ALU,     /* calls fn, goes on */
        PTX_KIND_MEMORY,  /* calls fn, which may fault */
        PTX_KIND_BRANCH,  /* to target */
        PTX_KIND_TABLE,   /* to one of `count` targets */
        PTX_KIND_EXIT,    /* the thread ends */
        PTX_KIND_BARRIER, /* of a block */
        PTX_KIND_SYNC,    /* waits for the lanes in src[sync_mask], then calls fn */
        PTX_KIND_TRAP,
        PTX_KIND_YIELD, /* gives other warps a turn */
};

enum ptx_barrier_mode {
        PTX_BARRIER_SYNC,
        PTX_BARRIER_ARRIVE,
        PTX_BARRIER_POPC,
        PTX_BARRIER_AND,
        PTX_BARRIER_OR,
};

struct ptx_warp;
struct ptx_insn;
typedef void (*ptx_handler)(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);

struct ptx_insn {
        ptx_handler fn;
        int32_t dst;              /* register; for vectors an index into entry->vectors */
        int32_t dst2;             /* second destination (p|q), or -1 */
        int32_t src[PTX_MAX_SRC]; /* operand references; for vectors src[1] indexes vectors */
        int32_t guard;            /* predicate register or PTX_NO_GUARD */
        uint8_t kind;             /* enum ptx_kind */
        uint8_t guard_negated;
        uint8_t type;   /* enum ptx_type */
        uint8_t type2;  /* of the source (cvt) or of the destination register (ld) */
        uint8_t sub;    /* comparison, special register, atomic operation … */
        uint8_t sub2;   /* boolean combination, rounding … */
        uint8_t space;  /* enum ptx_space */
        uint8_t vec;    /* elements of a vector access, else 1 */
        int64_t offset; /* memory: added to src[0]; branches: the target's index */
        uint32_t line;
        uint32_t sync_mask; /* PTX_KIND_SYNC: which source holds the lanes to wait for */
};

struct ptx_entry {
        struct ptx_entry_info info;
        char *name;
        struct ptx_param_info *params;
        struct ptx_insn *code;
        size_t code_count;
        uint64_t *imms;
        size_t imm_count;
        int32_t *vectors; /* operand references of vector operands and branch tables */
        size_t vector_count;
        uint32_t register_count;
};

struct ptx_barrier {
        uint32_t arrived;
        uint32_t expected;           /* 0: all threads of the block that have not ended */
        uint32_t votes;              /* lanes with a true predicate */
        const struct ptx_insn *insn; /* of a reduction, to deliver its result */
};

struct ptx_block {
        struct ptx_machine *machine;
        const struct ptx_entry *entry;
        struct ptx_warp *warps;
        uint32_t warp_count;
        uint32_t live_threads;
        uint32_t index[3]; /* %ctaid */
        uint32_t waiting;  /* barriers with arrivals, a bit each */
        uint32_t smid;
        uint8_t *shared;
        uint32_t shared_bytes;
        struct ptx_barrier barriers[PTX_BARRIERS];
};

struct ptx_warp {
        uint64_t *regs;
        const uint64_t *imms;
        uint32_t shift; /* a register's lanes start at regs[number << shift] */
        uint32_t live;  /* lanes that have not ended */
        uint32_t at_barrier;
        uint32_t at_sync;
        uint32_t index; /* in the block */
        uint32_t turns;
        uint8_t *local; /* lane l's memory at l * local_bytes */
        uint32_t local_bytes;
        struct ptx_block *block;
        struct ptx_machine *machine;
        const struct ptx_entry *entry;
        uint32_t pc[PTX_WARP];
        uint32_t barrier_lanes[PTX_BARRIERS];
};

#define PTX_REGION_CACHE 4

struct ptx_machine {
        const struct ptx_env *env;
        const struct ptx_launch *launch;
        const uint8_t *params;
        uint32_t param_bytes;
        uint8_t bank[PTX_BANK_PARAMS]; /* below the parameters */
        enum ptx_fault fault;
        uint64_t fault_address;
        uint32_t fault_line;
        uint64_t instructions; /* of this run */
        uint64_t charged;      /* of them, told to the environment */
        struct ptx_region regions[PTX_REGION_CACHE];
        uint64_t generation;
        unsigned next_region;
        struct ptx_block *blocks;
        size_t block_count;
        uint8_t *arena; /* warps, registers, shared and local memory of the blocks */
        size_t arena_bytes;
};

static inline unsigned ptx_type_bytes(enum ptx_type type)
{
        static const uint8_t bytes[PTX_TYPE_COUNT] = {0, 1, 1, 2, 4, 8, 1, 2,
                                                      4, 8, 1, 2, 4, 8, 4, 8};

        return bytes[type];
}

static inline bool ptx_type_signed(enum ptx_type type)
{
        return type >= PTX_S8 && type <= PTX_S64;
}

static inline bool ptx_type_float(enum ptx_type type)
{
        return type == PTX_F32 || type == PTX_F64;
}

static inline bool ptx_type_bits(enum ptx_type type)
{
        return type >= PTX_B8 && type <= PTX_B64;
}

static inline const uint64_t *ptx_src(const struct ptx_warp *warp, int32_t ref)
{
        return ref >= 0 ? warp->regs + ((size_t)ref << warp->shift) : warp->imms + ~ref;
}

static inline unsigned ptx_stride(int32_t ref)
{
        return ref >= 0;
}

static inline uint64_t *ptx_dst(const struct ptx_warp *warp, int32_t reg)
{
        return warp->regs + ((size_t)reg << warp->shift);
}

static inline uint64_t ptx_read(const struct ptx_warp *warp, int32_t ref, unsigned lane)
{
        return ptx_src(warp, ref)[lane * ptx_stride(ref)];
}

/* The low bits of a value as its type holds them: zero-extended to the slot. */
static inline uint64_t ptx_truncate(uint64_t value, unsigned bytes)
{
        return bytes >= 8 ? value : value & ((1ULL << (8 * bytes)) - 1);
}

static inline uint64_t ptx_sign_extend(uint64_t value, unsigned bytes)
{
        unsigned shift = 64 - 8 * bytes;

        return bytes >= 8 ? value : (uint64_t)((int64_t)(value << shift) >> shift);
}

#define PTX_LANES(mask, lane)                                                                      \
        for (uint32_t left_ = (mask), lane = 0;                                                    \
             left_ && (lane = (uint32_t)__builtin_ctz(left_), 1); left_ &= left_ - 1)

/* Ends the run after the current instruction. */
static inline void ptx_set_fault(struct ptx_machine *machine, enum ptx_fault fault,
                                 uint64_t address, uint32_t line)
{
        if (machine->fault == PTX_FAULT_NONE) {
                machine->fault = fault;
                machine->fault_address = address;
                machine->fault_line = line;
        }
}

/* Reports executed instructions to the environment, before time is looked at. */
static inline void ptx_charge(struct ptx_machine *machine)
{
        uint64_t fresh = machine->instructions - machine->charged;

        if (machine->env->charge && fresh)
                machine->env->charge(machine->env->userdata, fresh);
        machine->charged = machine->instructions;
}
