/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The device programs there are in this process. An object is what one blob of the
 * daemon holds: programs, and the maps they share. Adding one places its maps and
 * builds each program once for the process: a bound fragment for PTX, and machine
 * code. The list of all programs is what images are rewritten with.
 *
 * Called with the agent's lock, the device's primary context current.
 */
#include <stdbool.h>
#include <stdint.h>

#include "fragment.h"
#include "gpu_maps.h"
#include "grid_layout.h"
#include "probe_list.h"

#define PROBE_SET_REASON_BYTES 240
#define PROBE_SET_GLOB_BYTES   256

struct probe_set;

struct probe_set_options {
        struct gpu_place place;
        uint32_t sm;
        const struct grid_layout *layout; /* NULL: not to be relied on */
        uint64_t map_bytes;               /* of GPU memory, all objects together, at most */
};

/* NULL: out of memory. */
struct probe_set *probe_set_new(const struct probe_set_options *options);

/* With all maps: no code that may run names them any more. NULL is fine; returns NULL. */
struct probe_set *probe_set_free(struct probe_set *set);

struct probe_object {
        uint64_t id;      /* the daemon's; 0 its own start/end programs */
        const void *blob; /* agent_abi.h */
        size_t blob_bytes;
        const char *kernels;          /* glob of kernel names; NULL or "": all */
        uint64_t host[AGENT_MAP_MAX]; /* addresses of the maps in host memory */
};

/*
 * Place and build. 0; -EINVAL a broken blob; -EEXIST the id is taken; -ENOBUFS too many
 * programs; -ENOTSUP the maps cannot be placed; -ENOMEM. reason holds a sentence on every
 * failure, and nothing is left.
 */
int probe_set_add(struct probe_set *set, const struct probe_object *object,
                  char reason[PROBE_SET_REASON_BYTES]);

/*
 * Take an object out of the list. Its memory stays, and counts, until probe_set_sweep().
 * 0 with the GPU memory that it has; -ENOENT.
 */
int probe_set_remove(struct probe_set *set, uint64_t id, uint64_t *ret_kept_bytes);

/*
 * A number for what is in the list now, from 1: the same objects in the same order have
 * the same number again.
 */
uint32_t probe_set_generation(const struct probe_set *set);

/*
 * Free the memory of one object that was removed and was in no list that lives().
 * False: there is none.
 */
bool probe_set_sweep(struct probe_set *set, bool (*lives)(uint32_t generation), uint64_t *ret_id);

/* Whether memory of objects that were removed is still there. */
bool probe_set_has_gone(const struct probe_set *set);

/* All but the daemon's own programs. Whether there were any. */
bool probe_set_remove_all(struct probe_set *set);

/* The device's primary context is another one: register the host maps in it. NULL or why not. */
const char *probe_set_revive(struct probe_set *set);

/* Programs of the list, in order of their objects. Changes with add and remove. */
const struct probe_list *probe_set_list(const struct probe_set *set);

/* Why the object's programs are not for machine code, or NULL: they all are. */
const char *probe_set_code_refusal(const struct probe_set *set, uint64_t id);

/* The maps of an object; NULL: there is no such object. */
const struct gpu_maps *probe_set_maps(const struct probe_set *set, uint64_t id);

struct map_reading {
        bool settled;                 /* two readings in a row were the same */
        uint64_t before_ns, after_ns; /* CLOCK_MONOTONIC, around the last one */
};

/*
 * Read a whole map into a file of its size while kernels may be writing to it: again and
 * again until two readings in a row are the same, or some more have been tried. Takes no
 * more memory for large maps than for small ones. 0; -ENOENT no such map; -ENOMEM; -EIO
 * the driver does not copy; the -errno of the file.
 */
int probe_set_read(const struct probe_set *set, uint64_t id, uint32_t map, int fd,
                   struct map_reading *ret_reading);

/* Overwrite bytes of a map. 0; -ENOENT; -ERANGE outside of it; -EIO. */
int probe_set_write(const struct probe_set *set, uint64_t id, uint32_t map, uint64_t offset,
                    const void *bytes, size_t size);
