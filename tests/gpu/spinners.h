/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Child processes that run spin.cu, for the checks of context switches and channel groups. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct spinner {
        pid_t pid;
        FILE *output;
        uint64_t *ends; /* CLOCK_MONOTONIC ns at which its kernels had ended */
        size_t count;
};

/* Start one that spins for so long. False: it could not be started. */
bool spinner_start(struct spinner *s, const char *program, const char *seconds);

/* Wait until it spins. False: it ended. */
bool spinner_wait_ready(struct spinner *s);

/* Wait for its end and read its times. False: it failed. */
bool spinner_finish(struct spinner *s);

/* Kernels that ended within a time. */
size_t spinner_kernels(const struct spinner *s, uint64_t from_ns, uint64_t until_ns);
