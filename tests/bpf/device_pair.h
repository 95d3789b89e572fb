/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One program, run by the kernel (BPF_PROG_TEST_RUN) and compiled to PTX and run by
 * the interpreter, on the same input: an array of PAIR_ENTRIES elements (map 0,
 * what the program changes is the output), a context, and a table of constants (map 1).
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device_abi.h"
#include "device/program.h"

#define PAIR_WORDS   32 /* 8-byte words of an element */
#define PAIR_ENTRIES 4

/* The constants, which programs find by BPF_PSEUDO_MAP_VALUE: each byte is its place's pair_byte().
 */
#define PAIR_TABLE_BYTES 256
#define PAIR_MAPS        2

struct pair_input {
        uint64_t elements[PAIR_ENTRIES][PAIR_WORDS];
        struct gpuobs_kernel_ctx ctx;
};

struct pair_output {
        uint64_t elements[PAIR_ENTRIES][PAIR_WORDS];
};

/* The map programs refer to by its descriptor; skips the test where eBPF cannot be loaded. */
int pair_open(void);
void pair_close(void);

/* Likewise the table of constants; -1 when nothing is open. */
int pair_table(void);

static inline uint8_t pair_byte(unsigned place)
{
        return (uint8_t)(place * 151 + 77);
}

void pair_table_fill(uint8_t ret_bytes[PAIR_TABLE_BYTES]);

/* Load a program into the kernel. Its descriptor, or -errno; log gets the verifier's words. */
int pair_load(const struct bpf_insn *insns, size_t count, char *log, size_t log_size);

/* Run a loaded program on the input. */
void pair_run_kernel(int program, const struct pair_input *in, struct pair_output *ret);

/* What the verifier found: instructions it walked, bytes of their stack that functions use. */
struct pair_known {
        uint64_t verified;
        unsigned depth; /* 0: not known */
};

struct pair_known pair_known(int program, const struct bpf_insn *insns, size_t count);

/*
 * Compile for one thread of a grid. References to the maps become references to maps
 * 0 and 1. `known` may be NULL, and ret_cost. The fragment, to free(); ends the test when
 * the program is refused.
 */
char *pair_compile(const struct bpf_insn *insns, size_t count, enum device_where where,
                   const struct pair_known *known, struct device_cost *ret_cost);

/* Run a fragment on the input. Returns how many instructions all warps executed. */
uint64_t pair_run_ptx(const char *fragment, const struct pair_input *in, struct pair_output *ret);

/* For messages. */
void pair_print(const struct bpf_insn *insns, size_t count);
