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
#include "splice_mem.h"
#include "splice_probe.h"
#include "splice_scan.h"

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
        uint64_t ur_used; /* by functions that are not kernels */
        uint32_t barriers_used;
        bool calls_unknown;  /* code that is not in the image can be called */
        bool unknown_opcode; /* such a function has one */
        bool ends_threads;   /* such a function has an EXIT, which no probe will see */
};

struct kernel_plan {
        const struct arch *arch;
        struct probe_chain entry, exit;
        uint32_t exits;
        size_t mark_first, mark_count; /* of the image's marks */
        uint32_t quiet_scoreboard;     /* track.h */
        uint32_t registers;            /* after */
        uint32_t count;                /* instructions before */
        uint32_t new_count;            /* and after; equal when nothing is done */
        /*
         * Exit: the register that keeps the lanes that came together, for programs
         * that ask for them behind one that may have sent lanes different ways; 0 none.
         */
        uint32_t lanes_register;
        uint32_t exit_barrier; /* where lanes meet behind each but the last; INSTR_BARRIERS none */
        uint32_t exit_at;      /* where EXITs go */
        uint32_t mem_at;       /* the copies at accesses */
        struct mem_plan mem;
        size_t info_size; /* of the new .nv.info section */
};

static inline bool kernel_changes(const struct kernel_plan *plan)
{
        return plan->entry.count || plan->exit.count || plan->mem.chain.count;
}

/*
 * Decide. Never fails: a refusal is a decision. Adds the kernel's marks. outcomes, one
 * for each program, are all zero before. The plan needs kernel_plan_done().
 */
void kernel_plan(const struct arch *a, const struct cubin *c, const struct kernel_site *site,
                 const struct image_functions *functions, const struct probe_list *probes,
                 struct code_marks *marks, struct probe_outcome *outcomes,
                 struct kernel_plan *ret_plan);

void kernel_plan_done(struct kernel_plan *plan);

/*
 * Carry out: `code` holds the kernel's instructions, with room for new_count; marks as
 * at planning.
 */
void kernel_write_code(const struct kernel_plan *plan, const struct code_marks *marks,
                       uint32_t kernel_id, uint8_t *code);

/*
 * The kernel's attributes after splicing, from the old ones. Writes to out unless
 * it is NULL. The size, or -EINVAL when the old ones are broken.
 */
int64_t kernel_write_info(const struct kernel_plan *plan, const uint8_t *info, size_t size,
                          uint8_t *out);

/*
 * Add what one function's `count` instructions do to what is known of all. marks as for
 * kernels; none is added. 0; -ENOMEM.
 */
int functions_add(const struct arch *a, struct image_functions *f, const uint8_t *code,
                  size_t count, struct code_marks *marks);
