/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The PTX writer, shared by its files: ptx.c (fragment, leader, jumps),
 * ptx_alu.c, ptx_memory.c, ptx_stack.c, ptx_call.c, ptx_loop.c.
 *
 * Registers of a fragment:
 *   %b0..      the registers (code.h) that hold numbers and map element addresses;
 *              the context's exists only in the flow state, and those of the stack do as
 *              long as all distances are known
 *   %s0..      8-byte slots of the stack from its end, unless it must be in memory
 *   %z, %zl    zero in the leader, but the assembler cannot know it
 *   %ma, %ms   of an access: its address; size, kind and space in one number
 *   %ns, %nl   of a warp's access: how many sectors, how many lines
 *   %d %w %p   temporaries of 64 and 32 bits, predicates
 *
 * The unknowable zero serves two ends. An exit or memory probe is put where part of a
 * warp may go on running, and uniform registers belong to the whole warp: with the
 * zero mixed in, a value depends on the lane and stays out of them. And the
 * kernel id stays one literal in one instruction instead of being folded.
 *
 * For the same reason an exit probe should have few convergence barriers: with one
 * leader per warp branches are marked as the uniform ones they are.
 */
#include <stdbool.h>

#include "device/compile.h"
#include "device/flow.h"

/* A store of 8 bytes held back because a second one may join it. */
struct ptx_pending {
        bool valid;
        unsigned base_reg; /* eBPF register the address was in */
        size_t insn;       /* that stores */
        int64_t at;        /* offset of the instruction */
        unsigned address;  /* %d temporary */
        unsigned value;    /* %d temporary */
};

#define PTX_SLOTS ((CODE_FRAMES * CODE_FRAME_BYTES + CODE_RECORDS * CODE_RECORD_BYTES) / 8)

struct ptx_writer {
        const struct compile_job *job;
        const struct code *code;
        const struct flow *flow;
        struct flow_state *state, *before; /* around the instruction that is being written */
        struct text start, body;
        unsigned wides, words, predicates; /* temporaries taken */
        uint64_t slots[PTX_SLOTS / 64];    /* set of stack slots in use */
        bool *loops; /* by instruction: one that a loop goes back to; NULL: of no interest */
        bool stack_addresses; /* they exist: some distances are not known */
        bool stack_in_memory;
        bool stack_is_wide;   /* found while writing: it has to be in memory */
        unsigned frame_depth; /* bytes of a frame that are used; 0: not asked for yet */
        bool uses_zero;
        bool uses_active_mask;
        bool uses_address, uses_access; /* of gpu/mem: %ma, %ms */
        bool uses_sectors, uses_lines;  /* %ns, %nl */
        struct ptx_pending pending;
        struct device_cost *costs; /* of running each instruction once */
        size_t insn;               /* that is being written */
};

static inline bool ptx_slot_used(const struct ptx_writer *w, unsigned slot)
{
        return w->slots[slot / 64] >> slot % 64 & 1;
}

static inline void ptx_use_slot(struct ptx_writer *w, unsigned slot)
{
        w->slots[slot / 64] |= UINT64_C(1) << slot % 64;
}

/* An operand as text. */
struct ptx_operand {
        char text[32];
};

/* One instruction line. */
#define ptx_line(w, format, ...)                                                                   \
        do {                                                                                       \
                text_add(&(w)->body, "\t" format ";\n" __VA_OPT__(, ) __VA_ARGS__);                \
                (w)->costs[(w)->insn].instructions++;                                              \
        } while (0)

/* One that accesses memory; an atomic one. */
#define ptx_memory_line(w, format, ...)                                                            \
        do {                                                                                       \
                ptx_line(w, format __VA_OPT__(, ) __VA_ARGS__);                                    \
                (w)->costs[(w)->insn].memory++;                                                    \
        } while (0)
#define ptx_atomic_line(w, format, ...)                                                            \
        do {                                                                                       \
                ptx_line(w, format __VA_OPT__(, ) __VA_ARGS__);                                    \
                (w)->costs[(w)->insn].atomics++;                                                   \
        } while (0)

/* Instruction i, with the states before and after it. */
void ptx_alu(struct ptx_writer *w, size_t i, const struct flow_state *before,
             const struct flow_state *after);
void ptx_load(struct ptx_writer *w, size_t i, const struct flow_state *before,
              const struct flow_state *after);
void ptx_store(struct ptx_writer *w, size_t i, const struct flow_state *before);
void ptx_atomic(struct ptx_writer *w, size_t i, const struct flow_state *before);
void ptx_map_call(struct ptx_writer *w, size_t i, const struct flow_state *before);
void ptx_ring_call(struct ptx_writer *w, size_t i, const struct flow_state *before);
void ptx_print_call(struct ptx_writer *w, size_t i, const struct flow_state *before);
void ptx_call(struct ptx_writer *w, size_t i, const struct flow_state *before);

/* Write the store that was held back, if any. */
void ptx_flush(struct ptx_writer *w);

/* New temporaries; the number goes behind %d, %w, %p. */
unsigned ptx_wide(struct ptx_writer *w);
unsigned ptx_word(struct ptx_writer *w);
/* A new %w with the number of the context in the process; 0 where it is not known. */
unsigned ptx_context_number(struct ptx_writer *w);
unsigned ptx_predicate(struct ptx_writer *w);

/* The second operand of an instruction, as 64 or 32 bits. */
struct ptx_operand ptx_operand64(struct ptx_writer *w, const struct code_insn *insn);
struct ptx_operand ptx_operand32(struct ptx_writer *w, const struct code_insn *insn);

/* The low half of an eBPF register in a new %w. */
unsigned ptx_low_half(struct ptx_writer *w, unsigned reg);

/* Suffix of a branch: with one thread per warp behind the leader test, none diverges. */
const char *ptx_uniform(const struct ptx_writer *w);

/* Extend the sign of the low `bits` bits (8, 16, 32) of an eBPF register. */
void ptx_extend_sign(struct ptx_writer *w, unsigned reg, unsigned bits);

/* Whether a value has a PTX register (the others live in the flow state only). */
bool ptx_exists(const struct ptx_writer *w, const struct value *v);

/*
 * Read `bytes` bytes of the stack in registers, `off` behind `address` in register `reg`,
 * zero-extended, into a new %d; write the low bytes of `value` (an operand text) there.
 */
unsigned ptx_stack_load(struct ptx_writer *w, const struct value *address, unsigned reg, int off,
                        unsigned bytes);
void ptx_stack_store(struct ptx_writer *w, const struct value *address, unsigned reg, int off,
                     unsigned bytes, const char *value);

/*
 * The 8-byte word that lies `at` bytes behind the stack address in register `reg`, of
 * an argument of `size` bytes, zeros behind its end, in a new %d.
 */
unsigned ptx_argument_word(struct ptx_writer *w, const struct flow_state *before, unsigned reg,
                           unsigned at, unsigned size);

/*
 * Make a value read from a special register depend on the lane, in exit and memory programs.
 * A rotation by the zero: both halves of a funnel shift are the value, and only
 * one operand of an instruction may be a uniform register.
 */
void ptx_blur_word(struct ptx_writer *w, unsigned word);
void ptx_blur_wide(struct ptx_writer *w, unsigned wide);

/* Find the loops of an exit or memory program (ptx_loop.c). 0; -ENOMEM. */
int ptx_find_loops(struct ptx_writer *w);

/* On a way to instruction `target`: what changes in the loop there may not be uniform. */
void ptx_enter_loop(struct ptx_writer *w, size_t target);

/* Likewise for %d, %w, %b or %s `number`. Only where the agent asks for it. */
void ptx_loosen(struct ptx_writer *w, char kind, unsigned number);

/* The address a map starts at, in a new %d. */
unsigned ptx_map_base(struct ptx_writer *w, unsigned map);

/* Likewise an address of a map, in all programs: atomics of a warp on an address that is the
   same in all lanes would be collected with votes and shuffles first. */
void ptx_blur_address(struct ptx_writer *w, unsigned wide);
