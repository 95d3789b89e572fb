/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is to be set back in other processes: when the daemon stops, when it finds what one
 * that was killed left, and, for that, by itself (gpuobsd --undo). Of one database; main thread.
 */
#include <stddef.h>

struct config;
struct driver_actuator_options;
struct undo_journal;
struct uvm_ops;

/* The journal beside the database. 0, or -errno as undo_journal_open(), with a line in the log. */
int leftovers_open_journal(const struct config *c, struct undo_journal **ret_journal);

/*
 * Take advice on managed memory back, and say so; whose: for the log. How much could not be. A
 * call of the driver that does not return is given up: see policy_worker_abandoned().
 */
size_t leftovers_take_advice_back(struct uvm_ops *ops, struct undo_journal *journal,
                                  const char *whose);
/* The same for time slices; options: journal and tsg, which are copied. */
size_t leftovers_set_slices_back(const struct driver_actuator_options *options, const char *whose);

/*
 * All of it, where no daemon runs. 0; -errno with a sentence in error[]: -EBUSY a daemon with
 * this database runs, -EAGAIN some could not be set back and are still in the journal.
 */
int leftovers_undo(const struct config *c, char *error, size_t error_size);
