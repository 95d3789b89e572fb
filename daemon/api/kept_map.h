/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Readings of maps that are kept while a client turns their pages, so that all pages are
 * of the same one. A connection has at most two, the server eight and 1 GiB, as much as
 * one map can have; the one used longest ago makes room. One that is not used for
 * snapshot_timeout_ms goes, too. On the loop's thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "api/backend.h"
#include "device/program.h"

#define KEPT_MAPS_MAX            8
#define KEPT_MAPS_PER_CONNECTION 2
#define KEPT_MAPS_BYTES          (UINT64_C(1) << 30)

struct api_server;
struct connection;

struct kept_map {
        struct kept_map *prev, *next; /* of the server; the one used last is the last */
        struct connection *owner;
        uint64_t number; /* from 1 */
        char *probe, *name;
        uint32_t pid;
        struct device_map_info map;
        struct api_map_reading reading;
        uint64_t used_ns;
};

/* What to keep; texts are copied. */
struct kept_map_options {
        const char *probe, *name;
        uint32_t pid;
        const struct device_map_info *map;
};

/*
 * Keep a reading; its bytes are taken where they can be, else copied. NULL: there is no
 * memory, or it is larger than all that may be kept; the reading stays as it was.
 */
const struct kept_map *kept_map_new(struct connection *owner, const struct kept_map_options *what,
                                    struct api_map_reading *reading);
void kept_map_free(struct api_server *s, struct kept_map *k);

/* One of the connection's; it counts as used now. NULL: it is gone. */
struct kept_map *kept_map_find(struct connection *owner, uint64_t number);

/* The connection is closing. */
void kept_maps_abandon(struct connection *owner);

/* Free those that nobody uses. Whether any are left. */
bool kept_maps_tick(struct api_server *s, uint64_t now_ns);
