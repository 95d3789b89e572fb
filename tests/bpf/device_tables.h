/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Shared by device_tables.bpf.c and its tests. */
#include "gpuobs_types.h"

#define TABLES_COUNTERS 16
#define TABLES_WORD     "observability"
#define TABLES_WORD_MAX 16
#define TABLES_STEPS    8
#define TABLES_NEXT                                                                                \
        {                                                                                          \
                5, 12, 7, 1, 9, 2, 14, 11, 0, 3, 13, 15, 8, 6, 4, 10                               \
        }

/* Where a walk from a place ends. */
static inline unsigned tables_walk(unsigned at)
{
        static const __u8 next[16] = TABLES_NEXT;

        for (unsigned i = 0; i < TABLES_STEPS; i++)
                at = next[at % 16];
        return at;
}

/* What each counter counts. */
enum tables_counter {
        TABLES_WEIGHT,   /* of threads, by their number in the row */
        TABLES_TRIANGLE, /* cells of a table of two dimensions, with signs */
        TABLES_LETTERS,  /* of the word */
        TABLES_EXITS,    /* weights of warps, at exits */
        TABLES_STEPPED,  /* where a walk through a table of next places ends */
        TABLES_ALIKE,    /* warps whose threads went the same way by a table */
};
