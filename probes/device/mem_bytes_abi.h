/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* What mem_bytes.bpf.c leaves in its map `kernels` (GPUOBS_PER_SM) and in its variable. */
#include "id_table.h"

#define MEM_BYTES_KERNELS 256

struct mem_bytes {
        struct id_table_owner owner; /* the kernel */
        __u64 loaded;                /* bytes that threads asked for, all kinds of addresses */
        __u64 stored;
        __u64 atomic;
        __u64 generic; /* of these: by an address that need not be of global memory */
        __u64 sectors; /* of 32 bytes that the requests of warps touched */
        __u64 pad[2];
};
_Static_assert(sizeof(struct mem_bytes) == 64, "memory bytes");
