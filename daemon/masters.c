/* SPDX-License-Identifier: Apache-2.0 */
#include "masters.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "agent/agent_abi.h"
#include "attachment.h"
#include "daemon.h"
#include "device/duplicate.h"
#include "programs.h"
#include "util/macro.h"
#include "util/time.h"

#define READ_NS NSEC_PER_SEC

struct replica {
        struct replica *prev, *next;
        const struct observed *o;
        uint64_t epoch[AGENT_MAP_MAX];
        uint64_t version[AGENT_MAP_MAX]; /* of the settings that were sent */
        bool sending[AGENT_MAP_MAX];     /* the agent has not answered yet */
        void *seen[AGENT_MAP_MAX];
        uint64_t read_ns; /* when to read counters */
};

struct masters {
        const struct device_object *object;
        uint64_t id;
        struct duplicate *maps[AGENT_MAP_MAX];
        uint64_t version[AGENT_MAP_MAX]; /* from 1 */
        struct replica *replicas;
};

/* An agent was asked for something about a map; the object may be gone when it answers. */
struct asked {
        struct gpuobsd *d;
        struct observed *o;
        uint64_t id;
        uint32_t map;
        uint64_t epoch;
        unsigned left; /* answers that are due */
        bool failed;
};

static const struct device_map_info *info_of(const struct masters *m, size_t number)
{
        return device_object_map(m->object, number);
}

int masters_new(const struct device_object *object, uint64_t id, struct masters **ret_masters)
{
        struct masters *m = calloc(1, sizeof(*m));
        int error = m ? 0 : -ENOMEM;

        if (!m)
                return error;
        m->object = object;
        m->id = id;
        for (size_t i = 0; !error && i < device_object_map_count(object); i++) {
                const struct device_map_info *info = info_of(m, i);

                if (info->rule == DEVICE_RULE_NONE)
                        continue;
                m->version[i] = 1;
                error = duplicate_new(info, &m->maps[i]);
                if (info->rule == DEVICE_RULE_SETTINGS &&
                    device_settings_copy_bytes(info) > MASTERS_SETTINGS_MAX)
                        error = -E2BIG;
        }
        if (error)
                masters_free(m);
        else
                *ret_masters = m;
        return error;
}

static void replica_free(struct masters *m, struct replica *r)
{
        DL_DELETE(m->replicas, r);
        for (size_t i = 0; i < AGENT_MAP_MAX; i++)
                free(r->seen[i]);
        free(r);
}

struct masters *masters_free(struct masters *m)
{
        struct replica *r, *next;

        if (!m)
                return NULL;
        DL_FOREACH_SAFE(m->replicas, r, next)
        replica_free(m, r);
        for (size_t i = 0; i < AGENT_MAP_MAX; i++)
                duplicate_free(m->maps[i]);
        free(m);
        return NULL;
}

struct duplicate *masters_map(struct masters *m, size_t number)
{
        return m->maps[number];
}

void masters_changed(struct masters *m, size_t number)
{
        m->version[number]++;
}

static struct replica *find(struct masters *m, const struct observed *o)
{
        struct replica *r;

        DL_FOREACH(m->replicas, r)
        if (r->o == o)
                return r;
        return NULL;
}

void masters_forget(struct masters *m, const struct observed *o)
{
        struct replica *r = find(m, o);

        if (r)
                replica_free(m, r);
}

static struct replica *replica_new(struct masters *m, const struct observed *o)
{
        struct replica *r = calloc(1, sizeof(*r));
        bool complete = r != NULL;

        if (!r)
                return NULL;
        r->o = o;
        DL_APPEND(m->replicas, r);
        for (size_t i = 0; i < device_object_map_count(m->object); i++) {
                if (!m->maps[i] || info_of(m, i)->rule == DEVICE_RULE_SETTINGS)
                        continue;
                r->seen[i] = calloc(1, duplicate_seen_bytes(info_of(m, i)));
                complete &= r->seen[i] != NULL;
        }
        if (complete)
                return r;
        replica_free(m, r);
        return NULL;
}

static struct asked *asked_new(struct gpuobsd *d, const struct masters *m, struct observed *o,
                               size_t number)
{
        struct asked *a = calloc(1, sizeof(*a));

        if (a)
                *a = (struct asked){.d = d, .o = o, .id = m->id, .map = (uint32_t)number};
        return a;
}

/* The masters and the replica that an answer is about, if they are still there. */
static struct replica *still_there(const struct asked *a, struct masters **ret_masters)
{
        *ret_masters = programs_masters(a->d, a->id);
        return *ret_masters ? find(*ret_masters, a->o) : NULL;
}

/* ---- settings ---- */

/* What was not written is sent again with the next tick. */
static void on_epoch_written(void *data, int result, struct api_map_reading *unused)
{
        struct asked *a = data;
        struct masters *m;
        struct replica *r = still_there(a, &m);

        if (r)
                r->sending[a->map] = false;
        if (r && result < 0) {
                r->version[a->map] = 0;
                r->epoch[a->map]--;
        }
        free(a);
}

static void on_elements_written(void *data, int result, struct api_map_reading *unused)
{
        struct asked *a = data;
        struct attach_map map = {.id = a->id, .number = a->map};

        a->failed |= result < 0;
        if (--a->left)
                return;
        if (a->failed ||
            attachment_write(a->o, &map, 0, &a->epoch, sizeof(a->epoch), on_epoch_written, a) < 0)
                on_epoch_written(a, -EIO, NULL);
}

/* Send a part; its answer counts even when it could not be sent. */
static void send_part(struct asked *a, const struct attach_map *map, uint64_t offset,
                      const void *bytes, size_t size)
{
        int e = attachment_write(a->o, map, offset, bytes, size, on_elements_written, a);

        if (e < 0)
                on_elements_written(a, e, NULL);
}

static void send_settings(struct gpuobsd *d, struct masters *m, struct replica *r,
                          struct observed *o, size_t number)
{
        const struct device_map_info *info = info_of(m, number);
        const struct attach_map map = {.id = m->id, .number = (uint32_t)number, .info = info};
        _cleanup_free_ char *image = calloc(1, info->bytes);
        struct asked *a = asked_new(d, m, o, number);
        struct duplicate_write writes[2];
        size_t parts;

        if (!image || !a) {
                free(a);
                return;
        }
        a->epoch = r->epoch[number] + 1;
        duplicate_settings(m->maps[number], a->epoch, image, writes);
        r->epoch[number]++;
        r->version[number] = m->version[number];
        r->sending[number] = true;
        parts = (writes[0].bytes + AGENT_WRITE_MAX - 1) / AGENT_WRITE_MAX;
        a->left = (unsigned)parts;
        for (size_t i = 0; i < parts; i++) {
                size_t at = i * AGENT_WRITE_MAX, left = writes[0].bytes - at;

                send_part(a, &map, writes[0].offset + at, image + writes[0].offset + at,
                          left < AGENT_WRITE_MAX ? left : AGENT_WRITE_MAX);
        }
}

/* ---- counters ---- */

static void on_counters_read(void *data, int result, struct api_map_reading *reading)
{
        struct asked *a = data;
        struct masters *m;
        struct replica *r = still_there(a, &m);

        if (result == 0 && r && reading->size == info_of(m, a->map)->bytes)
                duplicate_merge(m->maps[a->map], reading->bytes, r->seen[a->map]);
        free(a);
}

static void read_counters(struct gpuobsd *d, struct masters *m, struct observed *o, size_t number)
{
        const struct attach_map map = {
                .id = m->id, .number = (uint32_t)number, .info = info_of(m, number)};
        struct asked *a = asked_new(d, m, o, number);

        if (a && attachment_read(o, &map, on_counters_read, a) < 0)
                free(a);
}

void masters_sync(struct gpuobsd *d, struct masters *m, struct observed *o, uint64_t now_ns)
{
        struct replica *r = find(m, o);
        bool due;

        if (!attachment_is_active(o, m->id)) {
                masters_forget(m, o);
                return;
        }
        if (!r)
                r = replica_new(m, o);
        if (!r)
                return;
        due = now_ns >= r->read_ns;
        if (due)
                r->read_ns = now_ns + READ_NS;
        for (size_t i = 0; i < device_object_map_count(m->object); i++) {
                if (!m->maps[i])
                        continue;
                if (info_of(m, i)->rule == DEVICE_RULE_SETTINGS) {
                        if (r->version[i] != m->version[i] && !r->sending[i])
                                send_settings(d, m, r, o, i);
                } else if (due) {
                        read_counters(d, m, o, i);
                }
        }
}
