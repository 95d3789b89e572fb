/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the splicer: what is to be done with one kernel. Planning looks at
 * the kernel and decides; writing carries the decision out in the new image.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cubin.h"
#include "splice.h"
#include "splice_probe.h"

/* What the tables of the image say about a kernel, found by splice.c. */
struct kernel_site {
        uint32_t symbol;
        uint32_t text;            /* section */
        uint32_t info;            /* its .nv.info section; 0 none */
        uint64_t regcount_offset; /* of its number in .nv.info; 0 none */
        uint32_t registers;
        bool shares_section; /* with another kernel */
        bool calls_out;      /* a relocated call leaves the section */
        uint32_t relocated;  /* first instruction that a relocation applies to; UINT32_MAX none */
        bool relocated_exit;
};

/* The rest of the image, as far as a kernel's calls can reach it. */
struct image_functions {
        uint64_t ur_used;    /* by functions that are not kernels */
        bool calls_unknown;  /* code that is not in the image can be called */
        bool unknown_opcode; /* such a function has one */
        bool ends_threads;   /* such a function has an EXIT, which no probe will see */
};

struct kernel_plan {
        bool entry, exit;
        const char *entry_refusal, *exit_refusal;
        uint32_t entry_detail, exit_detail;
        uint32_t exits;
        uint32_t registers;         /* after */
        uint32_t count;             /* instructions before */
        uint32_t new_count;         /* and after; equal when nothing is done */
        uint32_t entry_at, exit_at; /* first instruction of each sequence */
        uint32_t early; /* so many of the kernel's instructions are in the entry sequence */
        uint8_t ur[PROBE_UR_SLOTS]; /* register pair for each slot of the exit probe */
        size_t info_size;           /* of the new .nv.info section */
};

/* Decide. Never fails: a refusal is a decision. */
void kernel_plan(const struct cubin *c, const struct kernel_site *site,
                 const struct image_functions *functions, const struct splice_probes *probes,
                 struct kernel_plan *ret_plan);

/*
 * Carry out: `code` holds the kernel's instructions, with room for new_count.
 */
void kernel_write_code(const struct kernel_plan *plan, const struct splice_probes *probes,
                       uint32_t kernel_id, uint8_t *code);

/*
 * The kernel's attributes after splicing, from the old ones. Writes to out unless
 * it is NULL. The size, or -EINVAL when the old ones are broken.
 */
int64_t kernel_write_info(const struct kernel_plan *plan, const struct splice_probes *probes,
                          const uint8_t *info, size_t size, uint8_t *out);

/* Add what one function's `count` instructions do to what is known of all. */
void functions_add(struct image_functions *f, const uint8_t *code, size_t count);
