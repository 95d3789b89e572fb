/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The buffer in which the driver leaves records of the GPU's context switches:
 * NV_EVENT_BUFFER_HEADER (class/cl90cd.h) and records of 32 bytes with a
 * NV_EVENT_BUFFER_FECS_RECORD_V2 (class/cl90cdfecs.h) in each. Written by the
 * kernel, but nothing in it is believed without a look.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CTXSW_HEADER_BYTES 32
#define CTXSW_RECORD_BYTES 32

/* What the driver puts where it has no process or no MIG instance to name. */
#define CTXSW_PID_HIDDEN 0u
#define CTXSW_PID_KERNEL UINT32_MAX
#define CTXSW_NO_MIG     0xffu

enum ctxsw_kind {
        CTXSW_START, /* a context is on the engine and runs */
        CTXSW_END,   /* it has been saved and is off */
        CTXSW_RESET, /* the engine was reset: whatever was on it is off */
};

struct ctxsw_event {
        uint64_t gpu_ns; /* PTIMER */
        uint32_t pid;    /* in the initial pid namespace */
        uint32_t context_id;
        enum ctxsw_kind kind;
        uint8_t mig_gpu, mig_compute; /* instances, CTXSW_NO_MIG without MIG */
};

struct ctxsw_ops {
        void (*event)(void *data, const struct ctxsw_event *e);
        /* Records before the next event that are missing. */
        void (*gap)(void *data, uint64_t lost);
        /* NULL: none. A record as it is, before it is looked at: for recording. */
        void (*raw)(void *data, const uint8_t bytes[CTXSW_RECORD_BYTES]);
};

struct ctxsw_ring {
        const volatile uint8_t *header;
        const volatile uint8_t *records;
        uint32_t entries;
        uint32_t get; /* next one to read */
        bool begun;
        uint16_t sequence; /* of the last one */
        uint64_t garbage;  /* records that make no sense */
};

/* One record's bytes. False: it is none that we know. */
bool ctxsw_decode(const uint8_t bytes[CTXSW_RECORD_BYTES], struct ctxsw_event *ret_event,
                  uint16_t *ret_sequence);

/* entries: records in the buffer, above 1. */
void ctxsw_ring_init(struct ctxsw_ring *r, const volatile void *header,
                     const volatile void *records, uint32_t entries);

/*
 * Hand out what is there, each once, at most a buffer full; the caller then tells
 * the driver r->get. Returns how many records were read, or -EIO when the header
 * makes no sense.
 */
int ctxsw_ring_read(struct ctxsw_ring *r, const struct ctxsw_ops *ops, void *data);
