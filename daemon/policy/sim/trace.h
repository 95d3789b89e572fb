/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Traces of managed memory, version 1: what the simulator replays. A file is one
 * head and then records of 32 bytes, all little-endian (docs/policies.md). The
 * order of the records is the order of things; a launch is followed by the ranges
 * it was given and by what it touches.
 *
 * A trace is foreign bytes: trace_parse() accepts only what a real process could
 * have done, so that nothing behind it has to ask again.
 */
#include <stddef.h>
#include <stdint.h>

#include "util/macro.h"

#define UVM_TRACE_MAGIC       "GPUOBSUV"
#define UVM_TRACE_VERSION     1
#define UVM_TRACE_RECORDS_MAX (64u << 20)
#define UVM_TRACE_PROCESSES   1024
#define UVM_TRACE_GPUS        16
#define UVM_TRACE_BYTES_MAX   (1ull << 42)           /* of managed memory, all processes together */
#define UVM_TRACE_RECORD_NS   (3600ull * 1000000000) /* a record's time at most */
#define UVM_TRACE_TOUCH_MAX   (1ull << 32)

enum uvm_trace_kind {
        UVM_TRACE_PROCESS = 1, /* it begins; address and bytes hold its name, 16 bytes */
        UVM_TRACE_EXIT,
        UVM_TRACE_ALLOC,
        UVM_TRACE_FREE,   /* address of an allocation */
        UVM_TRACE_LAUNCH, /* kernel: which; gpu; ns: it takes when all memory is there */
        UVM_TRACE_RANGE,  /* the launch before was given it */
        UVM_TRACE_TOUCH,  /* the launch before reads or writes it */
        UVM_TRACE_HOST,   /* the CPU touches it */
        UVM_TRACE_IDLE,   /* ns pass */
        UVM_TRACE_KINDS
};

struct uvm_trace_head {
        char magic[8];
        uint32_t version;
        uint32_t record_bytes;
        uint64_t records;
        uint64_t seed;    /* of a generated trace */
        char pattern[32]; /* NUL-terminated */
};
_Static_assert(sizeof(struct uvm_trace_head) == 64, "uvm_trace_head");

struct uvm_trace_record {
        uint8_t kind;
        union {
                uint8_t write; /* of a touch: 1 writes */
                uint8_t gpu;   /* of a launch: it and what it touches are of this GPU */
        };
        uint16_t process;
        uint32_t kernel;
        uint64_t address;
        uint64_t bytes;
        uint64_t ns;
};
_Static_assert(sizeof(struct uvm_trace_record) == 32, "uvm_trace_record");

struct uvm_trace {
        struct uvm_trace_head head;
        struct uvm_trace_record *records;
        size_t count, room;
};

/*
 * Copy and check. What follows the records that the head counts is left out: a
 * recording that was killed has some. 0, or -errno: -EBADMSG with a sentence in error[] that names
 * the record.
 */
int uvm_trace_parse(const void *bytes, size_t size, char *error, size_t error_size,
                    struct uvm_trace **ret_trace);
int uvm_trace_load(const char *path, char *error, size_t error_size, struct uvm_trace **ret_trace);
int uvm_trace_save(const struct uvm_trace *t, const char *path);

/* An empty one; NULL on no memory. */
struct uvm_trace *uvm_trace_new(const char *pattern, uint64_t seed);
struct uvm_trace *uvm_trace_free(struct uvm_trace *t);
DEFINE_CLEANUP(struct uvm_trace *, uvm_trace_free)

/* GPUs that it is about: one more than the highest number, at least 1. */
uint32_t uvm_trace_gpus(const struct uvm_trace *t);

/* Append. 0 or -ENOMEM. */
int uvm_trace_add(struct uvm_trace *t, const struct uvm_trace_record *r);
