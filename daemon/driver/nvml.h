/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What NVIDIA's management library tells of the GPUs: load, memory, clocks, power,
 * temperature, errors. The library is opened at run time; a machine without it
 * has none of this, and nothing else is missing. Only reads.
 *
 * The library's calls may take milliseconds, its initialisation longer, and when the
 * driver hangs none returns: a thread of its own opens it and asks, another waits for
 * the GPUs' error events (Xid).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVML_LIBRARY  "libnvidia-ml.so.1"
#define NVML_GPUS_MAX 64

/* Reasons for slower clocks, nvmlClocksEventReason*. */
#define NVML_THROTTLE_IDLE          0x001
#define NVML_THROTTLE_SETTING       0x002
#define NVML_THROTTLE_POWER_CAP     0x004
#define NVML_THROTTLE_HW_SLOWDOWN   0x008
#define NVML_THROTTLE_SYNC_BOOST    0x010
#define NVML_THROTTLE_SW_THERMAL    0x020
#define NVML_THROTTLE_HW_THERMAL    0x040
#define NVML_THROTTLE_POWER_BRAKE   0x080
#define NVML_THROTTLE_DISPLAY_CLOCK 0x100

enum nvml_has {
        NVML_HAS_MINOR = 1 << 0,
        NVML_HAS_UTILIZATION = 1 << 1,
        NVML_HAS_MEMORY = 1 << 2,
        NVML_HAS_SM_CLOCK = 1 << 3,
        NVML_HAS_MEMORY_CLOCK = 1 << 4,
        NVML_HAS_POWER = 1 << 5,
        NVML_HAS_POWER_LIMIT = 1 << 6,
        NVML_HAS_TEMPERATURE = 1 << 7,
        NVML_HAS_ECC_CORRECTED = 1 << 8,
        NVML_HAS_ECC_UNCORRECTED = 1 << 9,
        NVML_HAS_THROTTLE = 1 << 10,
        NVML_HAS_XID = 1 << 11, /* there was one since the daemon started */
};

struct nvml_gpu {
        uint32_t has; /* enum nvml_has: what is not there is not known */
        uint32_t minor;
        char uuid[96]; /* "" not known */
        char name[96];
        uint32_t utilization, memory_utilization; /* percent of the last sample period */
        uint64_t memory_total, memory_used;       /* bytes */
        uint32_t sm_clock, memory_clock;          /* MHz */
        uint32_t power, power_limit;              /* mW */
        uint32_t temperature;                     /* degrees Celsius */
        uint64_t ecc_corrected, ecc_uncorrected;  /* since the driver was loaded */
        uint64_t throttle;                        /* NVML_THROTTLE_ */
        uint64_t xid_count;
        uint64_t xid_at_ns; /* CLOCK_MONOTONIC of the last */
        uint32_t xid;       /* the last */
};

struct nvml;
struct silence;

/* Start the thread. library: NVML_LIBRARY, or another path. NULL on no memory. */
struct nvml *nvml_new(const char *library);
/* Ends the threads (within a second), or leaves them to a call that does not return. */
struct nvml *nvml_free(struct nvml *n);

/*
 * Any thread but the loop's: waits for the answer, milliseconds, or until the driver has been
 * silent for SILENCE_NS. The GPUs, in the library's order: how many; -EAGAIN the library is being
 * opened; -ENOENT there is none; -EIO it does not start (no driver, or another version).
 * ret_silent_ns: for how long the driver has not answered; of GPUs only what does not change
 * is told then, and Xid. 0: it has.
 */
int nvml_read(struct nvml *n, struct nvml_gpu *ret_gpus, size_t max, uint64_t *ret_silent_ns);

/* Any thread, at once: how many GPUs it knows, or the errors above. */
int nvml_state(struct nvml *n);

/* Of the calls of the library. */
const struct silence *nvml_silence(const struct nvml *n);
