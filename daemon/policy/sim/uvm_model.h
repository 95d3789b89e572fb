/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A model of managed memory on GPUs: blocks of 2 MiB in pages of 64 KiB, fault
 * batches, the driver's prefetching within a block, eviction when memory is full,
 * a link to the host with a bandwidth each way, and migrations by request beside
 * the kernel that runs. It keeps a clock of its own.
 *
 * Each GPU has memory and a link to the host of its own, and one to all other GPUs, unless
 * it has none. A block is on one GPU: when another faults on it, or is to get it, all of it
 * goes there. Kernels run one after the other, whatever their GPU.
 *
 * What it leaves out: time the GPU saves by running other warps while some wait,
 * contention in the host's memory, page tables, thrashing mitigation, kernels of
 * several GPUs at a time, a GPU's access to another's memory in place. A preferred
 * location on a GPU does not protect from eviction, as with the driver.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policies/policy_abi.h"
#include "policy/sim/trace.h"
#include "policy/sim/uvm_costs.h"

struct uvm_model;

struct uvm_model_ops {
        /* What happened; the model is not to be called from here. */
        void (*faults)(void *data, uint64_t process, const struct policy_fault *faults, size_t n);
        void (*moved)(void *data, uint64_t process, const struct policy_moved *moved, size_t n);
        /* A fault batch was dealt with and told of: requests may be made from here. */
        void (*settle)(void *data);
};

/*
 * faults: pages that were not there; fetches: blocks of which nothing was there and something came;
 * evictions: by the driver, blocks; remote_bytes: read in place; peer_bytes: of those to the GPU,
 * from another; stall_ns: kernels waited.
 */
#define UVM_MODEL_STATS(X)                                                                         \
        X(faults)                                                                                  \
        X(batches)                                                                                 \
        X(fetches)                                                                                 \
        X(to_gpu_bytes)                                                                            \
        X(to_host_bytes)                                                                           \
        X(evictions)                                                                               \
        X(remote_bytes)                                                                            \
        X(peer_bytes)                                                                              \
        X(stall_ns)

struct uvm_model_stats {
#define X(name) uint64_t name;
        UVM_MODEL_STATS(X)
#undef X
};

#define UVM_MODEL_GPUS_MAX UVM_TRACE_GPUS

struct uvm_model_options {
        uint32_t gpus;      /* 0: one */
        uint64_t gpu_bytes; /* of each */
        struct uvm_costs costs;
        const struct uvm_model_ops *ops; /* NULL: nobody listens */
        void *data;
        /*
         * The offline optimum: for each touch of a block in the order they come, the
         * number of the next touch of it. NULL: the driver's order of eviction.
         */
        const uint64_t *next_use;
};

/* NULL on no memory. */
struct uvm_model *uvm_model_new(const struct uvm_model_options *options);
struct uvm_model *uvm_model_free(struct uvm_model *m);

uint64_t uvm_model_now(const struct uvm_model *m);
/* Time passes, without waiting for anything. */
void uvm_model_pass(struct uvm_model *m, uint64_t ns);

/* The next kernel runs on this GPU; the one before has ended. */
void uvm_model_kernel_begin(struct uvm_model *m, uint32_t gpu);
/* A kernel touches memory; what is not there is brought when enough faults have come together. */
void uvm_model_touch(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes,
                     bool write);
/* The kernel ends: the last faults, and what is still on its way. Its stall, ns. */
uint64_t uvm_model_kernel_end(struct uvm_model *m);
/* The CPU writes memory: it comes back to the host. */
void uvm_model_host_touch(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes);
/* Memory is freed. */
void uvm_model_forget(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes);

/*
 * By request, when those before are done. to: a GPU or POLICY_HOST. Return bytes moved in
 * *ret_bytes. 0; -ENOSPC nothing of it fits; a part that fits is moved.
 */
int uvm_model_migrate(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes,
                      uint32_t to, uint64_t *ret_bytes);
/* to: a GPU, POLICY_HOST, POLICY_NOWHERE. */
void uvm_model_prefer(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes,
                      uint32_t to);
void uvm_model_read_duplicate(struct uvm_model *m, uint64_t process, uint64_t address,
                              uint64_t bytes, bool on);
void uvm_model_discard(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes);

/* Of a GPU's memory, with what is on its way out: a request waits for that. */
uint64_t uvm_model_free_bytes(const struct uvm_model *m, uint32_t gpu);
/* What became of a GPU's kernels and memory. */
const struct uvm_model_stats *uvm_model_get_stats(const struct uvm_model *m, uint32_t gpu);
