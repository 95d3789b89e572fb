/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the splicer: what a kernel's code and its attributes say. */
#include <stdbool.h>
#include <stdint.h>

#include "cubin.h"
#include "splice_mem.h"

/*
 * Instructions that writing comes back to, of one kernel behind the other, each by its
 * number in its kernel: EXITs, what track_marked() asks for.
 */
struct code_marks {
        uint32_t *at; /* owned */
        size_t count, room;
};

void marks_done(struct code_marks *m);

/* What one pass over the code finds. */
struct scan {
        bool unknown;
        uint32_t unknown_opcode;
        uint64_t ur_used;
        uint32_t exits;
        uint64_t odd_exit; /* hi of an EXIT that no branch can stand in for */
        bool has_odd_exit;
        bool jumps_to_start;
        bool calls_indirect;
        uint32_t registers_min;    /* the kernel gives registers away down to this; 255 */
        uint32_t barriers_used;    /* convergence barriers, by bit */
        uint32_t quiet_scoreboard; /* track_quiet_scoreboard() */
};

/* Facts from the kernel's attributes. */
struct limits {
        bool broken;
        uint32_t listed;  /* offset of the first instruction an attribute names; UINT32_MAX none */
        uint32_t threads; /* most threads of a block */
        uint32_t registers;  /* most that its compiler was allowed, for so many blocks at a time */
        uint32_t param_base; /* where parameters start in bank 0; 0 not said */
};

/* Look at code and add its marks. 0; -ENOMEM. */
int scan_code(const struct arch *a, const uint8_t *code, uint32_t count, struct code_marks *marks,
              struct scan *ret_scan);

/* What programs at accesses of memory need to know of it, but for the rest of the image. */
void scan_loads(const struct arch *a, const uint8_t *code, uint32_t count, struct mem_facts *facts);

/* Of the attributes in section `info`; 0: there are none. */
struct limits read_limits(const struct cubin *c, uint32_t info);
