/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kept_map.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "api/internal.h"
#include "util/time.h"

static void *discard(struct kept_map *k)
{
        free(k->probe);
        free(k->name);
        free(k->reading.heap);
        free(k);
        return NULL;
}

void kept_map_free(struct api_server *s, struct kept_map *k)
{
        DL_DELETE(s->kept, k);
        discard(k);
}

/* With the owner's own first: a client that asks for much makes room itself. */
static void make_room(struct connection *owner, uint64_t bytes)
{
        struct api_server *s = owner->server;
        struct kept_map *k, *next;
        uint32_t own = 0, all = 0;

        DL_FOREACH(s->kept, k)
        {
                own += k->owner == owner;
                all++;
                bytes += k->reading.size;
        }
        DL_FOREACH_SAFE(s->kept, k, next)
        {
                bool too_many = k->owner == owner && own >= KEPT_MAPS_PER_CONNECTION;

                if (!too_many && all < KEPT_MAPS_MAX && bytes <= KEPT_MAPS_BYTES)
                        continue;
                own -= k->owner == owner;
                all--;
                bytes -= k->reading.size;
                kept_map_free(s, k);
        }
}

static struct kept_map *describe(const struct kept_map_options *what)
{
        struct kept_map *k = calloc(1, sizeof(*k));

        if (!k)
                return NULL;
        k->probe = strdup(what->probe);
        k->name = strdup(what->name);
        k->pid = what->pid;
        k->map = *what->map;
        k->map.initial = NULL; /* the object's, which may go */
        k->map.constant = NULL;
        return k->probe && k->name ? k : discard(k);
}

/* The backend's own memory is not ours to keep. */
static uint8_t *take_bytes(struct api_map_reading *reading)
{
        uint8_t *bytes = reading->heap;

        reading->heap = NULL;
        if (bytes)
                return bytes;
        bytes = malloc(reading->size ?: 1);
        if (bytes)
                memcpy(bytes, reading->bytes, reading->size);
        return bytes;
}

const struct kept_map *kept_map_new(struct connection *owner, const struct kept_map_options *what,
                                    struct api_map_reading *reading)
{
        struct api_server *s = owner->server;
        struct kept_map *k;
        uint8_t *bytes;

        if (reading->size > KEPT_MAPS_BYTES)
                return NULL;
        k = describe(what);
        if (!k)
                return NULL;
        bytes = take_bytes(reading);
        if (!bytes)
                return discard(k);
        make_room(owner, reading->size);
        k->owner = owner;
        k->number = ++s->last_kept;
        k->reading = *reading;
        k->reading.bytes = k->reading.heap = bytes;
        k->used_ns = now_ns();
        DL_APPEND(s->kept, k);
        return k;
}

struct kept_map *kept_map_find(struct connection *owner, uint64_t number)
{
        struct api_server *s = owner->server;
        struct kept_map *k;

        DL_FOREACH(s->kept, k)
        if (k->owner == owner && k->number == number)
                break;
        if (!k)
                return NULL;
        k->used_ns = now_ns();
        DL_DELETE(s->kept, k);
        DL_APPEND(s->kept, k);
        return k;
}

void kept_maps_abandon(struct connection *owner)
{
        struct kept_map *k, *next;

        DL_FOREACH_SAFE(owner->server->kept, k, next)
        if (k->owner == owner)
                kept_map_free(owner->server, k);
}

bool kept_maps_tick(struct api_server *s, uint64_t now)
{
        struct kept_map *k, *next;

        DL_FOREACH_SAFE(s->kept, k, next)
        if (now - k->used_ns > s->limits.snapshot_timeout_ms * NSEC_PER_MSEC)
                kept_map_free(s, k);
        return s->kept != NULL;
}
