/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the splicer: a probe's machine code, ready to be placed. Two
 * sequences are prepared from the same body, each free of references to its own
 * address: one for kernel entries, one for exits.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch.h"
#include "splice.h"

#define PROBE_INSTR_MAX 4096

/* An entry sequence returns by the displaced instruction and a branch. */
#define SPLICE_RETURN_INSTRS 2

/* Exits of an entry probe that whole warps take together. */
#define WARP_EXITS_MAX 2

#define PROBE_ID_MAX   8  /* places that take the kernel id */
#define PROBE_UR_SLOTS 16 /* values an exit probe may keep in uniform registers */
#define PROBE_LISTS    4

/* Instruction offsets (or other numbers) that the driver is told about, per attribute. */
struct probe_list_attribute {
        uint8_t id;     /* enum cubin_attribute_id */
        bool is_offset; /* values are instruction numbers in the sequence */
        uint32_t count;
        uint32_t *values; /* owned */
};

struct probe_sequence {
        uint8_t *code; /* owned */
        uint32_t count;
        uint32_t id_at[PROBE_ID_MAX];
        uint32_t id_count;
        uint32_t return_at[WARP_EXITS_MAX +
                           1]; /* room for the displaced instruction and the branch back */
        uint32_t return_count;
        /*
         * The sequence starts by asking for the block's index: S2UR, then a comparison
         * that waits for the answer. The kernel's own first instructions may stand
         * between these two.
         */
        bool asks_first;
        struct probe_list_attribute lists[PROBE_LISTS];
};

/* One mention of a uniform register in the exit sequence. */
struct probe_ur_use {
        uint32_t instr;
        uint8_t field; /* INSTR_UR_* */
        uint8_t slot;  /* which value */
        uint8_t half;  /* 1: the second register of a pair */
};

struct probe_code {
        const struct arch *arch; /* for whose machine code it is */
        uint32_t registers;
        bool uses_ctaid_z;
        struct probe_sequence entry;
        struct probe_sequence exit;
        bool exit_asks_lanes;     /* it asks which lanes are active */
        bool exit_votes;          /* it asks more of them than that */
        uint32_t exit_barriers;   /* convergence barriers it keeps, by bit */
        const char *exit_refusal; /* why it cannot be an exit probe; NULL: it can */
        uint32_t exit_detail;
        struct probe_ur_use *ur_uses; /* owned */
        size_t ur_use_count;
        uint32_t ur_slots; /* aligned pairs of uniform registers needed */
};

/* One program at one place of a kernel. */
struct planned_probe {
        const struct probe_code *code;
        uint32_t at;                /* first instruction of its sequence; not at accesses */
        uint32_t early;             /* entry: so many of the kernel's instructions are in it */
        uint8_t ur[PROBE_UR_SLOTS]; /* exit and accesses: register pair for each slot */
        uint8_t barriers[INSTR_BARRIERS]; /* likewise: convergence barrier for each it keeps */
};

/* Place of an instruction of a sequence: in an entry the kernel's own come behind the first. */
static inline uint32_t planned_place(const struct planned_probe *p, uint32_t k)
{
        return p->at + k + (k ? p->early : 0);
}

/* Programs that run one after the other at one place. */
struct probe_chain {
        struct planned_probe probes[SPLICE_CHAIN_MAX];
        uint32_t count;
};

/*
 * Give every value the exit sequence keeps in a uniform register a slot; fills
 * ur_uses and ur_slots. 0; -ENOMEM; -EINVAL it keeps values there that depend on
 * the lane or the moment.
 */
int probe_assign_uniform(struct probe_code *code);

/* Registers that the programs of a chain and one more use at most. */
uint32_t chain_registers(const struct probe_chain *chain, const struct probe_code *next);

/* Put the kernel's id into a copy of the sequence. */
void sequence_set_id(const struct probe_sequence *seq, uint32_t kernel_id, uint8_t *copy);

/* Choose for each barrier of the exit sequence one that is not in `used`. False: too few. */
bool planned_choose_barriers(struct planned_probe *p, uint32_t used);

/* Put the uniform registers and barriers that were chosen into a copy of the exit sequence. */
void planned_set_chosen(const struct planned_probe *p, uint8_t *copy);
