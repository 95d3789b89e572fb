/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which files processes have mapped. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_mapping {
        uint64_t start, end;
        uint64_t inode;
        const char *path; /* as the process sees it, without " (deleted)" */
};

/*
 * A line of /proc/PID/maps that maps a file whose last path component begins
 * with prefix: 1 and *ret_mapping (path lies in line, which is modified); 0 for
 * any other line.
 */
int proc_maps_parse_line(char *line, const char *prefix, struct proc_mapping *ret_mapping);

/*
 * Call found() for the files with that prefix that the process has mapped, once
 * for each run of neighbouring mappings of one file. 0 or -errno: -ETIMEDOUT, -EBUSY the process
 * hangs with its mappings locked (util/slurp.h).
 */
int proc_maps_search(pid_t pid, const char *prefix,
                     void (*found)(void *data, pid_t pid, const struct proc_mapping *mapping),
                     void *data);

/* The same with all mappings: memory of a device is in as many as there are pieces. */
int proc_maps_each(pid_t pid, const char *prefix,
                   void (*found)(void *data, pid_t pid, const struct proc_mapping *mapping),
                   void *data);

/*
 * Open the very file of a mapping, deleted or in another mount namespace as it may be. -errno as
 * above: newer kernels tell of mappings without their lock, but do not open files so.
 */
int proc_mapping_open(pid_t pid, const struct proc_mapping *mapping);

/* Whether the process hangs with its mappings locked, so that who would lock them waits. */
bool proc_mappings_locked(pid_t pid);

/* Whether an error of these says that the process hangs with its mappings locked. */
bool proc_mappings_hang(int error);

/* Call each() with every process. 0 or -errno. */
int proc_for_each(void (*each)(void *data, pid_t pid), void *data);
