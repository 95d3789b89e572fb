/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The functions of the CUDA driver API that are probed: which eBPF program
 * serves each, and where it finds what it needs among the arguments.
 */
#include <stddef.h>

#include "cpu/cpu_state_abi.h"

enum cuda_program {
        CUDA_PROGRAM_LAUNCH_KERNEL,
        CUDA_PROGRAM_LAUNCH_KERNEL_EX,
        CUDA_PROGRAM_LAUNCH_GRAPH,
        CUDA_PROGRAM_CALL,
        CUDA_PROGRAM_COUNT,
};

struct cuda_function {
        const char *name; /* exported symbol */
        enum cuda_program program;
        union cpu_call_cookie cookie;
};

extern const struct cuda_function cuda_functions[];
extern const size_t cuda_function_count;
