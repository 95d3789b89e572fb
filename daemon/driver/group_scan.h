/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Channel groups that a process made before anybody looked. RM lists nothing, but
 * answers whether a handle is an object of a client, of which class and under
 * which parent (NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO), and which device a client has
 * (..._GET_CHILD_HANDLE). Handles of clients are counted up by RM, from 0xc1d00000 on; those of
 * objects are the process's choice, and CUDA counts them up as well. So all are asked that
 * can be: through duplicates of the process's own files, in which only its own clients are valid.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver/tsg.h"

#define GROUP_SCAN_CLIENTS_MAX 65536 /* the newest in the system that are asked for */
#define GROUP_SCAN_HANDLES     65536 /* of a client: those like its first device's, but for 16 bits */
#define GROUP_SCAN_OBJECTS_MAX 1024       /* of a process */
#define GROUP_SCAN_FILES_MAX   1024       /* of a process */
#define GROUP_SCAN_ASKED_MAX   (4u << 20) /* questions about a process: some 15 s */

struct group_scan_object {
        int32_t fd; /* nvidiactl in the process */
        uint32_t client, object, parent;
        uint32_t class;
};

/* What was found: channel groups that kernels run in, and their channels, groups first. */
struct group_scan {
        struct group_scan_object objects[GROUP_SCAN_OBJECTS_MAX];
        size_t count;
        size_t asked;          /* questions to the driver */
        size_t files;          /* searched to the end; the same file under another number once */
        size_t files_beyond;   /* not searched, or not to the end: there were too many questions */
        size_t objects_beyond; /* found and not kept */
};

/*
 * Look for them; takes some tenths of a second for each file, most of it asleep. 0, also when
 * something is beyond; -ESRCH the process has ended; -ENOMEM; else as tsg_open() and rm_control():
 * the driver does not tell. Any thread.
 */
int group_scan(const struct tsg_system *system, pid_t pid, uint64_t start_ticks,
               struct group_scan *ret_scan);
