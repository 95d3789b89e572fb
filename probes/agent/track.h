/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Instructions that finish at an unknown time and that no scoreboard tells of. The
 * assembler leaves scoreboards out where a thread ends before its registers could be
 * used again: exactly where a probe uses them again. So these get one. Adding one only
 * ever makes somebody wait longer.
 *
 * Pure functions, no state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch.h"

/*
 * Bit n set: scoreboard n is needed to know when this instruction is done with
 * its registers, but no scoreboard is asked to tell.
 */
#define TRACK_RESULT 1
#define TRACK_SOURCE 2
uint32_t track_untracked(const struct arch *a, const struct instr *i);

/*
 * The scoreboard that tells when a predicate is there which the instruction may write at an
 * unknown time; INSTR_NO_SCOREBOARD: none. Where it has no other result it is the one that
 * tells of its sources. ret_missing: there has to be one, so that the predicate can be saved;
 * in code as it was assembled another instruction of the queue, behind this one, tells.
 */
uint32_t track_predicate(const struct arch *a, const struct instr *i, bool *ret_missing);
/* Give those that miss one this one. Edits `code` (count instructions) in place. */
void track_predicates(const struct arch *a, uint8_t *code, size_t count, uint32_t scoreboard);

/* How many instructions wait for each scoreboard. */
struct track_waits {
        size_t waits[INSTR_SCOREBOARDS];
        size_t counted[INSTR_SCOREBOARDS]; /* waits by a count, of DEPBAR */
};

/* A counter for each scoreboard in one word: the sum over TRACK_WAITS_MAX instructions fits. */
#define TRACK_WAITS_BITS 10
#define TRACK_WAITS_MAX  ((1u << TRACK_WAITS_BITS) - 1)

static inline uint64_t track_packed_waits(const struct instr *i)
{
        /* Bit n of the set goes to bit 10 * n: six copies, 9 bits apart, of each one bit. */
        const uint64_t copies = 0x201008040201, counters = 0x4010040100401;

        return instr_waits(i) * copies & counters;
}

void track_count_waits(struct track_waits *w, uint64_t packed);

/* One more DEPBAR: it waits until no more than some are under way. */
void track_count_depbar(struct track_waits *w, const struct instr *i);

/* The scoreboard whose later completion delays code of `count` instructions least. */
uint32_t track_quiet_scoreboard(const struct track_waits *w, size_t count);

/*
 * Give every instruction that nothing tracks a scoreboard, so that waiting for
 * all scoreboards means that no register will be read or written any more.
 * trust_order: instructions followed by a tracked one of the same queue are left
 * alone. Edits `code` (count instructions) in place; the number of instructions
 * changed.
 */
size_t track_all(const struct arch *a, uint8_t *code, size_t count, bool trust_order);

/*
 * The same, trusting the order, where a pass over the code has been: marks are the
 * numbers, ascending, of all instructions that are untracked and, for each run without
 * control flow that has such, of the one that ends it. There may be more of the latter.
 */
size_t track_marked(const struct arch *a, uint8_t *code, size_t count, const uint32_t *marks,
                    size_t mark_count, uint32_t scoreboard);
