/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* What sm_balance.bpf.c leaves in its map `multiprocessors`, one element for each (GPUOBS_PER_SM).
 */
#include "../gpuobs_types.h"

/*
 * block_ns and busy_ns grow by the time of an end and shrink by that of a beginning:
 * they are times only while no block is there. Else last_ns, some moment at which
 * those blocks were there, takes the place of the ends that are to come:
 * sm_balance_block_ns(), sm_balance_busy_ns().
 */
struct sm_balance {
        __u64 blocks;   /* that began */
        __u64 resident; /* that began and have not ended */
        __u64 block_ns; /* ends minus beginnings of all blocks */
        __u64 busy_ns;  /* the same of stretches in which there was a block */
        __u64 last_ns;  /* GPU clock, of the latest beginning or end */
        __u64 pad[3];   /* one cache line, no other multiprocessor's */
};
_Static_assert(sizeof(struct sm_balance) == 64, "sm balance");

static inline __u64 sm_balance_block_ns(const struct sm_balance *s)
{
        return s->block_ns + s->resident * s->last_ns;
}

static inline __u64 sm_balance_busy_ns(const struct sm_balance *s)
{
        return s->busy_ns + (s->resident ? s->last_ns : 0);
}
