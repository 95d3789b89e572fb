/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside the actuator: notes of orders that wait, which the first of them that is carried out
 * writes to the journal for all; and which orders are about processes that have ended since, so
 * that what the worker's thread notes meanwhile does not stay. All functions: any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver/undo_journal.h"

struct actuator_notes; /* policy/driver_actuator.h */
struct watched_process;

/* Without memory, or with too many, it is missed: its order writes it. */
void group_notes_add(struct actuator_notes *n, const struct undo_entry *e);

/* All there are, to be freed; none are left. */
struct undo_entry *group_notes_take(struct actuator_notes *n, size_t *ret_count);

/* Some that were taken could not be written: their orders write them. */
void group_notes_miss(struct actuator_notes *n);

/* How often that was so: as long as it stays the same, what was added since is written. */
uint64_t group_notes_missed(struct actuator_notes *n);

/* An order about a process has been taken. NULL on no memory. */
struct watched_process *group_notes_watch(struct actuator_notes *n, pid_t pid,
                                          uint64_t start_ticks);

/* It is over. Whether the process has ended, or replaced its program, since it was taken. */
bool group_notes_unwatch(struct actuator_notes *n, struct watched_process *p);

/* The process has ended, or replaced its program: nothing is to be noted of it. */
void group_notes_ended(struct actuator_notes *n, pid_t pid, uint64_t start_ticks);
