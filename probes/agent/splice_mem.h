/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the splicer: programs in front of instructions that access memory. Planning
 * chooses what of the kernel they may use; writing puts a copy of them at each site.
 */
#include <stdbool.h>
#include <stdint.h>

#include "splice_probe.h"
#include "splice_sites.h"

/* What a pass over the kernel, and over what it may call, found. */
struct mem_facts {
        uint32_t barriers_used;                  /* convergence barriers, by bit */
        uint32_t predicate_boards;               /* scoreboards that tell of predicates, by bit */
        bool predicates_untold;                  /* of some none tells: track_predicates() */
        uint32_t quiet_scoreboard;               /* that these are given (track.h) */
        uint32_t load_boards[INSTR_SCOREBOARDS]; /* how often one tells of memory that was read */
        uint32_t registers;                      /* of the kernel */
};

struct mem_plan {
        const struct arch *arch;
        bool looked; /* for sites */
        struct mem_sites sites;
        struct probe_chain chain; /* the programs, in the order they run */
        uint32_t address;         /* pair of registers for the address that is accessed */
        uint32_t saved;           /* register for the kernel's predicates */
        uint32_t base;            /* what is added to the numbers of the programs' registers */
        uint32_t barriers[2];     /* around all programs; around each but the last */
        uint32_t waits;           /* before predicates are saved */
        bool predicates_untold;   /* first give these a scoreboard */
        uint8_t boards[INSTR_SCOREBOARDS]; /* scoreboard for each of the programs' */
        uint32_t instructions;             /* of all copies */
};

/*
 * Whether one more program can be there. NULL, or why not (a constant phrase) with a
 * number that goes with it. code is the kernel's.
 */
const char *mem_refuse(const struct mem_plan *plan, const struct mem_facts *facts,
                       const struct probe_code *next, const uint8_t *code, uint32_t *ret_detail);

/* Registers per thread that the kernel then needs. */
uint32_t mem_registers(const struct mem_plan *plan, const struct mem_facts *facts,
                       const struct probe_code *next);

/* Choose, when all programs are in the chain. */
void mem_lay_out(struct mem_plan *plan, const struct mem_facts *facts, const uint8_t *code);

/*
 * Write the copies to `code` from instruction `at` on and make each site a branch to its
 * own. Returns the instruction behind them.
 */
uint32_t mem_write(const struct mem_plan *plan, uint32_t kernel_id, uint32_t at, uint8_t *code);

/* Where, counted from the first copy, program n begins in the copy of site s. */
uint32_t mem_place(const struct mem_plan *plan, uint32_t s, uint32_t n);
