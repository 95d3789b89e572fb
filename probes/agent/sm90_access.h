/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What instructions of sm_90 do to memory: one table (sm90_access.c) of the opcodes whose
 * address is that of a thread, with where register, distance and size stand. Learnt from
 * what ptxas makes of each form of PTX and from the code of cuBLAS; a form that was not
 * seen there is not understood, and not guessed.
 *
 * Pure functions, no state.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sm90.h"

struct sm90_access {
        uint8_t kind;  /* enum gpuobs_access_kind */
        uint8_t space; /* enum gpuobs_space */
        uint8_t size;  /* bytes of one lane */
        bool is_wide;  /* the base is a pair of registers */
        uint8_t base;  /* register; SM90_R_ZERO: there is none */
        uint8_t ur;    /* uniform register that is added, wide or not; SM90_UR_ZERO: none */
        int32_t offset;
};

enum sm90_access_class {
        SM90_ACCESS_NONE,  /* accesses no memory, or never executes */
        SM90_ACCESS_PLAIN, /* as described */
        SM90_ACCESS_OTHER, /* accesses memory without an address for each thread, or is not
                              understood */
};

/* Look at an instruction. *ret_access is filled in for SM90_ACCESS_PLAIN only. */
enum sm90_access_class sm90_access(const struct sm90_instr *i, struct sm90_access *ret_access);
