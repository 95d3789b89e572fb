/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The masters of an object's maps that are there twice (device/duplicate.h), and the
 * replicas in the processes that the object is attached to. Settings go to a replica
 * when they have changed, elements first and the epoch when the agent has written them;
 * counters are read once a second. What a process counts after the last reading before it
 * ends, or is detached, does not reach the master. Event loop's thread.
 */
#include <stddef.h>
#include <stdint.h>

struct device_object;
struct duplicate;
struct gpuobsd;
struct masters;
struct observed;

/* The largest map of settings, in bytes: as much as an agent can be sent at a time. */
#define MASTERS_SETTINGS_MAX 32768

/*
 * Masters for an object, which must live as long; id names its attachments. 0; -E2BIG
 * settings are too large; other -errno.
 */
int masters_new(const struct device_object *object, uint64_t id, struct masters **ret_masters);
struct masters *masters_free(struct masters *m);

/* The master of map `number`; NULL: it is not there twice. */
struct duplicate *masters_map(struct masters *m, size_t number);

/* The master of map `number` was changed by hand. */
void masters_changed(struct masters *m, size_t number);

/* Bring master and replica of a process up to date; or forget the replica when it is gone. */
void masters_sync(struct gpuobsd *d, struct masters *m, struct observed *o, uint64_t now_ns);
void masters_forget(struct masters *m, const struct observed *o);
