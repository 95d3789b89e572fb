/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reader of the table of what runs, behind the ring of a process's shared start/end map
 * (device_abi.h). Where START records come with the END record, the ring has them late and
 * in the order in which kernels end. The table has most of them when the kernel starts:
 * these are handed out from here, and their records passed over when they come.
 *
 * The process can write anything there at any time; one look takes no more than the table.
 */
#include <stdbool.h>
#include <stdint.h>

struct device_record;
struct running_table;

/*
 * words: the mapped slots of the whole map, four words each; they stay the caller's. What
 * is in the table by now is not handed out: its kernels have ended, or their starts come
 * when they end. NULL: out of memory.
 */
struct running_table *running_table_new(const uint64_t *words);
struct running_table *running_table_free(struct running_table *t);

bool running_table_is_empty(const struct running_table *t);

/*
 * Hands out START records that have not been and have not come, at most one per slot: those
 * that are due. settle: and those that were there at the last look of that kind, too.
 */
void running_table_look(struct running_table *t,
                        bool (*is_due)(void *data, const struct device_record *rec), bool settle,
                        void (*record)(void *data, const struct device_record *rec), void *data);

/*
 * A START record, or one in its place, came out of the ring. Returns whether the start was
 * handed out before.
 */
bool running_table_came(struct running_table *t, const struct device_record *rec);
