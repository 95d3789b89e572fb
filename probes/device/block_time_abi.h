/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* What block_time.bpf.c leaves in its map `kernels` (id_table.h) and in its variable. */
#include "id_table.h"

#define BLOCK_TIME_KERNELS 1024
#define BLOCK_TIME_BUCKETS 40 /* the last one holds all that is longer: from 4.6 minutes on */

struct block_time {
        struct id_table_owner owner;
        __u64 sum_ns;                      /* of all blocks */
        __u64 buckets[BLOCK_TIME_BUCKETS]; /* blocks; bucket n: 2^(n-1) to 2^n - 1 ns */
};
_Static_assert(sizeof(struct block_time) == 16 + 8 * BLOCK_TIME_BUCKETS, "block time");
