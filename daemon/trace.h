/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A file of everything that goes into the correlator, in order, so that what it
 * made of it can be looked into later (setting `trace`; tests/bench/correlate_replay).
 * For bug reports: it grows by about 130 bytes a launch and holds kernel names.
 */
#include <stddef.h>
#include <stdint.h>

#include "util/clock_sample.h"

#define TRACE_MAGIC "gpuobs-trace-3\n\0"
/* Of older traces: their clock samples are in CLOCK_MONOTONIC, and there are no pairs. */
#define TRACE_MAGIC_MONOTONIC "gpuobs-trace-2\n\0"

enum trace_kind {
        TRACE_LAUNCH = 1,    /* struct cpu_launch_event */
        TRACE_OPERATION,     /* struct cpu_operation_event */
        TRACE_HANDLE,        /* struct cpu_handle_event and its name */
        TRACE_AGENT,         /* struct trace_device[]: the process has an agent from here on */
        TRACE_KERNEL,        /* struct trace_kernel and the name */
        TRACE_OWN_FUNCTION,  /* u64 */
        TRACE_DEVICE_RECORD, /* struct device_record */
        TRACE_DEVICE_GAP,    /* u64 */
        TRACE_CLOCK,         /* struct trace_clock; process_key 0: of the GPU itself */
        TRACE_PROCESS_END,   /* nothing */
        TRACE_AGENT_LEFT,    /* nothing: the process goes on without it; older traces do not say */
        TRACE_CLOCK_PAIR,    /* struct clock_pair; process_key 0 */
};

/* By the process's ordinals. */
struct trace_device {
        uint32_t gpu; /* number of the GPU */
        uint8_t has_gpu;
        uint8_t own_clock; /* read by the process, else by the daemon */
        uint8_t pad[2];
};

struct trace_clock {
        struct clock_sample sample;
        uint32_t device; /* ordinal in the process; of the GPU itself: its number */
        uint32_t pad;
};

struct trace_kernel {
        uint64_t image_handle;
        uint32_t kernel_id;
        uint8_t entry_probed;
        uint8_t exit_probed;
        uint16_t name_length;
};

/* Before each item's bytes. */
struct trace_head {
        uint32_t kind;
        uint32_t size; /* of what follows */
        uint64_t process_key;
        uint64_t at_ns; /* CLOCK_MONOTONIC when it went in */
};

struct trace;

/* Create the file (truncated). 0 or -errno. */
int trace_new(const char *path, struct trace **ret_trace);
struct trace *trace_free(struct trace *t);

/* Write one item of two parts (the second may be empty). NULL trace: nothing. */
void trace_write(struct trace *t, enum trace_kind kind, uint64_t process_key, const void *a,
                 size_t a_size, const void *b, size_t b_size);
