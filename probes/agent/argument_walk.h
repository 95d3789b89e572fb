/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pointers to managed memory among the bytes a kernel is given, and the process's
 * side of their ring (argument_abi.h). Knows nothing of CUDA, takes no lock, calls
 * nothing; any number of threads.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "argument_abi.h"

/* Of one launch: more is not looked at, and the launch counts as read in part. */
#define ARGUMENT_WORDS_MAX 4096u /* the driver's limit of 32 KiB of parameters */
#define ARGUMENT_FOUND_MAX 16u   /* allocations */

/* What one launch was given. */
struct argument_found {
        uint32_t version; /* of the table that was read */
        unsigned count;
        unsigned words; /* looked at so far */
        bool cut;       /* there was more */
        struct {
                uint64_t start;   /* of the allocation */
                uint64_t address; /* the lowest pointer into it */
        } list[ARGUMENT_FOUND_MAX];
};

/* Begin with the table as it is now; false: it is being changed, or empty. */
bool argument_walk_begin(const struct agent_argument_map *m, struct argument_found *ret_found);

/*
 * Look at one parameter, or at a buffer of all of them: a pointer can be any whole
 * word of eight bytes, counted from the beginning. bytes must be readable.
 */
void argument_walk_bytes(const struct agent_argument_map *m, struct argument_found *f,
                         const void *bytes, size_t size);

/* Whether the table stayed as it was: else all that was found is worth nothing. */
bool argument_walk_end(const struct agent_argument_map *m, const struct argument_found *f);

/*
 * Write down what was found, in as many records as it takes. False: the ring was
 * full, and what there was no room for is counted.
 */
bool argument_push(struct agent_argument_map *m, const struct argument_found *f, uint64_t at_ns,
                   uint64_t func, uint32_t device);

/* A launch whose arguments are not known, or only in part. */
void argument_unread(struct agent_argument_map *m);

/* After a record was added: whether the daemon is to be woken. True for one caller only. */
bool argument_wakes(struct agent_argument_map *m);
