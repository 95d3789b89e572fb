/* SPDX-License-Identifier: Apache-2.0 */

/*
 * maps.dump, maps.update and maps.delete: the agent of the process is asked, and the call answered
 * when it has. The object may be unloaded meanwhile: what is needed of the map is kept.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "api/internal.h"
#include "api/kept_map.h"
#include "api/map_records.h"
#include "api/probe_rows.h"
#include "device/map_view.h"

#define ERROR_BYTES     600
#define RECORDS_DEFAULT 1000 /* of a ring, in one answer */

struct map_call {
        struct api_call *call;
        struct api_server *server;
        struct api_map_request request;            /* its texts are in the call's arena, */
        const struct gpuobs_map_dump_params *dump; /* and these */
        const struct gpuobs_map_update_params *update;
        const struct gpuobs_map_delete_params *delete;
        struct device_map_info map;
        uint32_t pid;
        struct kept_map *kept; /* the dump is of this reading; NULL: the map is read */
};

/* ---- which map ---- */

static const struct device_map_info *find_map(struct api_call *call, const char *probe,
                                              const char *map)
{
        struct api_probe p;
        int number;

        if (!probe_find(call, probe, &p))
                return NULL;
        number = device_object_find_map(p.object, map);
        return number >= 0 ? device_object_map(p.object, (size_t)number) : NULL;
}

static struct map_call *map_call_new(struct api_call *call, const char *probe, const char *map,
                                     uint32_t pid)
{
        const struct device_map_info *found = find_map(call, probe, map);
        struct map_call *m;

        if (!found) {
                api_call_fail_param(call, "map",
                                    "is not one of the object's, or there is no such object");
                return NULL;
        }
        m = calloc(1, sizeof(*m));
        if (!m) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return NULL;
        }
        m->call = call;
        m->server = call->server;
        m->request = (struct api_map_request){.probe = probe, .map = map, .pid = pid};
        m->map = *found;
        /* Read and written is the master, which is there once. */
        if (m->map.rule != DEVICE_RULE_NONE) {
                m->map.spread = DEVICE_SHARED;
                m->map.rule = DEVICE_RULE_NONE;
        }
        return m;
}

static void fail_result(struct map_call *m, int error)
{
        static const struct {
                int error;
                const char *text;
        } texts[] = {
                {-ETIMEDOUT, "the agent of the process does not answer"},
                {-EPIPE, "the process, or its agent, is gone"},
                {-ENOENT, "the agent does not have the map (any more)"},
        };
        const char *text = "the map could not be copied";

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
                if (texts[i].error == error)
                        text = texts[i].text;
        api_call_fail(m->call, GPUOBS_ERROR_BAD_PARAMS, NULL, text);
        free(m);
}

/* Have the agent asked for the map: done() is called with m, or the call fails. */
static void read_map(struct map_call *m, api_map_done *done)
{
        struct api_server *s = m->call->server;
        char error[ERROR_BYTES] = "";
        int r = s->backend->map_read(s->data, &m->request, done, m, &m->pid, error, sizeof(error));

        if (r < 0) {
                api_call_fail(m->call, GPUOBS_ERROR_BAD_PARAMS, NULL, error);
                free(m);
        }
}

/* ---- maps.dump ---- */

/* Bounded by rows and by bytes. */
struct page_of_map {
        struct gpuobs_map_element *rows;
        size_t count, room;
        size_t bytes;
};

static bool is_zero(const uint8_t *value, size_t size)
{
        for (size_t i = 0; i < size; i++)
                if (value[i])
                        return false;
        return true;
}

static bool add_element(struct map_call *m, struct page_of_map *page,
                        const struct map_view_element *e)
{
        const struct gpuobs_map_dump_params *p = m->dump;
        struct gpuobs_map_element *row = &page->rows[page->count];

        if (p->has_nonzero && p->nonzero && is_zero(e->value, m->map.value_size))
                return true;
        *row = (struct gpuobs_map_element){
                .key = codec_arena_copy(&m->call->arena, e->key, e->key_size),
                .n_key = e->key_size,
                .has_copy = p->has_merge && !p->merge && m->map.spread != DEVICE_SHARED,
                .copy = e->copy,
                .value = codec_arena_copy(&m->call->arena, e->value, m->map.value_size),
                .n_value = m->map.value_size,
        };
        if (!row->key || !row->value)
                return false;
        page->count++;
        page->bytes += m->map.value_size + 48;
        return true;
}

/* False: out of memory. */
static bool fill_page(struct map_call *m, const struct map_view *view, struct page_of_map *page,
                      struct gpuobs_map_dump *result)
{
        uint8_t *buffer = codec_arena_alloc(&m->call->arena, m->map.value_size + 8);
        uint64_t at = m->dump->has_from ? m->dump->from : 0, next = at;
        struct map_view_element e;

        page->rows = codec_arena_alloc(&m->call->arena, (page->room + 1) * sizeof(*page->rows));
        if (!buffer || !page->rows)
                return false;
        while (map_view_next(view, &next, buffer, &e)) {
                if (page->count == page->room || page->bytes >= API_PAGE_BYTES) {
                        result->has_next = true;
                        result->next = at;
                        break;
                }
                if (!add_element(m, page, &e))
                        return false;
                at = next;
        }
        result->elements = page->rows;
        result->n_elements = page->count;
        return true;
}

/* Answer with a page, and keep the reading where another one follows. */
static void reply_page(struct map_call *m, struct api_map_reading *reading,
                       struct gpuobs_map_dump *result)
{
        const struct kept_map_options what = {
                .probe = m->request.probe, .name = m->request.map, .pid = m->pid, .map = &m->map};
        const struct kept_map *kept = m->kept;

        if (kept && !result->has_next) {
                api_call_reply(m->call, result, NULL, 0);
                kept_map_free(m->server, m->kept);
                return;
        }
        if (!kept && result->has_next && m->call->connection) {
                kept = kept_map_new(m->call->connection, &what, reading);
                connection_want_timer(m->server);
        }
        result->has_snapshot = kept != NULL;
        result->snapshot = kept ? kept->number : 0;
        api_call_reply(m->call, result, NULL, 0);
}

static void reply_records(struct map_call *m, struct api_map_reading *reading,
                          struct gpuobs_map_dump *result)
{
        size_t limit = m->dump->has_limit ? m->dump->limit : RECORDS_DEFAULT;

        if (reading->size < m->map.bytes || (m->dump->has_from && m->dump->from >> 62))
                api_call_fail_param(m->call, "from", "is no number of a record");
        else if (map_records(m->call, &m->map, reading, m->dump->has_from ? m->dump->from : 0,
                             limit, result) < 0)
                api_call_fail(m->call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                reply_page(m, reading, result);
}

static void reply_elements(struct map_call *m, struct api_map_reading *reading,
                           struct gpuobs_map_dump *result)
{
        const struct map_view view = {.map = &m->map,
                                      .bytes = reading->bytes,
                                      .size = reading->size,
                                      .merge = !m->dump->has_merge || m->dump->merge};
        struct page_of_map page = {.room = m->dump->has_limit ? m->dump->limit : GPUOBS_ROWS_MAX};
        const char *refusal = map_view_refusal(&view);

        result->has_lost = m->map.type == BPF_MAP_TYPE_HASH;
        result->lost = map_view_lost(&view);
        if (refusal)
                api_call_fail(m->call, GPUOBS_ERROR_BAD_PARAMS, NULL, refusal);
        else if (!fill_page(m, &view, &page, result))
                api_call_fail(m->call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                reply_page(m, reading, result);
}

/* The call's end, and m's. */
static void reply(struct map_call *m, struct api_map_reading *reading)
{
        struct gpuobs_map_dump result = {0};

        result.pid = m->pid;
        result.settled = reading->settled;
        result.before_ns = reading->before_ns;
        result.after_ns = reading->after_ns;
        probe_map_row(&m->map, &result.map);
        if (m->map.type == BPF_MAP_TYPE_RINGBUF)
                reply_records(m, reading, &result);
        else
                reply_elements(m, reading, &result);
        free(m);
}

static void on_read(void *data, int error, struct api_map_reading *reading)
{
        if (error < 0)
                fail_result(data, error);
        else
                reply(data, reading);
}

static void dump_kept(struct api_call *call, const struct gpuobs_map_dump_params *p)
{
        struct kept_map *kept = kept_map_find(call->connection, p->snapshot);
        struct map_call *m;

        if (!kept || strcmp(kept->probe, p->probe) != 0 || strcmp(kept->name, p->map) != 0) {
                api_call_fail_param(call, "snapshot",
                                    "is none of this connection's for this map (any more): read "
                                    "the map from its first page again");
                return;
        }
        m = calloc(1, sizeof(*m));
        if (!m) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        *m = (struct map_call){.call = call,
                               .server = call->server,
                               .dump = p,
                               .map = kept->map,
                               .pid = kept->pid,
                               .kept = kept};
        reply(m, &kept->reading);
}

void api_handle_maps_dump(struct api_call *call, const struct gpuobs_map_dump_params *p)
{
        struct map_call *m;

        if (p->has_limit && (!p->limit || p->limit > GPUOBS_ROWS_MAX)) {
                api_call_fail_param(call, "limit", "is from 1 to 10000");
                return;
        }
        if (p->has_snapshot) {
                dump_kept(call, p);
                return;
        }
        m = map_call_new(call, p->probe, p->map, p->has_pid ? p->pid : 0);
        if (!m)
                return;
        m->dump = p;
        read_map(m, on_read);
}

/* ---- maps.update, maps.delete ---- */

static void on_written(void *data, int error, struct api_map_reading *unused)
{
        struct map_call *m = data;

        if (error < 0) {
                fail_result(m, error);
                return;
        }
        if (m->delete)
                api_call_reply(m->call, &(struct gpuobs_map_deleted){0}, NULL, 0);
        else
                api_call_reply(m->call, &(struct gpuobs_map_updated){0}, NULL, 0);
        free(m);
}

static void write_bytes(struct map_call *m, uint64_t offset, const void *bytes, size_t size)
{
        struct api_server *s = m->call->server;
        char error[ERROR_BYTES] = "";
        int r = s->backend->map_write(s->data, &m->request, offset, bytes, size, on_written, m,
                                      error, sizeof(error));

        if (r < 0) {
                api_call_fail(m->call, GPUOBS_ERROR_BAD_PARAMS, NULL, error);
                free(m);
        }
}

static void delete_element(struct map_call *m, const struct map_view *view, uint64_t value_offset)
{
        uint64_t offset = 0;
        uint8_t *bytes;
        size_t size;

        if (map_view_delete(view, value_offset, &bytes, &size, &offset) < 0) {
                api_call_fail(m->call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                free(m);
                return;
        }
        write_bytes(m, offset, bytes, size);
        free(bytes);
}

/* A hash had to be read to know where the key's value is: a key keeps its slot for good. */
static void on_found(void *data, int error, struct api_map_reading *reading)
{
        struct map_call *m = data;
        struct map_view view = {.map = &m->map};
        uint64_t offset = 0;

        if (error < 0) {
                fail_result(m, error);
                return;
        }
        view.bytes = reading->bytes;
        view.size = reading->size;
        if (map_view_refusal(&view) ||
            map_view_find(&view, m->request.key, m->map.key_size, &offset) < 0) {
                api_call_fail_param(m->call, "key",
                                    "is not in the map: only programs on the GPU insert keys");
                free(m);
        } else if (m->delete) {
                delete_element(m, &view, offset);
        } else {
                write_bytes(m, offset, m->update->value, m->update->n_value);
        }
}

/* NULL, or the parameter that is wrong, with why in *ret_why. */
static const char *check_update(const struct map_call *m, const struct gpuobs_map_update_params *p,
                                const char **ret_why)
{
        *ret_why = "is of another size than the map's";
        if (p->n_key != m->map.key_size)
                return "key";
        if (p->n_value != m->map.value_size)
                return "value";
        *ret_why = "holds constants, which are also in the programs' code";
        if (m->map.constant)
                return "map";
        *ret_why = "has elements more than once: which one is meant cannot be said";
        if (m->map.spread != DEVICE_SHARED)
                return "map";
        *ret_why = "is no array or hash";
        if (m->map.type != BPF_MAP_TYPE_ARRAY && m->map.type != BPF_MAP_TYPE_HASH)
                return "map";
        return NULL;
}

void api_handle_maps_update(struct api_call *call, const struct gpuobs_map_update_params *p)
{
        struct map_call *m = map_call_new(call, p->probe, p->map, p->has_pid ? p->pid : 0);
        const char *wrong, *why;
        struct map_view view;
        uint64_t offset = 0;

        if (!m)
                return;
        m->update = p;
        m->request.key = p->key;
        wrong = check_update(m, p, &why);
        if (wrong) {
                free(m);
                api_call_fail_param(call, wrong, why);
                return;
        }
        if (m->map.type == BPF_MAP_TYPE_HASH) {
                read_map(m, on_found);
                return;
        }
        view = (struct map_view){.map = &m->map};
        if (map_view_find(&view, p->key, p->n_key, &offset) < 0) {
                free(m);
                api_call_fail_param(call, "key", "is not that of an element");
                return;
        }
        write_bytes(m, offset, p->value, p->n_value);
}

void api_handle_maps_delete(struct api_call *call, const struct gpuobs_map_delete_params *p)
{
        struct map_call *m = map_call_new(call, p->probe, p->map, p->has_pid ? p->pid : 0);

        if (!m)
                return;
        m->delete = p;
        m->request.key = p->key;
        m->request.deletes = true;
        if (m->map.type == BPF_MAP_TYPE_HASH && p->n_key == m->map.key_size) {
                read_map(m, on_found);
                return;
        }
        if (m->map.type == BPF_MAP_TYPE_HASH)
                api_call_fail_param(call, "key", "is of another size than the map's");
        else
                api_call_fail_param(call, "map", "is no hash: other maps keep their elements");
        free(m);
}
