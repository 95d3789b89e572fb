/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The copies of the CUDA driver library: finding them, putting the probes on
 * them, taking the probes off. Part of cpu_probes.
 *
 * A copy is known by its device and inode: many names, mount namespaces and
 * processes lead to one file, and a uprobe is on the file. Two overlay mounts of
 * one layer show the same file under two devices and are attached to twice; the
 * eBPF programs then count a call once (state.bpf.h).
 *
 * Being attached pins the file and the mount it was found through, so probes
 * come off a copy that no process has mapped any more and that cannot be reached
 * from here: a container's or a deleted one.
 */
#include <stdbool.h>
#include <sys/types.h>

#include "probe/cpu_probes.h"
#include "probe/cuda_functions.h"

#define LIBRARY_PREFIX "libcuda.so"

struct bpf_program;
struct libraries;

struct libraries_config {
        /* by enum cuda_program: at the entry and at the return */
        const struct bpf_program *entry[CUDA_PROGRAM_COUNT];
        const struct bpf_program *at_return[CUDA_PROGRAM_COUNT];
        bool multi;      /* programs were prepared for uprobe_multi */
        bool operations; /* attach to functions that are operations only */
        const struct cpu_probes_ops *ops;
        void *data;
};

/* NULL on no memory. */
struct libraries *libraries_new(const struct libraries_config *config);
struct libraries *libraries_free(struct libraries *l);

/* Attach to a file by name; already attached is success. 0 or -errno. */
int libraries_attach_path(struct libraries *l, const char *path);

/* Attach to what the dynamic linker would load, by its cache and the usual places. */
void libraries_attach_known(struct libraries *l);

/*
 * Attach to what the process has mapped; since_ns: mapped at that time, for
 * whether it counts as an attach gap (0: always, UINT64_MAX: never). Returns how
 * many copies it has mapped, or -errno.
 */
int libraries_attach_process(struct libraries *l, pid_t pid, uint64_t since_ns);

/* Probes of a library were put off as a process hung, and none does any more: a scan is due. */
bool libraries_can_go_on(const struct libraries *l);

/*
 * All processes; then takes probes off the copies that are gone. since_ns as
 * above. 0 or -errno.
 */
int libraries_scan(struct libraries *l, uint64_t since_ns);

/*
 * A file that a process maps, by the kernel's own device number. Returns whether
 * nothing remains to be done: probes are on it, and were before since_ns.
 */
bool libraries_know(struct libraries *l, uint64_t kernel_device, uint64_t inode, uint64_t since_ns);
/* What the event named is the one copy that this process has mapped: know it by that next time. */
void libraries_learn(struct libraries *l, pid_t pid, uint64_t kernel_device, uint64_t inode);

/* The process is no more. */
void libraries_process_gone(struct libraries *l, pid_t pid);

/*
 * Whether a launch function of one of the libraries begins at that offset of that
 * file; if in doubt, because the path may be of another mount namespace, yes.
 */
bool libraries_launch_places(void *libraries, const char *path, uint64_t offset);

size_t libraries_count(const struct libraries *l);
const struct cpu_probes_library *libraries_get(const struct libraries *l, size_t i);
