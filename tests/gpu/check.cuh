// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the CUDA programs here share.
#include <cstdio>
#include <cstdlib>

// End the program with a sentence when a call of the runtime fails.
#define CHECK(call)                                                                                \
        do {                                                                                       \
                cudaError_t e_ = (call);                                                           \
                if (e_ != cudaSuccess) {                                                           \
                        fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,              \
                                cudaGetErrorString(e_));                                           \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)
