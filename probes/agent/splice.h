/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Puts programs at the entries, exits and accesses of memory of the kernels of a cubin.
 *
 * Append-only: no instruction of a kernel moves. The kernel's first instruction,
 * its EXITs and its accesses become branches to code appended to the same section, so no code
 * offset in the image changes its meaning. A kernel that cannot be done safely
 * stays byte for byte as it was and says why; the others are not affected.
 *
 * Runs inside foreign processes: no global state, no logging, every failure is
 * returned. All functions may be called from any thread.
 */
#include <stddef.h>
#include <stdint.h>

#include "probe_list.h"

/* At most so many programs at one place of a kernel. */
#define SPLICE_CHAIN_MAX 8

/*
 * Where the kernel id (@K@) comes from in the PTX of a probe. Not a literal: the
 * assembler would fold it into other constants, which a patch could not reach.
 * Declare SPLICE_KERNEL_ID_PROLOGUE at the start of the entry and replace @K@ by
 * SPLICE_KERNEL_ID_NAME. An environment register cannot be folded, no CUDA
 * program has it, and it becomes one load of a known constant, which is replaced
 * by a load of the id. A probe that does not use it is fine, too.
 */
#define SPLICE_TEXT_OF(x)          #x
#define SPLICE_ENVIRONMENT(number) "%envreg" SPLICE_TEXT_OF(number)
#define SPLICE_KERNEL_ID_REGISTER  31
#define SPLICE_KERNEL_ID_NAME      "%gpuobs_kernel_id"
#define SPLICE_KERNEL_ID_PROLOGUE                                                                  \
        ".reg .b32 " SPLICE_KERNEL_ID_NAME ";\n"                                                   \
        "mov.u32 " SPLICE_KERNEL_ID_NAME ", " SPLICE_ENVIRONMENT(SPLICE_KERNEL_ID_REGISTER) ";\n"

/*
 * The low half of the launch descriptor's address (device_abi.h), as an operand of `mov.u32`
 * in the PTX of a probe. It has no environment register, unlike the number of the context
 * (grid_layout.h): the stand-in becomes a load of a known constant, whose offset is replaced.
 */
#define SPLICE_QUEUE_REGISTER 27
#define SPLICE_QUEUE          SPLICE_ENVIRONMENT(SPLICE_QUEUE_REGISTER)

/*
 * The address that is accessed and what is known of the access (@A@ and @S@) in a probe for
 * accesses of memory: values that differ from lane to lane and that no program reads.
 * Declare SPLICE_ACCESS_PROLOGUE at the start of the entry.
 */
#define SPLICE_ADDRESS_NAME "%gpuobs_address"
#define SPLICE_ACCESS_NAME  "%gpuobs_access"
#define SPLICE_ACCESS_PROLOGUE                                                                     \
        ".reg .b64 " SPLICE_ADDRESS_NAME ";\n.reg .b32 " SPLICE_ACCESS_NAME                        \
        ", %gpuobs_low, %gpuobs_high;\n"                                                           \
        "mov.u32 " SPLICE_ACCESS_NAME ", %lanemask_le;\n"                                          \
        "mov.u32 %gpuobs_low, %lanemask_ge;\n"                                                     \
        "mov.u32 %gpuobs_high, %lanemask_gt;\n"                                                    \
        "mov.b64 " SPLICE_ADDRESS_NAME ", {%gpuobs_low, %gpuobs_high};\n"

/* Machine code of one probe. Immutable: may be shared between threads. */
struct probe_code;

/*
 * Take a probe out of a cubin that holds exactly one kernel without parameters,
 * compiled for an architecture that there is a table of (arch.h) from
 *     .visible .entry NAME() { SPLICE_KERNEL_ID_PROLOGUE fragment ret; }
 * The cubin may be freed afterwards. 0; -ENOMEM; -EINVAL not such a cubin, or
 * machine code that cannot serve as a probe: *ret_reason (may be NULL) then
 * points to a constant sentence.
 */
int probe_code_extract(const void *cubin, size_t size, struct probe_code **ret_code,
                       const char **ret_reason);
struct probe_code *probe_code_free(struct probe_code *code);

/* Why it can only be at entries; NULL: it can be anywhere. */
const char *probe_code_exit_refusal(const struct probe_code *code);

/* Registers per thread the probe needs, and its length, for reports. */
uint32_t probe_code_registers(const struct probe_code *code);
uint32_t probe_code_instructions(const struct probe_code *code);

struct splice_kernel {
        const char *name; /* as in the symbol table (mangled) */
        uint32_t kernel_id;
        const struct probe_outcome *outcomes; /* by position in the list of programs */
        uint32_t exits;                       /* EXIT instructions redirected */
        bool accesses_known;                  /* they were looked for: a program was wanted there */
        uint32_t accesses;                    /* instructions with programs for accesses */
        uint32_t other_accesses;              /* that access memory and have none */
        uint32_t registers_before;            /* per thread */
        uint32_t registers_after;
};

struct splice_result {
        uint8_t *image; /* the rewritten cubin, for image_memory_free(); 8-byte aligned */
        size_t image_bytes;
        struct splice_kernel *kernels; /* in symbol order; ids first_kernel_id, +1, ... */
        size_t kernel_count;
        struct probe_outcome *outcomes; /* of all kernels */
        size_t in_count;                /* programs that are in, over all kernels */
        bool launches;                  /* its kernels launch kernels */
};

/*
 * Rewrite a cubin. Every kernel of the image gets an id, probed or not, so ids
 * first_kernel_id .. first_kernel_id + kernel_count - 1 are taken on success.
 *
 * 0; -ENOMEM; -EINVAL not a cubin, or a broken one; -ENOTSUP a cubin of an
 * architecture or form that is not understood. On failure *ret_reason (may be
 * NULL) points to a constant sentence. A result with in_count == 0 has nothing
 * changed in it: load the original.
 */
int splice_image(const void *cubin, size_t size, const struct probe_list *probes,
                 uint32_t first_kernel_id, struct splice_result **ret_result,
                 const char **ret_reason);
struct splice_result *splice_result_free(struct splice_result *r);
