/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A model of processes that share one GPU in time. Each channel group has a queue
 * of kernels, first in first out; groups that have work take turns, each for its
 * time slice, and a switch costs 88 us (measured on an H200 between two spinning
 * processes). A slice ends when it is over, in the middle of a kernel: kernels that
 * waited for 2,000,000 cycles of the clock, which runs on while another group has the
 * GPU, were done 656 times a second by each of two groups with slices of 2,048 us, and
 * 968 and 114 times with 8,000 and 200 us; that is one at each turn of the short
 * slices, and no room for turns as long as such a kernel.
 *
 * Clients that share a group (as under MPS, or streams of one process) share its
 * queue, and each has one stream there, whose priority decides who is next when a kernel
 * ends. What is left out: kernels side by side, memory.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/engine.h"

#define SHARE_CLIENTS_MAX 16
#define SHARE_QUEUE_MAX   4096
#define SHARE_PRIORITY    6 /* of streams nobody asked a priority for: CUDA has 6, 1 the greatest */

struct share_client {
        const char *name;     /* comm and cgroup */
        uint32_t group;       /* below SHARE_CLIENTS_MAX */
        uint64_t kernel_ns;   /* each of its kernels */
        uint64_t period_ns;   /* a burst each; 0: as many kernels in the queue as `burst`, always */
        uint32_t burst;       /* kernels */
        uint64_t deadline_ns; /* for a burst to be done; 0 none */
};

struct share_result {
        uint64_t active_ns;
        uint64_t kernels;
        uint64_t bursts;     /* done */
        uint64_t latency_ns; /* of bursts, sum */
        uint64_t longest_ns;
        uint64_t missed; /* bursts later than their deadline */
};

struct share_options {
        uint64_t time_ns;   /* to be simulated */
        uint64_t period_ns; /* share events */
        uint64_t switch_ns;
        uint64_t slice_us; /* at the start: what CUDA sets, 2048 */
        int (*prepare)(struct policy_engine *engine, void *data); /* NULL: no policies */
        void (*finish)(struct policy_engine *engine, void *data); /* may be NULL */
        void *data;
};

/* One result per client. 0; -EINVAL clients that make no sense; -ENOMEM; what prepare() returned.
 */
int share_run(const struct share_options *options, const struct share_client *clients, size_t n,
              struct share_result *ret_results);
