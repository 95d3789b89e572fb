/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "ctl.h"

/* Parts of gpuobsctl uvm that have files of their own; connected. The exit code. */

/* What the managed-memory driver decides: sums (uvm_driver.c). */
int uvm_show_driver(struct ctl *ctl, const struct ctl_filter *f);

/* ... and the latest decisions, one by one; limit 0: those that are kept. */
int uvm_show_decisions(struct ctl *ctl, const struct ctl_filter *f);

/* What happened before, from the database, in steps; step_s 0: a minute (uvm_history.c). */
int uvm_show_history(struct ctl *ctl, const struct ctl_filter *f, uint32_t step_s);
