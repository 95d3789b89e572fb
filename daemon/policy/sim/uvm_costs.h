/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What things cost in the model of managed memory. Measured on an H200 (2026-11-30,
 * driver 580.159.04): 1 GiB of managed memory reaches the GPU in 22 ms when migrated
 * by request, and goes back in 71 ms; of 2 MiB the request takes 0.20 ms, 0.16 ms
 * more than the copy. A kernel faults the 1 GiB in in 105 to 131 ms (about twice that
 * while its events are read). tests/gpu/uvm_model_check.c measures all that is not marked
 * as assumed. docs/policies.md has the table.
 */
#include <stdint.h>

struct uvm_costs {
        uint64_t batch_ns;     /* a fault batch: interrupt to replay */
        uint64_t visit_ns;     /* each 2 MiB block with faults in a batch */
        uint64_t page_ns;      /* each 64 KiB taken from the host by a fault */
        uint64_t evict_ns;     /* each block evicted while a fault waits; assumed */
        uint64_t call_ns;      /* each migration by request, one at a time; from the 0.20 ms */
        uint64_t policy_ns;    /* from an event to the action it leads to; assumed */
        uint64_t to_gpu_mbps;  /* 10^6 bytes a second; from the 22 ms */
        uint64_t to_host_mbps; /* from the 71 ms; of evictions assumed the same */
        uint64_t remote_mbps;  /* the GPU reading host memory in place */
        /*
         * From GPU to GPU. Not measured: the data sheet's 450 GB/s each way of NVLink 4, which
         * the driver's copies may not reach. 0: there is no such link, and it goes by the host,
         * which takes both ways' time.
         */
        uint64_t peer_mbps;
        uint32_t batch_faults; /* faults in a batch: the driver's default */
        uint32_t density;      /* percent of a subtree that brings in the rest: the driver's */
};

static const struct uvm_costs uvm_costs_h200 = {
        .batch_ns = 15400,
        .visit_ns = 7500,
        .page_ns = 6200,
        .evict_ns = 20000,
        .call_ns = 161000,
        .policy_ns = 200000,
        .to_gpu_mbps = 49900,
        .to_host_mbps = 15200,
        .remote_mbps = 42000,
        .peer_mbps = 450000,
        .batch_faults = 256,
        .density = 51,
};
