/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A running process, as /proc and the files mapped into it tell: what is needed to bring
 * a library into it, and why that may not be possible. x86-64 only. Reads; changes nothing.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TARGET_REASON_BYTES 512

struct target_mapping {
        uint64_t start, end, offset;
        bool executable;
        bool unsafe; /* a thread in it may hold what loading a library needs */
        char *path;
};

struct target {
        pid_t pid;
        bool allow_seccomp; /* attach although it is under a filter */
        char comm[32];
        struct target_mapping *mappings;
        size_t mapping_count;
        uint64_t dlopen, dlsym, dlerror; /* functions of its C library */
        uint64_t syscall;                /* a system call instruction */
        uint64_t returns[16];            /* where signal handlers return to */
        size_t return_count;
        char reason[TARGET_REASON_BYTES];
};

/*
 * Look at a process; allow_seccomp: whoever asks answers for its seccomp filters. 0; -errno
 * with a sentence in t->reason: it cannot be attached to, and why. target_done() in any case.
 */
int target_open(pid_t pid, bool allow_seccomp, struct target *t);
void target_done(struct target *t);

/* Say in t->reason why something cannot be done; returns the error. */
int target_refuse(struct target *t, int error, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* Likewise that the system forbids to trace it, and by what; returns -EPERM. */
int target_refuse_tracing(struct target *t);

/*
 * May the agent make system calls on any of its threads, as far as is known? 0 or -EPERM
 * with a reason. Threads may still confine themselves afterwards, unless they are stopped.
 */
int target_check_seccomp(struct target *t);

/* Read the mappings anew. 0 or -errno with a reason. */
int target_read_mappings(struct target *t);

const struct target_mapping *target_mapping(const struct target *t, uint64_t address);

/* Address of a symbol of the first mapped file whose name begins so; 0: there is none. */
uint64_t target_symbol(const struct target *t, const char *file, const char *symbol);

/* Does this path mean the same file in there? 0; -errno with a reason. */
int target_reaches(struct target *t, const char *path, const char *what);

/* Numbers of its threads, malloc'd; how many, or -errno. */
ssize_t target_threads(const struct target *t, pid_t **ret_threads);

/* Memory of it. True: all of it. */
bool target_read(const struct target *t, uint64_t address, void *to, size_t size);
bool target_write(const struct target *t, uint64_t address, const void *from, size_t size);

/* What a thread is doing. */
struct target_call {
        bool running; /* on a CPU, or about to be */
        long number;  /* of the system call it is in; -1 none */
        uint64_t arguments[6];
};
bool target_call(const struct target *t, pid_t thread, struct target_call *ret_call);

/*
 * May a thread that is in this call be interrupted there without the program noticing,
 * and cannot the call be one that a memory allocator or the dynamic linker makes?
 */
bool target_call_is_quiet(const struct target_call *c);
/* A call that fails when it is interrupted, instead of going on. */
bool target_call_breaks(const struct target_call *c);
