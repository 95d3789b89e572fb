/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A made-up UVM driver with one process behind struct uvm_system: its ioctls with
 * offsets spelled out (not taken from the code under test), an event queue that
 * drops when it is full, and for each page of one region what was said of it.
 *
 * The state lies in shared memory, so that it survives a child that is killed in
 * the middle of a call.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/undo_journal.h"
#include "driver/uvm_system.h"

#define FAKE_PID   4711
#define FAKE_TICKS 1234567

#define FAKE_PAGE  4096ULL
#define FAKE_BASE  0x700000000000ULL
#define FAKE_PAGES 4096ULL /* 16 MiB */
#define FAKE_BYTES (FAKE_PAGES * FAKE_PAGE)

#define FAKE_GPU  1 /* index; the CPU is 0, 255 is none */
#define FAKE_NONE 255

struct fake_page {
        uint8_t managed; /* 0: no memory of the process */
        uint8_t resident, preferred, duplicated;
        uint8_t accessed_by; /* a bit per processor */
        uint8_t discarded;
};

struct uvm_fake {
        bool alive;
        uint64_t ticks;
        int open_files;
        int calls, fail_at; /* the fail_at-th system call fails; 0: none */
        int deaths_left;    /* SIGKILL before the n-th step that leaves a trace; 0: never */
        unsigned syncs;     /* of the journal */
        bool no_discard;
        uint32_t next_status; /* of the next advice or migration; 0: its own */
        unsigned ioctls[128];
        struct fake_page pages[FAKE_PAGES];
        /* the queue, addresses of the process that made it */
        uint8_t *queue;
        uint32_t entries;
        uint8_t *control;
        uint64_t enabled;
        uint32_t threshold;
        uint64_t monotonic_ns, raw_ns;
};

extern struct uvm_fake *fake;
extern const struct uvm_system fake_system;
extern const struct undo_io fake_io; /* the real one, but it may die: see deaths_left */
extern const uint8_t fake_cpu_uuid[16], fake_gpu_uuid[16];

/* A process with all of the region managed, at the CPU, and two UVM files among others. */
void uvm_fake_reset(void);

/* The driver puts an event out; time and all else is in the entry. */
void uvm_fake_put(const uint8_t entry[64]);

/* Entries by their offsets. */
void uvm_fake_gpu_fault(uint8_t entry[64], uint64_t address, uint64_t raw_ns);
void uvm_fake_cpu_fault(uint8_t entry[64], uint64_t address, uint64_t raw_ns);
void uvm_fake_migration(uint8_t entry[64], uint8_t cause, uint8_t from, uint8_t to,
                        uint64_t address, uint64_t bytes, uint64_t raw_ns);

/* A step that leaves a trace is about to be taken: the moment to die, if it has come. */
void uvm_fake_step(void);

/* Pages whose advice is not what the application left: none, by default. */
size_t uvm_fake_advised_pages(void);
