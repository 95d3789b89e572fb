/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_event.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* x86-64 and arm64 user addresses end below this, with five-level page tables too. */
#define ADDRESS_END (1ULL << 57)

/* ---- entries as they lie in the queue (the first version, which every driver has) ---- */

struct cpu_fault_entry {
        uint8_t kind, access;
        uint16_t pad;
        uint32_t cpu;
        uint64_t address, time;
        uint32_t pid, tid;
        uint64_t pc;
};

struct migration_entry {
        uint8_t kind, cause, source, target;
        uint32_t pad;
        uint64_t address, bytes, begin, end, range_group, begin_gpu, end_gpu;
};
_Static_assert(sizeof(struct migration_entry) == UVM_ENTRY_BYTES, "the longest entry");

struct gpu_fault_entry {
        uint8_t kind, type, access, gpu;
        uint16_t gpc, client;
        uint64_t address, time, time_gpu;
        uint32_t batch;
        uint8_t client_type; /* 1 graphics cluster, 2 hub */
};

struct replay_entry {
        uint8_t kind, gpu, client_type, pad;
        uint32_t batch;
        uint64_t time, time_gpu;
};

struct fatal_entry {
        uint8_t kind, type, access, processor, reason, pad[3];
        uint64_t address, time;
};

struct processors_entry { /* read duplicate, thrashing */
        uint8_t kind, pad[7];
        uint64_t processors, address, bytes, time;
};

struct duplicate_end_entry {
        uint8_t kind, resident, pad[6];
        uint64_t address, bytes, time;
};

struct page_size_entry {
        uint8_t kind, processor;
        uint16_t pad;
        uint32_t bytes;
        uint64_t address, time;
};

struct throttle_entry {
        uint8_t kind, processor, pad[6];
        uint64_t address, time;
};

struct map_remote_entry {
        uint8_t kind, source, target, cause, pad[4];
        uint64_t address, bytes, time, time_gpu;
};

struct eviction_entry {
        uint8_t kind, source, target, pad[5];
        uint64_t address_out, address_in, bytes, time;
};

union entry {
        uint8_t bytes[UVM_ENTRY_BYTES];
        struct cpu_fault_entry cpu_fault;
        struct migration_entry migration;
        struct gpu_fault_entry gpu_fault;
        struct replay_entry replay;
        struct fatal_entry fatal;
        struct processors_entry processors;
        struct duplicate_end_entry duplicate_end;
        struct page_size_entry page_size;
        struct throttle_entry throttle;
        struct map_remote_entry map_remote;
        struct eviction_entry eviction;
};
_Static_assert(sizeof(union entry) == UVM_ENTRY_BYTES, "an entry");

static uint8_t known(uint8_t value, uint8_t count)
{
        return value < count ? value : 0;
}

/* ---- by kind ---- */

static void decode_cpu_fault(const union entry *e, struct uvm_event *v)
{
        v->access = known(e->cpu_fault.access, UVM_ACCESS_COUNT);
        v->address = e->cpu_fault.address;
        v->begin_raw_ns = e->cpu_fault.time;
        v->tid = e->cpu_fault.tid;
        v->cpu = e->cpu_fault.cpu;
        v->pc = e->cpu_fault.pc;
}

static void decode_migration(const union entry *e, struct uvm_event *v)
{
        v->cause = known(e->migration.cause, UVM_MIGRATED_COUNT);
        v->source = e->migration.source;
        v->target = e->migration.target;
        v->address = e->migration.address;
        v->bytes = e->migration.bytes;
        v->begin_raw_ns = e->migration.begin;
        v->end_raw_ns = e->migration.end;
        v->begin_gpu_ns = e->migration.begin_gpu;
        v->end_gpu_ns = e->migration.end_gpu;
}

static void decode_gpu_fault(const union entry *e, struct uvm_event *v)
{
        v->access = known(e->gpu_fault.access, UVM_ACCESS_COUNT);
        v->fault_type = e->gpu_fault.type;
        v->source = e->gpu_fault.gpu;
        v->client_hub = e->gpu_fault.client_type == 2;
        v->client = e->gpu_fault.client;
        v->gpc = e->gpu_fault.gpc;
        v->batch = e->gpu_fault.batch;
        v->address = e->gpu_fault.address;
        v->begin_raw_ns = e->gpu_fault.time;
        v->begin_gpu_ns = e->gpu_fault.time_gpu;
}

static void decode_replay(const union entry *e, struct uvm_event *v)
{
        v->source = e->replay.gpu;
        v->client_hub = e->replay.client_type == 2;
        v->batch = e->replay.batch;
        v->begin_raw_ns = e->replay.time;
        v->begin_gpu_ns = e->replay.time_gpu;
}

static void decode_fatal(const union entry *e, struct uvm_event *v)
{
        v->fault_type = e->fatal.type;
        v->access = known(e->fatal.access, UVM_ACCESS_COUNT);
        v->source = e->fatal.processor;
        v->cause = e->fatal.reason;
        v->address = e->fatal.address;
        v->begin_raw_ns = e->fatal.time;
}

static void decode_processors(const union entry *e, struct uvm_event *v)
{
        v->processors = e->processors.processors;
        v->address = e->processors.address;
        v->bytes = e->processors.bytes;
        v->begin_raw_ns = e->processors.time;
}

static void decode_duplicate_end(const union entry *e, struct uvm_event *v)
{
        v->target = e->duplicate_end.resident;
        v->address = e->duplicate_end.address;
        v->bytes = e->duplicate_end.bytes;
        v->begin_raw_ns = e->duplicate_end.time;
}

static void decode_page_size(const union entry *e, struct uvm_event *v)
{
        v->source = e->page_size.processor;
        v->address = e->page_size.address;
        v->bytes = e->page_size.bytes;
        v->begin_raw_ns = e->page_size.time;
}

static void decode_throttle(const union entry *e, struct uvm_event *v)
{
        v->source = e->throttle.processor;
        v->address = e->throttle.address;
        v->begin_raw_ns = e->throttle.time;
}

static void decode_map_remote(const union entry *e, struct uvm_event *v)
{
        v->cause = known(e->map_remote.cause, UVM_MAPPED_COUNT);
        v->source = e->map_remote.source;
        v->target = e->map_remote.target;
        v->address = e->map_remote.address;
        v->bytes = e->map_remote.bytes;
        v->begin_raw_ns = e->map_remote.time;
        v->begin_gpu_ns = e->map_remote.time_gpu;
}

static void decode_eviction(const union entry *e, struct uvm_event *v)
{
        v->source = e->eviction.source;
        v->target = e->eviction.target;
        v->address = e->eviction.address_out;
        v->address_in = e->eviction.address_in;
        v->bytes = e->eviction.bytes;
        v->begin_raw_ns = e->eviction.time;
}

static void decode_nothing(const union entry *e, struct uvm_event *v)
{
        (void)e;
        (void)v;
}

static bool is_possible(const struct uvm_event *v)
{
        return v->source < UVM_PROCESSORS_MAX && v->target < UVM_PROCESSORS_MAX &&
               v->address < ADDRESS_END && v->bytes <= ADDRESS_END - v->address &&
               v->address_in < ADDRESS_END;
}

int uvm_event_decode(const uint8_t entry[UVM_ENTRY_BYTES], struct uvm_event *ret_event)
{
        static void (*const decoders[UVM_KIND_COUNT])(const union entry *, struct uvm_event *) = {
                [UVM_KIND_CPU_FAULT] = decode_cpu_fault,
                [UVM_KIND_MIGRATION] = decode_migration,
                [UVM_KIND_GPU_FAULT] = decode_gpu_fault,
                [UVM_KIND_REPLAY] = decode_replay,
                [UVM_KIND_FAULT_BUFFER_OVERFLOW] = decode_nothing,
                [UVM_KIND_FATAL_FAULT] = decode_fatal,
                [UVM_KIND_READ_DUPLICATE] = decode_processors,
                [UVM_KIND_READ_DUPLICATE_END] = decode_duplicate_end,
                [UVM_KIND_PAGE_SIZE] = decode_page_size,
                [UVM_KIND_THRASHING] = decode_processors,
                [UVM_KIND_THROTTLE_BEGIN] = decode_throttle,
                [UVM_KIND_THROTTLE_END] = decode_throttle,
                [UVM_KIND_MAP_REMOTE] = decode_map_remote,
                [UVM_KIND_EVICTION] = decode_eviction,
        };
        struct uvm_event v = {.kind = entry[0]};
        union entry e;

        if (v.kind == 0 || v.kind >= UVM_KIND_COUNT)
                return -EBADMSG;
        memcpy(&e, entry, sizeof(e));
        decoders[v.kind](&e, &v);
        if (!is_possible(&v))
                return -EBADMSG;
        *ret_event = v;
        return 0;
}
