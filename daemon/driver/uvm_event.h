/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One event of managed memory, decoded from an entry of a UVM event queue.
 * Which members are set depends on the kind; what is not known is 0.
 */
#include <stdint.h>

#include "driver/uvm_abi.h"

enum uvm_access {
        UVM_ACCESS_UNKNOWN,
        UVM_ACCESS_READ,
        UVM_ACCESS_WRITE,
        UVM_ACCESS_ATOMIC,
        UVM_ACCESS_PREFETCH,
        UVM_ACCESS_COUNT
};

/* Why memory was migrated. */
enum uvm_migration_cause {
        UVM_MIGRATED_UNKNOWN,
        UVM_MIGRATED_USER,      /* asked for: prefetch, or from outside */
        UVM_MIGRATED_COHERENCE, /* an access needed it */
        UVM_MIGRATED_PREFETCH,  /* the driver guessed that an access would need it */
        UVM_MIGRATED_EVICTION,
        UVM_MIGRATED_ACCESS_COUNTERS,
        UVM_MIGRATED_COUNT
};

/* Why memory was mapped where it is not resident. */
enum uvm_map_cause {
        UVM_MAPPED_UNKNOWN,
        UVM_MAPPED_COHERENCE,
        UVM_MAPPED_THRASHING,
        UVM_MAPPED_POLICY, /* preferred location or accessed-by */
        UVM_MAPPED_OUT_OF_MEMORY,
        UVM_MAPPED_EVICTION,
        UVM_MAPPED_COUNT
};

#define UVM_CPU 0 /* index of the CPU among processors; GPUs are 1 .. UVM_PROCESSORS_MAX - 1 */

struct uvm_event {
        uint8_t kind;       /* enum uvm_kind */
        uint8_t access;     /* faults: enum uvm_access */
        uint8_t cause;      /* enum uvm_migration_cause, or uvm_map_cause, or the fatal reason */
        uint8_t fault_type; /* GPU and fatal faults: the driver's number */
        uint8_t source;     /* processor: that faulted, memory came from, was evicted from, is
                               throttled, maps */
        uint8_t target;     /* processor: memory went to, is resident at */
        uint8_t client_hub; /* GPU faults: 1 the hub (copy engines ...), 0 a graphics cluster */
        uint8_t pad;
        uint16_t client; /* GPU faults: the MMU client, numbered per architecture */
        uint16_t gpc;    /* GPU faults: cluster, or channel for the hub */
        uint32_t batch;  /* GPU faults and replays: serviced together */
        uint32_t tid;    /* CPU faults: the thread */
        uint32_t cpu;
        uint64_t address;
        uint64_t bytes;        /* migrated, evicted, thrashing, mapped ...; faults: 0 */
        uint64_t address_in;   /* evictions: the address that needed the room */
        uint64_t processors;   /* thrashing, read duplication: mask of processors */
        uint64_t pc;           /* CPU faults */
        uint64_t begin_raw_ns; /* CLOCK_MONOTONIC_RAW */
        uint64_t end_raw_ns;   /* migrations: 0 when asynchronous */
        uint64_t begin_gpu_ns; /* the GPU's clock; 0 not known */
        uint64_t end_gpu_ns;
};

/*
 * Decode one entry. 0; -EBADMSG when it cannot be an event (a kind, processor or
 * range that does not exist); *ret_event is untouched then. Causes and accesses
 * that are not known here become 0. Any thread.
 */
int uvm_event_decode(const uint8_t entry[UVM_ENTRY_BYTES], struct uvm_event *ret_event);
