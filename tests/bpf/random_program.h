/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Random eBPF programs that the kernel's verifier accepts, and inputs for them. A
 * program loads numbers from an element of the map, does random arithmetic, branches,
 * loops, stack, map and atomic operations and calls of its own functions with them,
 * and stores all registers back into the element.
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

/* The program of a seed; `map` is the descriptor of the map it refers to. */
void random_program_make(uint64_t seed, int map, struct random_program *ret_program);

/* The input of a seed. */
void random_input_make(uint64_t seed, struct pair_input *ret_input);
