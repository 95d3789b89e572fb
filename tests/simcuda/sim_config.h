/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the simulated GPU is told by the environment. All optional.
 *
 *   GPUOBS_SIM_CLOCK_OFFSET_NS   device clock minus CLOCK_MONOTONIC_RAW at boot
 * (1700000000000000000) GPUOBS_SIM_CLOCK_DRIFT_PPM   how much faster the device clock runs (4.78)
 *   GPUOBS_SIM_CLOCK_STEP_NS     resolution of %globaltimer (32)
 *   GPUOBS_SIM_CLOCK_APART_NS    each device's clock is so far ahead of the one before (0)
 *   GPUOBS_SIM_CLOCK_JITTER_NS   each %globaltimer reading is off by up to this much (0)
 *   GPUOBS_SIM_WORKERS           kernels that can run at the same time (4)
 *   GPUOBS_SIM_SPIN_NS           how long an idle worker looks for work before it sleeps (5000)
 *   GPUOBS_SIM_QUEUE             commands a stream holds before a launch waits (512)
 *   GPUOBS_SIM_MEMORY_BYTES      device memory (8589934592)
 *   GPUOBS_SIM_DEVICES           devices (1)
 *   GPUOBS_SIM_START_DELAY_NS    a command starts at least this long after it was given (0)
 *   GPUOBS_SIM_INSTRUCTION_NS    a warp instruction takes at least this long (0): slow kernels
 *   GPUOBS_SIM_GRID_WORDS        what a grid is told of context and descriptor: "driver" as
 *                                device_abi.h has it, "none", "garbled" ("driver")
 *   GPUOBS_SIM_FAIL_LOAD         image loads that fail with INVALID_PTX
 *   GPUOBS_SIM_FAIL_LAUNCH       launches that fail with LAUNCH_OUT_OF_RESOURCES
 *   GPUOBS_SIM_FAIL_ALLOC        device allocations that fail with OUT_OF_MEMORY
 *   GPUOBS_SIM_DROP_RECORDS      records in the start/end map whose stores are lost
 *   GPUOBS_SIM_DROP_STORES       single stores to the start/end map that are lost
 *
 * The last five choose occurrences, counted from 1 in the process: "7" the
 * seventh only, "7+" the seventh and all later ones, "/7" every seventh.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sim_choice {
        uint64_t number; /* 0: never */
        enum { SIM_CHOICE_ONCE, SIM_CHOICE_FROM, SIM_CHOICE_EVERY } how;
        _Atomic uint64_t seen;
};

enum sim_grid_words {
        SIM_GRID_WORDS_DRIVER,
        SIM_GRID_WORDS_NONE,
        SIM_GRID_WORDS_GARBLED,
};

struct sim_config {
        int64_t clock_offset_ns;
        int64_t clock_apart_ns;
        double clock_drift_ppm;
        uint64_t clock_step_ns;
        uint64_t clock_jitter_ns;
        unsigned workers;
        uint64_t spin_ns;
        unsigned queue_entries;
        uint64_t memory_bytes;
        unsigned devices;
        uint64_t start_delay_ns;
        uint64_t instruction_ns;
        struct sim_choice fail_load;
        struct sim_choice fail_launch;
        struct sim_choice fail_alloc;
        struct sim_choice drop_records;
        struct sim_choice drop_stores;
        enum sim_grid_words grid_words;
};

/* Defaults, then the environment; a value that cannot be read keeps its default. */
void sim_config_load(struct sim_config *config);

/* Count an occurrence and say whether it is a chosen one. Any thread. */
bool sim_choice_hit(struct sim_choice *choice);

/* CLOCK_MONOTONIC in ns. */
uint64_t sim_monotonic_ns(void);

/* CLOCK_MONOTONIC_RAW in ns: what the device clock is made from, since NTP does not touch it. */
uint64_t sim_raw_ns(void);

/* What the device clock reads at a moment of CLOCK_MONOTONIC_RAW, without jitter. */
uint64_t sim_clock_device_ns(const struct sim_config *config, uint64_t raw_ns);
