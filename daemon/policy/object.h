/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A policy's eBPF object, loaded and ready to run. What it may contain is
 * limited on purpose: programs of type `syscall` could call bpf(2) itself, read
 * kernel memory or send signals; a policy may only look at what it is given,
 * keep state in plain maps and ask for actions. Clocks and random numbers are
 * refused too, so that a run can be repeated in the simulator.
 *
 * Not thread-safe: one thread runs a given object.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policies/policy_abi.h"
#include "util/macro.h"

#define POLICY_OBJECT_BYTES_MAX (768u << 10) /* of the ELF file: fits into one request */
#define POLICY_MEMORY_MAX       (128u << 20) /* of all its maps */

struct bpf_object;
struct policy_object;

/*
 * Load from the bytes of an ELF file, which are copied. 0, or -errno with a
 * sentence in error[]: -EINVAL not a policy, -EACCES refused (by the rules above
 * or the kernel's verifier), -EPERM eBPF is not permitted here.
 */
int policy_object_load(const void *bytes, size_t size, char *error, size_t error_size,
                       struct policy_object **ret_object);
struct policy_object *policy_object_free(struct policy_object *o);
DEFINE_CLEANUP(struct policy_object *, policy_object_free)

/* Whether it has a program for the event. */
bool policy_object_wants(const struct policy_object *o, enum policy_event_type type);

/* Where the items of the next run are to be put. */
struct policy_batch *policy_object_batch(const struct policy_object *o);

struct policy_run {
        int value;        /* what the program returned */
        uint32_t actions; /* how many were taken */
        uint64_t unsaid;  /* actions there was no room for, in this run */
        bool overran;     /* its loops wanted more steps than a run has */
        uint64_t run_ns;  /* time the run took, the system call included */
};

/*
 * Run the program of event->type, which must be wanted, and hand each action it
 * asked for to take(), NULL for an answer that is none. 0, or -errno when the kernel would not run
 * it.
 */
int policy_object_run(struct policy_object *o, const struct policy_event *event,
                      void (*take)(void *data, const struct policy_action *action), void *data,
                      struct policy_run *ret_run);

/* For variables (variables.h): the libbpf object, and the memory of a section, NULL if it has none.
 */
struct bpf_object *policy_object_bpf(const struct policy_object *o);
void *policy_object_section(const struct policy_object *o, const char *section);
