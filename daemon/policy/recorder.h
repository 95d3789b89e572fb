/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Writes down what managed memory goes through, as a trace the simulator replays
 * (sim/trace.h). Only what the driver reports is seen: of memory that is where it
 * is used, nothing. Each batch of faults stands for one launch, which took the time
 * since the one before.
 *
 * A file is complete at any time: records first, then the head that counts them.
 * A file that is full and errors of writing end the recording; policy_recorder_flush() says so.
 */
#include <stddef.h>
#include <stdint.h>

#include "policies/policy_abi.h"

struct policy_recorder;

/* Create the file (truncated), for so many records at most. 0 or -errno. */
int policy_recorder_new(const char *path, uint64_t records_max,
                        struct policy_recorder **ret_recorder);
struct policy_recorder *policy_recorder_free(struct policy_recorder *r);

/*
 * NULL recorder: nothing. What is left out is said, and everything about it from then on is left
 * out: -ENOSPC more processes than a trace can tell apart, or allocations of one; -ENOMEM; else 0.
 */
int policy_recorder_start(struct policy_recorder *r, uint64_t process, const char *comm);
void policy_recorder_exit(struct policy_recorder *r, uint64_t process);
int policy_recorder_alloc(struct policy_recorder *r, uint64_t process, uint64_t address,
                          uint64_t bytes);
void policy_recorder_freed(struct policy_recorder *r, uint64_t process, uint64_t address);
void policy_recorder_faults(struct policy_recorder *r, uint64_t process,
                            const struct policy_fault *faults, size_t n, uint64_t now_ns);

/*
 * Bring the file up to date. 0, or the error that ended the recording, -errno; -EFBIG: it is full,
 * what came since is not in it.
 */
int policy_recorder_flush(struct policy_recorder *r);
