/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Policies in the daemon: the engine, told of what the observed processes do, and
 * the thread that carries its orders out on the driver.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct driver_call_event;
struct gpuobsd;
struct observed;
struct policy_engine;
struct policy_range;
struct process_info;
struct uvm_event;

/*
 * After managed_open(). Sets back time slices that a daemon left that was killed.
 * 0, or -errno.
 */
int policies_open(struct gpuobsd *d);

/* Undo what policies set, and wait for it; before managed_close(). */
void policies_close(struct gpuobsd *d);
/* After the loop has ended, and before asking_free(). */
void policies_end(struct gpuobsd *d);
void policies_free(struct gpuobsd *d);

struct policy_engine *policies_engine(const struct gpuobsd *d);

/* ---- what processes do ---- */

void policies_process_start(struct gpuobsd *d, struct observed *o);
/* Launches of a process can be limited from now on: policies hear of it once more. */
void policies_process_again(struct gpuobsd *d, const struct observed *o);
void policies_process_end(struct gpuobsd *d, const struct observed *o);
/* A call of the driver that o->calls has taken in: time slices may have to be set again. */
void policies_driver_call(struct gpuobsd *d, struct observed *o, const struct driver_call_event *e);
void policies_alloc(struct gpuobsd *d, struct observed *o, uint64_t address, uint64_t bytes);
void policies_free_memory(struct gpuobsd *d, const struct observed *o, uint64_t address);

/* The driver does not return from what a policy asked for of the process. */
bool policies_are_stuck_with(const struct gpuobsd *d, const struct process_info *process);

/* A launch; told of together with others at the end of the turn. */
void policies_launch(struct gpuobsd *d, struct observed *o);

/*
 * Launches that are under way, of the process's device, with the managed memory they
 * were given: told at once. They come as policies_launch() as well, later.
 */
void policies_arguments(struct gpuobsd *d, struct observed *o, uint32_t device, uint32_t launches,
                        const struct policy_range *ranges, size_t n);
/* Whether a policy wants to know what the process's launches are given. */
bool policies_want_arguments(const struct gpuobsd *d, const struct observed *o);

/* The process uses the GPU with this number. */
void policies_process_on(struct gpuobsd *d, struct observed *o, uint32_t gpu);

/*
 * The process uses the GPU with this UUID; its number to policies (gpu_numbers.h).
 * Where it is not known, that of the first it was seen to use, or 0.
 */
uint32_t policies_process_gpu(struct gpuobsd *d, struct observed *o, const uint8_t uuid[16]);

/*
 * An event of managed memory; source and target as policies call them: a GPU's number
 * or POLICY_HOST. Told of together with others.
 */
void policies_uvm_event(struct gpuobsd *d, struct observed *o, const struct uvm_event *e,
                        uint32_t source, uint32_t target, uint64_t at_ns);

/* The process had the GPU for so long; told of with policies_shares(). */
void policies_slice(struct observed *o, uint32_t gpu, uint64_t active_ns);
/* A few times a second, after slices have been read. */
void policies_shares(struct gpuobsd *d);
/* Whether a policy listens, so that they are to be told of more often. */
bool policies_want_shares(const struct gpuobsd *d);

/* The end of a turn of the loop: what has been gathered is told. */
void policies_turn(struct gpuobsd *d);
