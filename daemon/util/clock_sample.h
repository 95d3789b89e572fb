/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* One reading of a GPU clock: it said gpu_ns at some moment in [raw_before_ns, raw_after_ns]. */
struct clock_sample {
        uint64_t raw_before_ns; /* CLOCK_MONOTONIC_RAW */
        uint64_t gpu_ns;
        uint64_t raw_after_ns;
};

/* Both clocks of the CPU: at raw_ns the other said monotonic_ns, give or take error_ns. */
struct clock_pair {
        uint64_t raw_ns;       /* CLOCK_MONOTONIC_RAW */
        uint64_t monotonic_ns; /* CLOCK_MONOTONIC */
        uint32_t error_ns;
        uint32_t pad;
};
