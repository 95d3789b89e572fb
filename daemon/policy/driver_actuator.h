/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Orders of policies on the stock driver: managed memory through driver/uvm_ops.h,
 * channel groups through driver/tsg.h. Both make sure that the process is who it
 * was; what has to be undone is in the journal before it is done.
 *
 * Discarding contents, and what is asked of a process's agent, is not done here:
 * -EOPNOTSUPP. A policy's mistake about what is needed no more would be the
 * application's loss of data; and nothing in the driver holds back launches.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/tsg.h"
#include "driver/undo_journal.h"
#include "driver/uvm_ops.h"
#include "policy/worker.h"

#define ACTUATOR_GROUPS_MAX 256 /* channel groups of a process that get a time slice */

/* What the daemon knows of a process. */
struct actuator_process {
        const uint8_t
                *gpu; /* UUID: groups that are known to be on others are left out; NULL: none */
        const struct uvm_allocations *allocations; /* NULL: none known */
        struct tsg_target *groups;                 /* allocated */
        size_t group_count, group_room;
        size_t groups_beyond; /* ACTUATOR_GROUPS_MAX */
};

/* Another channel group of the process, unless it is left out. 0 or -ENOMEM. */
int actuator_process_add(struct actuator_process *p, const struct tsg_target *group);

/* Of orders that wait: what is to be noted before they act. */
struct actuator_notes;

/* NULL on no memory. */
struct actuator_notes *actuator_notes_new(void);
struct actuator_notes *actuator_notes_free(struct actuator_notes *n);

struct driver_actuator_options {
        struct uvm_ops *uvm;          /* NULL: managed memory is left alone */
        struct undo_journal *journal; /* NULL: nor are time slices set */
        struct actuator_notes *notes; /* NULL: each order writes its own */
        const struct tsg_system *tsg;
        /*
         * On the loop's thread, adds to a process, zeroed but for its GPU: 0, -ESRCH or -ENOMEM.
         * The groups are the caller's to free.
         */
        int (*process)(void *data, uint32_t pid, uint64_t start_ticks,
                       struct actuator_process *process);
        /* The same: the UUID of the GPU that policies know by a number. 0 or -ENODEV. */
        int (*gpu)(void *data, uint32_t number, uint8_t ret_uuid[UVM_UUID_BYTES]);
        void *data;
};

/* data of these: struct driver_actuator_options. */
extern const struct policy_worker_ops driver_actuator_ops;

/*
 * Set back a time slice that is in the journal (managed memory: uvm_ops_undo()). 0; -ESRCH: the
 * process or the group is no more; other -errno: it stays in the journal. Any thread.
 */
int driver_actuator_undo(const struct driver_actuator_options *o, const struct undo_entry *e);

/* The process has ended or replaced its program: what its time slices were went with it. */
void driver_actuator_forget(const struct driver_actuator_options *o, pid_t pid,
                            uint64_t start_ticks);
