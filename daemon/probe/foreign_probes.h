/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Uprobes that somebody else has placed. The kernel has no list of them, so this
 * looks where they can come from: eBPF links, perf events with an eBPF program,
 * and the uprobe_events of tracefs. A uprobe of perf_event_open() without an
 * eBPF program shows nowhere; perf itself makes its own through tracefs.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FOREIGN_OWN_MAX 64

struct foreign_probes {
        uint32_t own[FOREIGN_OWN_MAX]; /* ids of programs that are our own */
        size_t own_count;
        /* Is this place of interest? path: as the kernel prints it, perhaps of another namespace.
         */
        bool (*places)(void *data, const char *path, uint64_t offset);
        void *data;
};

/*
 * 0: nobody else has a probe there. 1: somebody has, or it cannot be told;
 * *ret_what then is a constant phrase.
 */
int foreign_probes_find(const struct foreign_probes *f, const char **ret_what);

/* A line of uprobe_events: its file and offset. False for any other line. Modifies the line. */
bool foreign_probes_parse(char *line, const char **ret_path, uint64_t *ret_offset);
