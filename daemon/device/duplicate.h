/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The CPU's side of a map that is there twice (GPUOBS_PLACE_DUPLICATE): the master, a
 * kernel eBPF array or hash that eBPF programs on the CPU and the daemon see, and how
 * replicas, one in each process, are brought up to date with it. The replicas' bytes come
 * from processes and may be anything. One thread.
 *
 * To an element of an array is added atomically. One of a hash is read, changed and
 * written: what a program on the CPU writes to it at that moment is lost.
 */
#include <stddef.h>
#include <stdint.h>

#include "device/program.h"

struct duplicate;

/* What was already taken from one replica: so many bytes, zeros at first. */
size_t duplicate_seen_bytes(const struct device_map_info *map);

/* Create the kernel map, under the map's name. map stays the caller's and must live as long. 0 or
 * -errno. */
int duplicate_new(const struct device_map_info *map, struct duplicate **ret_duplicate);
struct duplicate *duplicate_free(struct duplicate *d);

/* Of an array: how large the master is: all elements, each device_map_stride() bytes. */
size_t duplicate_bytes(const struct duplicate *d);

/* Of an array: one element of the master; valid until duplicate_free(), shared with the kernel. */
void *duplicate_element(struct duplicate *d, uint32_t key);

/*
 * Of a hash: the master's elements as map_view.h reads them, device_map_bytes() of it,
 * malloc'd; `lost` in its head counts what found no room in a replica, or here. 0 or -errno.
 */
int duplicate_read_hash(const struct duplicate *d, uint8_t **ret_bytes);

/*
 * Of a hash: overwrite the value of a key; take the key out. 0; -ENOENT it is not in the
 * master; other -errno.
 */
int duplicate_update_hash(struct duplicate *d, const void *key, const void *value);
int duplicate_delete_hash(struct duplicate *d, const void *key);

/*
 * Counters: add what a replica (device_map_bytes() of it) has that `seen` does not have
 * yet to the master, by the map's rule; of a hash by key. Copies for multiprocessors and so
 * on count together. A sum that became smaller began anew: all of it is new.
 */
void duplicate_merge(struct duplicate *d, const void *replica, void *seen);

/* Something to write into a replica. */
struct duplicate_write {
        uint64_t offset;
        size_t bytes;
};

/*
 * Settings: the master as it is now, as the replica's epoch `epoch`: image (as large as the
 * replica) is filled in at two places, to be written in this order: the elements, then
 * the epoch.
 */
void duplicate_settings(const struct duplicate *d, uint64_t epoch, void *image,
                        struct duplicate_write ret_writes[2]);
