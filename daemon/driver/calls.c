/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/calls.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "driver/group_scan.h"
#include "util/macro.h"

#define ENGINE_GRAPHICS 1 /* NV2080_ENGINE_TYPE_GRAPHICS: kernels run there, too */

/* Parents of an object that are looked at; RM's own trees are less deep. */
#define DEPTH_MAX 8

struct stat_key {
        uint32_t request, what, device;
};

struct kept_stat {
        UT_hash_handle hh;
        struct stat_key key;
        size_t index;
};

struct object_key {
        uint32_t client, object;
};

enum object_kind {
        OBJECT_CLIENT,
        OBJECT_DEVICE,
        OBJECT_GROUP,
        OBJECT_CHANNEL,
};

struct object {
        UT_hash_handle hh;
        struct object_key key;
        enum object_kind kind;
        uint32_t parent;
        int32_t fd; /* of a client */
        bool has_detail, has_context_id;
        uint32_t detail, context_id;
        uint32_t slice_us; /* of a group */
        uint32_t channels; /* in a group */
        bool is_counted;   /* a channel, in its group */
        uint64_t created_ns;
};

struct calls {
        struct call_stat stats[CALLS_STATS_MAX];
        size_t stat_count;
        struct kept_stat *by_key;
        struct object *objects;
        size_t group_count;
};

/* ---- statistics ---- */

static bool has_failed(const struct driver_call_event *e)
{
        return e->result < 0 || (e->has & DRIVER_HAS_STATUS && e->status);
}

static struct stat_key key_of(const struct driver_call_event *e)
{
        struct stat_key key = {.request = e->request, .what = e->what, .device = e->device};

        if (e->device == DRIVER_DEVICE_RM && (e->request >> 8 & 0xff) == DRIVER_RM_TYPE)
                key.request &= 0xff;
        return key;
}

/* The last entry is for all that find no other. */
static struct call_stat *stat_of(struct calls *c, const struct driver_call_event *e)
{
        struct stat_key key = key_of(e);
        struct kept_stat *k;

        HASH_FIND(hh, c->by_key, &key, sizeof(key), k);
        if (k)
                return &c->stats[k->index];
        if (c->stat_count >= CALLS_STATS_MAX - 1 || !(k = calloc(1, sizeof(*k)))) {
                c->stat_count = CALLS_STATS_MAX;
                return &c->stats[CALLS_STATS_MAX - 1];
        }
        k->key = key;
        k->index = c->stat_count++;
        HASH_ADD(hh, c->by_key, key, sizeof(key), k);
        c->stats[k->index] = (struct call_stat){
                .request = key.request, .what = key.what, .device = (uint8_t)key.device};
        return &c->stats[k->index];
}

static void count(struct calls *c, const struct driver_call_event *e)
{
        struct call_stat *s = stat_of(c, e);

        s->count++;
        s->total_ns += e->duration_ns;
        if (e->duration_ns > s->max_ns)
                s->max_ns = e->duration_ns;
        if (!has_failed(e))
                return;
        s->errors++;
        s->last_errno = e->result < 0 ? -e->result : 0;
        s->last_status = e->result < 0 ? 0 : e->status;
}

/* ---- objects ---- */

static struct object *find(const struct calls *c, uint32_t client, uint32_t object)
{
        struct object_key key = {client, object};
        struct object *o;

        HASH_FIND(hh, c->objects, &key, sizeof(key), o);
        return o;
}

/* The group that a channel is in; NULL: none that is known, or no channel. */
static struct object *group_of(const struct calls *c, const struct object *o)
{
        struct object *group = o->kind == OBJECT_CHANNEL ? find(c, o->key.client, o->parent) : NULL;

        return group && group->kind == OBJECT_GROUP ? group : NULL;
}

static void forget(struct calls *c, struct object *o)
{
        struct object *group = o->is_counted ? group_of(c, o) : NULL;

        if (group)
                group->channels--;
        if (o->kind == OBJECT_GROUP)
                c->group_count--;
        HASH_DEL(c->objects, o);
        free(o);
}

/* Whether an object is the other one or lies under it. */
static bool is_under(const struct calls *c, const struct object *o, uint32_t client,
                     uint32_t object)
{
        if (o->key.client != client)
                return false;
        if (object == client)
                return true;
        for (int depth = 0; o && depth < DEPTH_MAX; depth++) {
                if (o->key.object == object)
                        return true;
                o = find(c, client, o->parent);
        }
        return false;
}

/* RM frees what is under an object with it. */
static void free_tree(struct calls *c, uint32_t client, uint32_t object)
{
        struct object *o, *next;
        size_t i = 0, n = 0;
        struct object **doomed;

        if (!find(c, client, object))
                return;
        doomed = calloc(HASH_COUNT(c->objects), sizeof(struct object *));
        if (!doomed)
                return; /* they stay until the client or the process ends */
        HASH_ITER (hh, c->objects, o, next)
                if (is_under(c, o, client, object))
                        doomed[n++] = o;
        for (i = 0; i < n; i++)
                forget(c, doomed[i]);
        free(doomed);
}

/* Channel classes of all generations end in 6f. */
static bool kind_of(uint32_t class, enum object_kind *ret_kind)
{
        switch (class) {
        case 0x0000:
        case 0x0001:
        case DRIVER_CLASS_CLIENT:
                *ret_kind = OBJECT_CLIENT;
                return true;
        case DRIVER_CLASS_DEVICE:
                *ret_kind = OBJECT_DEVICE;
                return true;
        case DRIVER_CLASS_CHANNEL_GROUP:
                *ret_kind = OBJECT_GROUP;
                return true;
        default:
                *ret_kind = OBJECT_CHANNEL;
                return class > 0x9000 && (class & 0xff) == DRIVER_CLASS_CHANNEL;
        }
}

static bool add_object(struct calls *c, const struct driver_call_event *e)
{
        struct object_key key = {e->client, e->object};
        enum object_kind kind;
        struct object *o, *group;

        if (!kind_of(e->what, &kind))
                return true;
        if (kind == OBJECT_CLIENT)
                key.client = e->object;
        free_tree(c, key.client, key.object); /* its end was not seen */
        if (HASH_COUNT(c->objects) >= CALLS_OBJECTS_MAX)
                return false;
        o = calloc(1, sizeof(*o));
        if (!o)
                return false;
        o->key = key;
        o->kind = kind;
        o->parent = e->parent;
        o->fd = e->fd;
        o->created_ns = e->enter_ns;
        o->has_detail = e->has & DRIVER_HAS_DETAIL;
        o->detail = e->detail;
        o->has_context_id = e->has & DRIVER_HAS_CONTEXT_ID && e->context_id;
        o->context_id = e->context_id;
        HASH_ADD(hh, c->objects, key, sizeof(key), o);
        c->group_count += kind == OBJECT_GROUP;
        group = group_of(c, o);
        o->is_counted = group;
        if (group)
                group->channels++;
        return true;
}

/* The descriptor a client is reached by: any that a call for it went through. */
static void note_fd(struct calls *c, const struct driver_call_event *e)
{
        struct object *client = find(c, e->client, e->client);

        if (client && e->minor == DRIVER_RM_CONTROL_MINOR)
                client->fd = e->fd;
}

/* A call of RM that did something to an object. */
static bool is_done(const struct driver_call_event *e)
{
        return e->device == DRIVER_DEVICE_RM && e->has & DRIVER_HAS_ARGUMENT && !has_failed(e);
}

static bool sets_slice(const struct driver_call_event *e)
{
        return (e->request & 0xff) == DRIVER_RM_CONTROL && e->what == DRIVER_CONTROL_SET_TIMESLICE;
}

static void note_slice(struct calls *c, const struct driver_call_event *e)
{
        struct object *group = sets_slice(e) ? find(c, e->client, e->object) : NULL;

        if (group && group->kind == OBJECT_GROUP)
                group->slice_us = e->has & DRIVER_HAS_DETAIL ? e->detail : 0;
}

bool calls_add(struct calls *c, const struct driver_call_event *e)
{
        count(c, e);
        if (!is_done(e))
                return true;
        note_fd(c, e);
        note_slice(c, e);
        switch (e->request & 0xff) {
        case DRIVER_RM_ALLOC:
                return add_object(c, e);
        case DRIVER_RM_FREE:
                free_tree(c, e->client, e->object);
                return true;
        default:
                return true;
        }
}

bool calls_add_found(struct calls *c, const struct group_scan_object *found)
{
        const struct driver_call_event made = {
                .what = found->class,
                .client = found->client,
                .object = found->object,
                .parent = found->parent,
                .fd = found->fd,
                .has = found->class == DRIVER_CLASS_CHANNEL_GROUP ? DRIVER_HAS_DETAIL : 0,
                .detail = ENGINE_GRAPHICS,
        };

        return find(c, found->client, found->object) || add_object(c, &made);
}

/* ---- asking ---- */

size_t calls_stat_count(const struct calls *c)
{
        return c->stat_count;
}

const struct call_stat *calls_stat(const struct calls *c, size_t index)
{
        return &c->stats[index];
}

static struct call_group describe(const struct calls *c, const struct object *o)
{
        const struct object *client = find(c, o->key.client, o->key.client);
        const struct object *device = find(c, o->key.client, o->parent);

        if (device && device->kind != OBJECT_DEVICE)
                device = NULL;
        return (struct call_group){
                .client = o->key.client,
                .object = o->key.object,
                .fd = client ? client->fd : o->fd,
                .has_instance = device && device->has_detail,
                .instance = device ? device->detail : 0,
                .has_engine = o->has_detail,
                .engine = o->detail,
                .slice_us = o->slice_us,
                .channels = o->channels,
                .created_ns = o->created_ns,
        };
}

void calls_groups(const struct calls *c, int (*row)(void *data, const struct call_group *g),
                  void *data)
{
        const struct object *o, *next;
        struct call_group g;

        HASH_ITER (hh, c->objects, o, next) {
                if (o->kind != OBJECT_GROUP)
                        continue;
                g = describe(c, o);
                if (row(data, &g))
                        return;
        }
}

size_t calls_group_count(const struct calls *c)
{
        return c->group_count;
}

bool calls_group_of(const struct calls *c, const struct driver_call_event *e,
                    struct call_group *ret_group)
{
        bool made = (e->request & 0xff) == DRIVER_RM_ALLOC && e->what == DRIVER_CLASS_CHANNEL_GROUP;
        const struct object *o =
                is_done(e) && (made || sets_slice(e)) ? find(c, e->client, e->object) : NULL;

        if (!o || o->kind != OBJECT_GROUP)
                return false;
        *ret_group = describe(c, o);
        return true;
}

bool calls_find_context(const struct calls *c, uint32_t context_id, struct call_group *ret_group)
{
        const struct object *o, *next, *group;

        HASH_ITER (hh, c->objects, o, next) {
                if (!o->has_context_id || o->context_id != context_id)
                        continue;
                group = group_of(c, o);
                if (!group)
                        return false;
                *ret_group = describe(c, group);
                return true;
        }
        return false;
}

/* ---- life ---- */

struct calls *calls_new(void)
{
        return calloc(1, sizeof(struct calls));
}

struct calls *calls_free(struct calls *c)
{
        struct kept_stat *k, *next_stat;
        struct object *o, *next;

        if (!c)
                return NULL;
        HASH_ITER (hh, c->by_key, k, next_stat) {
                HASH_DEL(c->by_key, k);
                free(k);
        }
        HASH_ITER (hh, c->objects, o, next) {
                HASH_DEL(c->objects, o);
                free(o);
        }
        free(c);
        return NULL;
}
