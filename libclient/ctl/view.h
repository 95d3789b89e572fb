/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the programs in probes/device left in their maps, for people and as JSON. The
 * maps are as they were copied from a process: all copies of spread elements one after
 * the other, and anything may be in them. One thread, output on stdout.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/block_time_abi.h"
#include "device/mem_bytes_abi.h"
#include "device/mem_heat_abi.h"
#include "device/sm_balance_abi.h"
#include "device/warp_lanes_abi.h"

struct view_options {
        bool json;
        size_t limit; /* rows, or kernels */
        /* The name of a kernel, NULL when it is not known. */
        const char *(*kernel_name)(void *data, uint32_t kernel_id);
        void *data;
};

/* Multiprocessors: a grid of how busy each was, and the imbalance. */
void view_sm(const struct view_options *o, const struct sm_balance *sms, size_t count);

/* For each kernel a histogram of the times of its blocks; the longest sums first. */
void view_blocks(const struct view_options *o, const struct block_time *kernels, size_t count,
                 uint64_t without_place);

/* With how many lanes warps begin and leave. */
void view_lanes(const struct view_options *o, const struct warp_lanes *lanes, size_t count);

/* For each kernel the bytes it accessed; the most first. */
void view_bytes(const struct view_options *o, const struct mem_bytes *kernels, size_t count,
                uint64_t without_place);

/* Memory of the process. */
struct view_allocation {
        uint64_t address, bytes;
        const char *kind;
};

/* Ascending, not overlapping. */
struct view_allocations {
        struct view_allocation *at;
        size_t count;
};

/*
 * For each allocation whose pages were accessed, how much; the hottest first. Pages that
 * several allocations share have a row of their own, and so have pages of none.
 */
void view_heat(const struct view_options *o, const struct mem_heat *pages, size_t count,
               const struct view_allocations *allocations, uint64_t without_place);

/* How a kernel is called in a view. */
const char *view_kernel(const struct view_options *o, uint32_t kernel_id);

/* Say that something found no place in a table, if it is so. */
void view_lost(const struct view_options *o, const char *what, uint64_t count);
