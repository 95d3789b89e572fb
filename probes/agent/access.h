/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What instructions do to memory, as far as their address is that of a thread: register,
 * distance and size. Where these stand is in the architecture's table; a form that it does
 * not tell is not understood, and not guessed.
 *
 * Pure functions, no state.
 */
#include <stdbool.h>
#include <stdint.h>

#include "arch.h"

struct access {
        uint8_t kind;  /* enum gpuobs_access_kind */
        uint8_t space; /* enum gpuobs_space */
        uint8_t size;  /* bytes of one lane */
        bool is_wide;  /* the base is a pair of registers */
        uint8_t base;  /* register; INSTR_R_ZERO: there is none */
        uint8_t ur;    /* uniform register that is added, wide or not; INSTR_UR_ZERO: none */
        int32_t offset;
};

enum access_class {
        ACCESS_NONE,  /* accesses no memory, or never executes */
        ACCESS_PLAIN, /* as described */
        ACCESS_OTHER, /* accesses memory without an address for each thread, or is not
                              understood */
};

/* Look at an instruction. *ret_access is filled in for ACCESS_PLAIN only. */
enum access_class access_read(const struct arch *a, const struct instr *i,
                              struct access *ret_access);
