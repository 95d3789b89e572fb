/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * For tests of the CPU probes: the fake library in a directory of its own, a
 * child process that calls it, and a recorder of the events it causes.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "cpu/cpu_abi.h"
#include "fake_cuda.h"
#include "probe/cpu_probes.h"
#include "unit/test.h"

#define EVENTS_MAX 65536

/* The functions of the library as a program that has loaded it calls them. */
struct fake {
#define FAKE_POINTER(name, parameters, effect) CUresult(*name) parameters;
        FAKE_FUNCTIONS(FAKE_POINTER)
#undef FAKE_POINTER
        CUresult (*jump_to_launch)(FAKE_LAUNCH_ARGS, void **extra);
        CUresult *result;
        handle_t *handle;
        void (**work)(void);
};

/* Load the library in this process. Ends the process when that fails. */
void fake_load(const char *path, struct fake *ret_fake);

struct named_handle {
        struct cpu_handle_event e;
        char name[CPU_NAME_MAX];
};

/* What was seen of one process. */
struct recorder {
        uint32_t tgid;
        struct cpu_launch_event *launches;
        size_t launch_count;
        struct cpu_operation_event *operations;
        size_t operation_count;
        struct named_handle *handles;
        size_t handle_count;
        struct cpu_process_event processes[64];
        size_t process_count;
        uint32_t gaps;
        const char *library; /* of whose attaching is told */
        uint32_t attached;
        uint32_t refused;
        int library_error;
        struct cpu_probes *puts_back; /* not NULL: each launch is put back once */
        uint64_t put_back_ns;         /* entry of the last that was */
};

extern const struct cpu_probes_ops recorder_ops; /* data: struct recorder */

void recorder_init(struct recorder *r);
void recorder_done(struct recorder *r);
/* Forget what was seen, and record another process. */
void recorder_reset(struct recorder *r, uint32_t tgid);

/* Number of process events of that kind, and the first of them (there must be one). */
size_t recorder_processes(const struct recorder *r, enum cpu_process_what what);
const struct cpu_process_event *recorder_process(const struct recorder *r,
                                                 enum cpu_process_what what);
/* The i-th handle event of that kind, or NULL. */
const struct named_handle *recorder_handle(const struct recorder *r, enum cpu_handle_kind kind,
                                           size_t i);

/* A child process in which run() is called once go() has been. */
struct child {
        pid_t pid;
        int go;
};

struct child child_start(void (*run)(void *data), void *data);
void child_go(struct child *c);
/* Waits for its end, polling; then drains the ring. The child must have exited with 0. */
void child_finish(struct child *c, struct cpu_probes *p);
/* Both, recording the child in r. */
void child_run(struct cpu_probes *p, struct recorder *r, void (*run)(void *data), void *data);

/* A new directory with a copy of the library named libcuda.so.1; its path, to be freed. */
char *library_copy(const char *original);
void library_remove(char *path);

/* Probes on this library alone; skips the test where they cannot be. */
struct cpu_probes *probes_on(const char *library, enum cpu_probes_how how, size_t ring_bytes,
                             struct recorder *r);
void skip_without_bpf(void);
