/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A clock of the test's own, in the place of the C library's for all that is linked into the
 * program: times can be exact, whatever else the machine does. It goes on by so much each
 * time that somebody reads it, and as the test moves it.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t test_time_ns = 1000000000000;
static _Atomic uint64_t test_step_ns = 1; /* a reading */
static _Atomic uint64_t test_readings;

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
        uint64_t ns = atomic_fetch_add(&test_time_ns, test_step_ns);

        (void)clock;
        test_readings++;
        *ret_time = (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                                      .tv_nsec = (long)(ns % 1000000000)};
        return 0;
}
