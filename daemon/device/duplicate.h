/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The CPU's side of a map that is there twice (GPUOBS_PLACE_DUPLICATE): the master, a
 * kernel eBPF array that eBPF programs on the CPU and the daemon see, and how replicas,
 * one in each process, are brought up to date with it. The replicas' bytes come from
 * processes and may be anything. One thread.
 */
#include <stddef.h>
#include <stdint.h>

#include "device/program.h"

struct duplicate;

/* What was already taken from one replica: value_size * max_entries bytes, zeros at first. */
size_t duplicate_seen_bytes(const struct device_map_info *map);

/* Create the kernel map, under the map's name. map stays the caller's and must live as long. 0 or
 * -errno. */
int duplicate_new(const struct device_map_info *map, struct duplicate **ret_duplicate);
struct duplicate *duplicate_free(struct duplicate *d);

/* How large the master is: all elements, each device_map_stride() bytes. */
size_t duplicate_bytes(const struct duplicate *d);

/* One element of the master; valid until duplicate_free(), shared with the kernel. */
void *duplicate_element(struct duplicate *d, uint32_t key);

/*
 * Counters: add what a replica (device_map_bytes() of it) has that `seen` does not have
 * yet to the master, by the map's rule. Copies for multiprocessors and so on count
 * together. A sum that became smaller began anew: all of it is new.
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
