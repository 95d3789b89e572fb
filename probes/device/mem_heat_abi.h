/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* What mem_heat.bpf.c leaves in its map `pages` (GPUOBS_PER_SM) and in its variable. */
#include "id_table.h"

#define MEM_HEAT_PAGES      2048 /* of each multiprocessor */
#define MEM_HEAT_PAGE_SHIFT 21   /* 2 MiB, the page of GPU memory */

struct mem_heat {
        struct id_table_owner owner; /* address >> MEM_HEAT_PAGE_SHIFT */
        __u64 loads;                 /* requests of warps */
        __u64 writes;                /* likewise, stores and atomic operations */
        __u64 sectors;               /* of 32 bytes that they touched */
};
_Static_assert(sizeof(struct mem_heat) == 32, "memory heat");
