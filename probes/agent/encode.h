/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Instructions that the splicer makes, from what an architecture's table has for them.
 *
 * Pure functions, no state.
 */
#include "arch.h"

/* A branch that is taken exactly when this EXIT exits, with its waits. */
struct instr encode_exit_to_branch(const struct arch *a, const struct instr *exit, int64_t bytes);

struct instr encode_bra(const struct arch *a, int64_t bytes);
struct instr encode_bssy(const struct arch *a, uint32_t barrier, int64_t bytes);
struct instr encode_bsync(const struct arch *a, uint32_t barrier, uint32_t waits);
struct instr encode_break(const struct arch *a, uint32_t barrier);
/* All lanes of the warp wait for each other. */
struct instr encode_warpsync(const struct arch *a, uint32_t waits);
struct instr encode_nop(const struct arch *a);
/* A NOP that takes the place of i: as many cycles, the same waits. */
struct instr encode_nop_like(const struct arch *a, const struct instr *i);
/* A NOP that waits for scoreboards and for all results of fixed latency. */
struct instr encode_wait(const struct arch *a, uint32_t scoreboards);

/* Rd = value and URd = value. */
struct instr encode_mov(const struct arch *a, uint32_t reg, uint32_t value);
struct instr encode_umov(const struct arch *a, uint32_t ur, uint32_t value);
/* Rd = the set of active lanes. */
struct instr encode_vote_lanes(const struct arch *a, uint32_t reg);
/* Rd = Rs in place of an instruction with destination Rd: its predicate, cycles and waits. */
struct instr encode_move_like(const struct arch *a, const struct instr *i, uint32_t source);

/* Rd = Rs; Rd = Ra + value; the same with a carry out to or in from P0; Rd = Ra + UR. */
struct instr encode_mov_register(const struct arch *a, uint32_t reg, uint32_t from);
struct instr encode_add(const struct arch *a, uint32_t reg, uint32_t ra, int32_t value);
struct instr encode_add_low(const struct arch *a, uint32_t reg, uint32_t ra, int32_t value);
struct instr encode_add_high(const struct arch *a, uint32_t reg, uint32_t ra, int32_t value);
struct instr encode_add_uniform(const struct arch *a, uint32_t reg, uint32_t ra, uint32_t ur);

/* All predicates of the thread to a register, and back. */
struct instr encode_save_predicates(const struct arch *a, uint32_t reg);
struct instr encode_load_predicates(const struct arch *a, uint32_t reg);
