/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the splicer: the instructions of a kernel that can get a memory probe. */
#include <stddef.h>
#include <stdint.h>

#include "arch.h"
#include "cubin.h"

struct mem_sites {
        uint32_t *at;    /* owned: instructions, ascending */
        uint32_t *place; /* owned: for splice_mem.c to note where each copy of the probe begins,
                            counted from the first */
        uint32_t count;
        uint32_t others; /* that access memory and cannot get one */
};

/*
 * Find them in the code of section `text`, whose attributes are in section `info`.
 * 0; -ENOMEM.
 */
int sites_find(const struct arch *a, const struct cubin *c, uint32_t text, uint32_t info,
               struct mem_sites *ret_sites);
void sites_done(struct mem_sites *sites);
