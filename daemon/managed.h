/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Managed memory of the observed processes: who allocates it is watched (see the
 * setting managed_memory), its events are read, counted and given to subscribers.
 * Also what policies act with: driver/uvm_ops.h and its journal.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_operation_event;
struct gpuobsd;
struct launch_record;
struct observed;
struct undo_journal;
struct uvm_ops;

/*
 * Open the journal and take back what a daemon left that was killed. A journal
 * that cannot be had is told and lived with: nothing is advised on then. 0 or
 * -ENOMEM.
 */
int managed_open(struct gpuobsd *d);

/* Stop watching and take back all advice; what is still open is closed by the loop. */
void managed_close(struct gpuobsd *d);
/* After the loop has ended. */
void managed_free(struct gpuobsd *d);

/* For policies; NULL when there is no journal. */
struct uvm_ops *managed_ops(const struct gpuobsd *d);
struct undo_journal *managed_journal(const struct gpuobsd *d);

/* The process called the driver API: allocations, frees and advice are of interest. */
void managed_operation(struct gpuobsd *d, struct observed *o, const struct cpu_operation_event *e);

/*
 * The process ran before the daemon, or has the UVM driver's device open: managed memory that it
 * has already is listed, and watched as the setting says. One that is known to have some is left
 * as it is.
 */
void managed_found(struct gpuobsd *d, struct observed *o);

/* A finished launch of the process. */
void managed_launch(struct observed *o, const struct launch_record *r);

/* Read a bounded part of every queue. Returns the number of events; *more: a queue was not emptied.
 */
size_t managed_turn(struct gpuobsd *d, bool *more);

/* What has happened to the process's memory by now: policies hear of it next. */
void managed_catch_up(struct observed *o);

/* Once a second. */
void managed_second(struct gpuobsd *d);

/* The process has ended, and its last launches were told: its last events. */
void managed_process_ended(struct gpuobsd *d, struct observed *o);

/*
 * Watch a process, whatever the setting, or stop. 0; -ESRCH, -ENODEV ... as
 * uvm_tracker_new(), the reason being in o->managed.
 */
int managed_watch(struct gpuobsd *d, struct observed *o, bool on);
