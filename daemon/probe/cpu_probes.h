/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The CPU layer: owns the eBPF programs of probes/cpu, attaches them to every
 * copy of the CUDA driver library that is found, and hands out their events.
 *
 * Single-threaded. The callbacks run inside cpu_probes_poll() and
 * cpu_probes_scan(); they may call anything here but those two and
 * cpu_probes_free(). attach_gap() and library() run inside cpu_probes_new() as
 * well, before the caller has the object.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_handle_event;
struct cpu_launch_event;
struct cpu_operation_event;
struct cpu_process_event;
struct cpu_probes;

#define CPU_PROBES_RING_BYTES_DEFAULT (8u << 20)
#define CPU_PROBES_LIBRARIES_MAX      256

/* How probes are attached. */
enum cpu_probes_how {
        CPU_PROBES_AUTO = 0,    /* the best that the kernel has */
        CPU_PROBES_MULTI,       /* uprobe_multi links, Linux 6.6 */
        CPU_PROBES_PERF_EVENTS, /* one perf event for each probe */
};

/* Whether this kernel has uprobe_multi links. */
bool cpu_probes_have_multi(void);

struct cpu_probes_options {
        size_t ring_bytes; /* power of two, whole pages; 0: the default */
        const char *const
                *libraries;      /* more libraries to attach to, NULL-terminated; may be NULL */
        bool only_listed;        /* look for no other libraries */
        bool no_operations;      /* launches, handles and contexts only */
        enum cpu_probes_how how; /* tests */
};

/* A copy of the library that probes are on. */
struct cpu_probes_library {
        const char *path; /* as found; for a container's copy, as its process sees it */
        uint64_t device;  /* st_dev */
        uint64_t inode;
        uint32_t functions; /* probed */
        enum cpu_probes_how how;
        uint64_t attached_ns; /* CLOCK_MONOTONIC, when the last probe was on */
};

/* Events are valid during the call only. Members may be NULL. */
struct cpu_probes_ops {
        void (*launch)(void *data, const struct cpu_launch_event *e);
        void (*operation)(void *data, const struct cpu_operation_event *e);
        void (*handle)(void *data, const struct cpu_handle_event *e); /* the name lies behind it */
        void (*process)(void *data, const struct cpu_process_event *e);

        /* The process had the library mapped before the probes were on it. */
        void (*attach_gap)(void *data, uint32_t tgid, const char *path);

        /*
         * Probes are on a library now, or could not be put there (error: -errno, lib: NULL).
         * -EDEADLK: a process hangs with its mappings locked; tried again when it goes on.
         */
        void (*library)(void *data, const char *path, int error,
                        const struct cpu_probes_library *lib);
};

/*
 * Load the programs, attach to the libraries that options name, that the
 * dynamic linker knows and that running processes have mapped. That no library
 * is there is no failure. Needs root. 0; -EPERM; -ENOTSUP when the kernel lacks
 * what is needed; other -errno.
 */
int cpu_probes_new(const struct cpu_probes_options *options, const struct cpu_probes_ops *ops,
                   void *data, struct cpu_probes **ret_probes);
struct cpu_probes *cpu_probes_free(struct cpu_probes *p);

/*
 * Readable when a new copy of the library has been mapped or much waits; launches
 * alone do not make it readable, so poll on a timer too (every 10 ms, say).
 */
int cpu_probes_fd(const struct cpu_probes *p);

/* Hand out at most max events. Returns their number (max: call again soon) or -errno. */
int cpu_probes_poll(struct cpu_probes *p, size_t max);

/* From a callback: this event shall be the last that cpu_probes_poll() hands out. */
void cpu_probes_stop_poll(struct cpu_probes *p);

/* From a callback: there is no time for this event. It is the next poll's first, this one ends. */
void cpu_probes_put_back(struct cpu_probes *p);

/*
 * Look again at all processes and libraries: finds what went unnoticed, reports
 * the exits whose events were lost, takes probes off files that are gone. Reads
 * all of /proc: once a minute is plenty. 0 or -errno.
 */
int cpu_probes_scan(struct cpu_probes *p);

/*
 * The process has ended, or has become another program (CPU_PROCESS_EXIT and
 * _EXEC): forget its contexts, counters and ring. To be called once its last
 * event has been dealt with.
 */
void cpu_probes_process_gone(struct cpu_probes *p, uint32_t tgid);

/* Launch events of the process not written because the ring was full. -ENOENT: not known. */
int cpu_probes_process_lost(const struct cpu_probes *p, uint32_t tgid, uint64_t *ret_launches);

/* The context with an index that events carry. handle 0: made before the probes. -ENOENT. */
int cpu_probes_context(const struct cpu_probes *p, uint32_t index, uint64_t *ret_handle,
                       uint32_t *ret_tgid);

/*
 * The start/end map (record_ring_fd()) of a process with an agent, so that
 * kernel eBPF can read it. The descriptor is not kept. 0 or -errno.
 */
int cpu_probes_set_agent_ring(struct cpu_probes *p, uint32_t tgid, int map_fd);
void cpu_probes_remove_agent_ring(struct cpu_probes *p, uint32_t tgid);

/*
 * The launch map (launch_ring_fd()) of a process that is to record its launches
 * by itself: from now on the kernel's programs count its launches there, too.
 * Taken out again by cpu_probes_remove_agent_ring(). 0 or -errno.
 */
int cpu_probes_set_launch_ring(struct cpu_probes *p, uint32_t tgid, int map_fd);

/*
 * A live context by its handle, as far as the events handed out tell: its index
 * in events, and how many launches were entered before the process had a launch
 * map. -ENOENT.
 */
int cpu_probes_find_context(struct cpu_probes *p, uint32_t tgid, uint64_t handle,
                            uint32_t *ret_index, uint32_t *ret_before);

/*
 * Whether somebody else has probes on a launch function of one of the libraries
 * (they would not be hit in a process that takes breakpoints out). 0 nobody has;
 * 1 somebody has, or that cannot be told, then *ret_what says so, a constant phrase.
 */
int cpu_probes_shared(const struct cpu_probes *p, const char **ret_what);

/* Computed in the kernel, from the launch probes and the shared map. Counts wrap at 2^32. */
struct cpu_probes_depth {
        uint32_t contexts; /* live contexts of the process */
        uint32_t launched; /* kernel launches entered */
        uint32_t started;  /* of these, known to have started */
        uint32_t depth;    /* launched - started */
        uint64_t records;  /* start records that the kernel program has read, ever */
        uint64_t lost;     /* device records it passed unread, ever */
        uint64_t position; /* in the shared map, that it has read up to */
        uint32_t shared;   /* of launched: counted in the launch map */
};
/* -ENOENT: no such process, or it has no ring. */
int cpu_probes_depth(const struct cpu_probes *p, uint32_t tgid, struct cpu_probes_depth *ret_depth);

/* What the kernel side could not write, summed over CPUs; enum cpu_loss, CPU_LOSS_COUNT. */
int cpu_probes_losses(const struct cpu_probes *p, uint64_t ret_losses[]);

size_t cpu_probes_library_count(const struct cpu_probes *p);
/* Valid until the next poll or scan. NULL beyond the last. */
const struct cpu_probes_library *cpu_probes_library(const struct cpu_probes *p, size_t i);

/* Whether new libraries are noticed as they are mapped (else only by cpu_probes_scan()). */
bool cpu_probes_sees_mappings(const struct cpu_probes *p);

/* Descriptor of one of the maps (state.bpf.h), for other eBPF programs; -ENOENT. Not to be closed.
 */
int cpu_probes_map_fd(const struct cpu_probes *p, const char *name);
