/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A trace through the model of managed memory, with policies or without. */
#include <stddef.h>
#include <stdint.h>

#include "policy/engine.h"
#include "policy/sim/trace.h"
#include "policy/sim/uvm_model.h"

/* A process's own time. */
struct replay_process {
        uint64_t launches;
        uint64_t stall_ns;
        uint64_t longest_ns; /* stall of one launch */
};

struct replay_result {
        struct uvm_model_stats memory;                   /* of all GPUs together */
        struct uvm_model_stats gpus[UVM_MODEL_GPUS_MAX]; /* of each */
        uint64_t time_ns;
        uint64_t launches;
        uint64_t requested_bytes; /* moved for policies, both ways */
        struct replay_process processes[UVM_TRACE_PROCESSES];
};

struct replay_options {
        uint32_t gpus;      /* 0: one; as many as the trace has, at least */
        uint64_t gpu_bytes; /* of each */
        struct uvm_costs costs;
        uint32_t ahead; /* launches the CPU is ahead of the GPU */
        bool optimum;   /* victims as the offline optimum has them; no policies then */
        /* Called with the engine before the first record: load policies. NULL: none. */
        int (*prepare)(struct policy_engine *engine, void *data);
        /* Called after the last, to look at what they did. May be NULL. */
        void (*finish)(struct policy_engine *engine, void *data);
        void *data;
};

/* 0; -ENOMEM; -ENODEV the trace has more GPUs; what prepare() returned. */
int replay(const struct uvm_trace *trace, const struct replay_options *options,
           struct replay_result *ret_result);
