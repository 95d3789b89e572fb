/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/ctxsw.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "util/macro.h"

#define HEADER_MAP_BYTES 4096
#define RECORD_MAP_BYTES ((size_t)CTXSW_ENTRIES * CTXSW_RECORD_BYTES)

/* NV01_MEMORY_DEVICELESS and NV_MEMORY_ALLOCATION_PARAMS, as far as they are used. */
#define CLASS_MEMORY_DEVICELESS 0x90ceu
#define ATTR2_USER_READ_ONLY    (1u << 22)

struct memory_parameters {
        uint32_t owner, type, flags, width, height;
        int32_t pitch;
        uint32_t attr, attr2, format, compression, zcull, pad;
        uint64_t range_low, range_high, size;
        uint8_t unused[56];
};
_Static_assert(sizeof(struct memory_parameters) == 128, "NV_MEMORY_ALLOCATION_PARAMS");
_Static_assert(offsetof(struct memory_parameters, attr2) == 28, "NV_MEMORY_ALLOCATION_PARAMS");
_Static_assert(offsetof(struct memory_parameters, size) == 64, "NV_MEMORY_ALLOCATION_PARAMS");

#define CLASS_EVENT_BUFFER 0x90cdu

struct event_buffer_parameters {
        uint64_t header, records;
        uint32_t record_size, record_count;
        uint64_t more;
        uint32_t more_size, records_free_threshold;
        uint64_t notification;
        uint32_t more_free_threshold, subdevice, flags;
        uint32_t header_memory, record_memory, more_memory;
};
_Static_assert(sizeof(struct event_buffer_parameters) == 72, "NV_EVENT_BUFFER_ALLOC_PARAMETERS");

/* NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2 */
#define BIND            0x20801238u
#define DETAIL_SIMPLE   1 /* starts and ends only */
#define REASON_TOO_OLD  1
#define REASON_NO_ADMIN 4

struct bind_parameters {
        uint32_t event_buffer, record_size, level_of_detail, filter;
        uint8_t all_users, pad[3];
        uint32_t reason;
};
_Static_assert(sizeof(struct bind_parameters) == 24, "bind parameters");

/* Controls of the buffer. */
#define ENABLE     0x90cd0101u
#define UPDATE_GET 0x90cd0102u
#define FLUSH      0x90cd0104u

/* When the buffer is full new records are dropped and counted; nothing we read is overwritten. */
#define KEEP_OLDEST 1

struct enable_parameters {
        uint8_t enable, pad[3];
        uint32_t policy;
};
struct update_get_parameters {
        uint32_t records, more;
};

struct ctxsw {
        struct rm_client *client;
        uint32_t event_buffer;
        struct rm_mapping header, records;
        struct ctxsw_ring ring;
};

static int make_memory(struct ctxsw *c, size_t bytes, uint32_t *ret_object,
                       struct rm_mapping *ret_mapping)
{
        struct memory_parameters p = {.attr2 = ATTR2_USER_READ_ONLY, .size = bytes};
        int r = rm_alloc(c->client, rm_client_handle(c->client), CLASS_MEMORY_DEVICELESS, &p,
                         sizeof(p), ret_object);

        return r < 0 ? r : rm_map_system(c->client, *ret_object, bytes, ret_mapping);
}

static int make_buffer(struct ctxsw *c)
{
        struct event_buffer_parameters p = {
                .record_size = CTXSW_RECORD_BYTES,
                .record_count = CTXSW_ENTRIES,
                .records_free_threshold = 1,
                .subdevice = rm_client_subdevice(c->client),
        };
        int r = make_memory(c, HEADER_MAP_BYTES, &p.header_memory, &c->header);

        if (r == 0)
                r = make_memory(c, RECORD_MAP_BYTES, &p.record_memory, &c->records);
        if (r == 0)
                r = rm_alloc(c->client, rm_client_handle(c->client), CLASS_EVENT_BUFFER, &p,
                             sizeof(p), &c->event_buffer);
        return r;
}

static int bind(struct ctxsw *c)
{
        struct bind_parameters p = {
                .event_buffer = c->event_buffer,
                .record_size = CTXSW_RECORD_BYTES,
                .level_of_detail = DETAIL_SIMPLE,
                .all_users = 1,
        };
        int r = rm_control(c->client, rm_client_subdevice(c->client), BIND, &p, sizeof(p));

        if (r < 0 && p.reason)
                return p.reason >= REASON_NO_ADMIN ? -EPERM : -ENOTSUP;
        return r;
}

static int enable(struct ctxsw *c)
{
        struct enable_parameters p = {.enable = 1, .policy = KEEP_OLDEST};

        return rm_control(c->client, c->event_buffer, ENABLE, &p, sizeof(p));
}

int ctxsw_new(const struct rm_system *system, unsigned instance, unsigned minor,
              struct ctxsw **ret_trace)
{
        struct ctxsw *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        r = rm_client_new(system, instance, minor, &c->client);
        if (r == 0)
                r = make_buffer(c);
        if (r == 0)
                r = bind(c);
        if (r == 0)
                r = enable(c);
        if (r < 0) {
                ctxsw_free(c);
                return r;
        }
        ctxsw_ring_init(&c->ring, c->header.address, c->records.address, CTXSW_ENTRIES);
        *ret_trace = c;
        return 0;
}

struct ctxsw *ctxsw_free(struct ctxsw *c)
{
        if (!c)
                return NULL;
        /* The driver's side of it all goes with the client. */
        if (c->client) {
                rm_unmap_system(c->client, &c->header);
                rm_unmap_system(c->client, &c->records);
        }
        rm_client_free(c->client);
        free(c);
        return NULL;
}

int ctxsw_read(struct ctxsw *c, const struct ctxsw_ops *ops, void *data)
{
        struct update_get_parameters p = {0};
        int n, r = rm_control(c->client, c->event_buffer, FLUSH, NULL, 0);

        if (r < 0)
                return r;
        n = ctxsw_ring_read(&c->ring, ops, data);
        if (n < 0)
                return n;
        /* Also when nothing was read: it starts the count of drops anew. */
        p.records = c->ring.get;
        r = rm_control(c->client, c->event_buffer, UPDATE_GET, &p, sizeof(p));
        return r < 0 ? r : n;
}

uint64_t ctxsw_garbage(const struct ctxsw *c)
{
        return c->ring.garbage;
}
