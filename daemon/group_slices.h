/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Time slices of channel groups, asked of the driver for those who want a list of groups. The loop
 * waits for an answer, but not for one of a driver that hangs: a thread of its own asks, and while
 * it does not come back slices are not known.
 */
#include <stdbool.h>
#include <stdint.h>

struct group_slices;
struct tsg_system;
struct tsg_target;

/* NULL on no memory. */
struct group_slices *group_slices_new(const struct tsg_system *system);
/* Returns NULL. */
struct group_slices *group_slices_free(struct group_slices *g);

/* False: it is not known. */
bool group_slices_ask(struct group_slices *g, const struct tsg_target *target, uint64_t *ret_us);
