/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which kernel ran when memory faulted or was moved for it. Events and launches
 * of a process reach the daemon in any order, so both wait here: events, gathered
 * to marks of a few microseconds, for a second; of the launches the latest
 * UVM_JOIN_SPANS that have a start and an end. A mark at which exactly one kernel
 * ran is that kernel's; with several different ones it is `shared`, with none
 * `idle`: work outside kernels, or kernels whose times are not known.
 */
#include <stddef.h>
#include <stdint.h>

#include "driver/uvm_event.h"

#define UVM_JOIN_SPANS   1024
#define UVM_JOIN_MARKS   4096
#define UVM_JOIN_KERNELS 256 /* further kernels count as `shared` */

struct uvm_kernel_counts {
        uint64_t kernel; /* the launch record's name id, 0 when it has none */
        uint64_t gpu_faults;
        uint64_t bytes_to_gpu;
        uint64_t bytes_evicted; /* to make room for what it touched */
};

struct uvm_join;

struct uvm_join *uvm_join_new(void);
struct uvm_join *uvm_join_free(struct uvm_join *j);

/* An event that a running kernel may have caused, at CLOCK_MONOTONIC; others are passed over. */
void uvm_join_event(struct uvm_join *j, const struct uvm_event *e, uint64_t at_ns);

/* A kernel that ran from start to end, CLOCK_MONOTONIC. */
void uvm_join_launch(struct uvm_join *j, uint64_t kernel, uint64_t start_ns, uint64_t end_ns);

/* Decide about events older than a second; UINT64_MAX: about all. */
void uvm_join_settle(struct uvm_join *j, uint64_t now_ns);

/* Kernels by descending faults into ret[max]; the number. What belongs to none: shared, idle. */
size_t uvm_join_top(const struct uvm_join *j, struct uvm_kernel_counts *ret_kernels, size_t max);
struct uvm_kernel_counts uvm_join_shared(const struct uvm_join *j);
struct uvm_kernel_counts uvm_join_idle(const struct uvm_join *j);
