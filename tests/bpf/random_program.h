/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Random eBPF programs that the kernel's verifier accepts, and inputs for them. A
 * program loads numbers from an element of the map, does random arithmetic, branches,
 * loops, stack, map and atomic operations, looks constants up, calls its own functions
 * with them, and stores all registers back into the element.
 */
#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/device_pair.h"

#define RANDOM_INSNS_MAX 1024

struct random_program {
        struct bpf_insn insns[RANDOM_INSNS_MAX];
        size_t count;
};

/* How much of the context a program may read, bytes: what a test, or a launch, can choose. */
#define RANDOM_CONTEXT_SIMULATED 64 /* up to smid, and what follows the fields of the warp */
#define RANDOM_CONTEXT_ANYWHERE  48 /* block, grid, thread */

/* The program of a seed; `map` is the descriptor of the map it refers to. */
void random_program_make(uint64_t seed, int map, unsigned context_bytes,
                         struct random_program *ret_program);

/* The input of a seed. */
void random_input_make(uint64_t seed, struct pair_input *ret_input);

/* A number that stands for an output; never 0. */
uint64_t random_output_hash(const struct pair_output *out);

/*
 * What a file of expected outputs begins with; a hash for each seed from `first` on
 * follows, 0 where the kernel did not take the program.
 */
struct random_expected {
        char magic[8]; /* RANDOM_EXPECTED_MAGIC */
        uint64_t first, count;
};
#define RANDOM_EXPECTED_MAGIC "gpuobsRP"
