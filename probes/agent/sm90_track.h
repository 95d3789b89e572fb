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

#include "sm90.h"

/*
 * Bit n set: scoreboard n is needed to know when this instruction is done with
 * its registers, but no scoreboard is asked to tell.
 */
#define SM90_UNTRACKED_RESULT 1
#define SM90_UNTRACKED_SOURCE 2
uint32_t sm90_untracked(const struct sm90_instr *i);

/* How many instructions wait for each scoreboard. */
struct sm90_wait_counts {
        size_t waits[SM90_SCOREBOARDS];
        size_t counted[SM90_SCOREBOARDS]; /* waits by a count, of DEPBAR */
};

/* A counter for each scoreboard in one word: the sum over SM90_WAITS_MAX instructions fits. */
#define SM90_WAITS_BITS 10
#define SM90_WAITS_MAX  ((1u << SM90_WAITS_BITS) - 1)

static inline uint64_t sm90_packed_waits(const struct sm90_instr *i)
{
        /* Bit n of the set goes to bit 10 * n: six copies, 9 bits apart, of each one bit. */
        const uint64_t copies = 0x201008040201, counters = 0x4010040100401;

        return sm90_waits(i) * copies & counters;
}

void sm90_count_waits(struct sm90_wait_counts *w, uint64_t packed);

/* One more DEPBAR: it waits until no more than some are under way. */
void sm90_count_depbar(struct sm90_wait_counts *w, const struct sm90_instr *i);

/* The scoreboard whose later completion delays code of `count` instructions least. */
uint32_t sm90_quiet_scoreboard(const struct sm90_wait_counts *w, size_t count);

/*
 * Give every instruction that nothing tracks a scoreboard, so that waiting for
 * all scoreboards means that no register will be read or written any more.
 * trust_order: instructions followed by a tracked one of the same queue are left
 * alone. Edits `code` (count instructions) in place; the number of instructions
 * changed.
 */
size_t sm90_track_all(uint8_t *code, size_t count, bool trust_order);

/*
 * The same, trusting the order, where a pass over the code has been: marks are the
 * numbers, ascending, of all instructions that are untracked and, for each run without
 * control flow that has such, of the one that ends it. There may be more of the latter.
 */
size_t sm90_track_marked(uint8_t *code, size_t count, const uint32_t *marks, size_t mark_count,
                         uint32_t scoreboard);
