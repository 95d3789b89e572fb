/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* CLOCK_MONOTONIC: the clock of every time the agent tells or waits by, but one. */
#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CLOCK_MONOTONIC_RAW, which NTP does not touch: what the GPU's clock is held against. */
static inline uint64_t raw_now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC_RAW, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The time in so many milliseconds, for calls that wait until then. */
static inline struct timespec monotonic_in_ms(unsigned ms)
{
        uint64_t at = now_ns() + ms * 1000000ull;

        return (struct timespec){.tv_sec = (time_t)(at / 1000000000u),
                                 .tv_nsec = (long)(at % 1000000000u)};
}
