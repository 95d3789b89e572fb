/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* One reading of a GPU clock: it said gpu_ns at some moment in [cpu_before_ns, cpu_after_ns]. */
struct clock_sample {
        uint64_t cpu_before_ns; /* CLOCK_MONOTONIC */
        uint64_t gpu_ns;
        uint64_t cpu_after_ns;
};
