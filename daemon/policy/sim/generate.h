/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Traces made up by rule: the same options, the same trace, on any machine. */
#include <stdint.h>

#include "policy/sim/trace.h"

/* X(name, what it is like) */
#define GENERATE_PATTERNS(X)                                                                       \
        X(zipf, "kernels given blocks of a Zipf distribution: a hot head, a long tail")            \
        X(cyclic, "sweep after sweep over the same memory, in order")                              \
        X(streaming, "one pass over memory, each block once; kernels are given all of it")         \
        X(strided, "every 3rd block, in order, then the others; kernels are given all of it")      \
        X(random, "single pages anywhere; kernels are given all of it")                            \
        X(layers, "a model's layers, one after the other, forth and back; kernels are given them") \
        X(clusters, "regions of 64 MiB, touched all over in a random order within each")           \
        X(scans, "a hot set, and now and then a sweep over everything else")                       \
        X(shift, "a hot set that moves: what was used a hundred times is never used again")        \
        X(kv, "decoding with a key-value cache: weights, a window at its growing end, rare looks " \
              "back")                                                                              \
        X(graph, "vertices again and again, edges sparsely and hardly ever twice")                 \
        X(attention, "decoding where each step reads all of the caches")                           \
        X(comb, "sweeps over two of each three blocks, the third never")                           \
        X(runs, "four blocks in a row at places of a Zipf distribution; kernels are given all")    \
        X(squatter, "a process that used most of the GPU once, and one that works on half of it")  \
        X(tenants, "a small process that has to be quick now and then, and one that streams")      \
        X(fed, "the host writes caches in order, one after the other, that kernels then read")     \
        X(scraps, "the same, but kernels read an eighth of what the host has written")             \
        X(pipeline, "a model's layers over all GPUs, each with its own, that hand activations on")

struct generate_options {
        const char *pattern;
        /*
         * 0: one. Each has processes of its own that do what the pattern says, other numbers being
         * drawn; launches of all take turns. But for those patterns that are of all GPUs.
         */
        uint32_t gpus;
        uint64_t gpu_bytes; /* of each GPU it is meant for */
        uint32_t percent;   /* memory used, of gpu_bytes */
        uint32_t launches;  /* about so many on each */
        uint64_t seed;
};

/* 0; -ENOENT no such pattern; -EINVAL sizes that make no sense, or are too small for it; -ENOMEM.
 */
int generate(const struct generate_options *options, struct uvm_trace **ret_trace);
