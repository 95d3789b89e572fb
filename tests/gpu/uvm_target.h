/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The observed side of uvm_check: a process with managed memory that touches it
 * from the CPU and from the GPU when told to. It knows nothing of its observer.
 */
#include <stdint.h>
#include <sys/types.h>

enum target_command {
        TARGET_HELLO = 'h',     /* address, bytes */
        TARGET_CPU = 'c',       /* write all of it from the CPU */
        TARGET_GPU = 'g',       /* add 1 to all of it on the GPU */
        TARGET_READ = 'r',      /* read all of it on the GPU */
        TARGET_THRASH = 't',    /* fight for a page of it from both; contents: write all anew */
        TARGET_VERIFY = 'v',    /* address: words that are not what they must be */
        TARGET_FREE_BYTES = 'f' /* bytes: free memory of the GPU as CUDA says */
};

struct target_answer {
        uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC of what was asked for */
        uint64_t address, bytes;
        uint8_t uuid[16]; /* of the GPU */
};

struct target {
        pid_t pid;
        int to, from;
};

/* Start it. 0, or 77 when there is no GPU or not room enough for 64 MiB. At most max bytes. */
int target_start(uint64_t max, struct target *ret_target, struct target_answer *ret_hello);

/*
 * Be one that needs no telling: touch the memory from CPU and GPU in turn for so many
 * seconds, and print the pid, how often and how much. The exit status.
 */
int target_run(unsigned seconds, uint64_t max);

/* Ask and wait; ends the program when the target died. */
struct target_answer target_ask(struct target *t, enum target_command command);
