/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For tests that make a process by hand, event after event: of process and thread 1, context 1. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "correlate/clock_model.h"
#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "unit/test.h"

#define HAND_NAME_BYTES 64

/* Of a launch event: whose it is but for the thread, and a shape. */
#define HAND_LAUNCH                                                                                \
        .context = 1, .tgid = 1, .grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = 32,             \
        .block_y = 1, .block_z = 1

/* name: at most HAND_NAME_BYTES with its end; NULL: the event has none. cut: it goes on. */
static inline void hand_handle(struct correlator *c, struct correlated_process *p, uint64_t now_ns,
                               enum cpu_handle_kind kind, uint64_t value, uint64_t parent,
                               const char *name, bool cut)
{
        union {
                struct cpu_handle_event ev;
                char bytes[sizeof(struct cpu_handle_event) + HAND_NAME_BYTES];
        } u = {.ev = {.ts_ns = now_ns,
                      .handle = value,
                      .parent = parent,
                      .context = 1,
                      .tgid = 1,
                      .tid = 1,
                      .kind = (uint8_t)kind,
                      .name_truncated = cut,
                      .type = CPU_EVENT_HANDLE}};

        if (name) {
                u.ev.name_length = (uint16_t)strlen(name);
                snprintf(u.ev.name, HAND_NAME_BYTES, "%s", name);
        }
        correlator_handle(c, p, &u.ev);
}

/* A GPU clock that is the CPU's, read for 10 ms from a time on. */
static inline struct clock_model *hand_clock(uint64_t from_ns)
{
        struct clock_model *clock = clock_model_new(1, NULL);

        CHECK(clock);
        for (uint64_t at = from_ns; at < from_ns + 10000000; at += 1000000) {
                const struct clock_sample s = {at, at + 50, at + 100};

                CHECK_EQ(clock_model_add(clock, &s), 0);
        }
        return clock;
}
