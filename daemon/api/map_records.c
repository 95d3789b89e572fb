/* SPDX-License-Identifier: Apache-2.0 */
#include "api/map_records.h"

#include <errno.h>
#include <string.h>

#include "device/event_ring.h"

#define PATIENCE_NS UINT64_C(1000000000) /* longer than a reader of rings waits for a hole */

struct records {
        struct api_call *call;
        struct event_ring *ring;
        struct gpuobs_map_element *rows;
        size_t count;
        bool failed;
};

static void add_record(void *data, const void *bytes, size_t size)
{
        struct records *r = data;
        uint64_t number = event_ring_position(r->ring) - 1;
        uint8_t *copy = codec_arena_alloc(&r->call->arena, sizeof(number) + size);

        if (!copy) {
                r->failed = true;
                return;
        }
        memcpy(copy, &number, sizeof(number));
        memcpy(copy + sizeof(number), bytes, size);
        r->rows[r->count++] = (struct gpuobs_map_element){.key = copy,
                                                          .n_key = sizeof(number),
                                                          .value = copy + sizeof(number),
                                                          .n_value = size};
}

void map_records_read(struct event_ring *ring, const struct api_map_reading *reading, size_t limit,
                      void (*record)(void *data, const void *bytes, size_t size), void *data)
{
        size_t taken = event_ring_read(ring, reading->bytes, 1, limit, record, data);

        if (reading->settled)
                event_ring_read(ring, reading->bytes, 1 + PATIENCE_NS, limit - taken, record, data);
}

int map_records(struct api_call *call, const struct device_map_info *ring,
                const struct api_map_reading *reading, uint64_t from, size_t limit,
                struct gpuobs_map_dump *ret_dump)
{
        struct records r = {.call = call};
        struct event_ring_losses losses;

        r.rows = codec_arena_alloc(&call->arena, (limit + 1) * sizeof(*r.rows));
        if (!r.rows || event_ring_new(ring, from, &r.ring) < 0)
                return -ENOMEM;
        map_records_read(r.ring, reading, limit, add_record, &r);
        event_ring_get_losses(r.ring, &losses);
        ret_dump->elements = r.rows;
        ret_dump->n_elements = r.count;
        ret_dump->has_lost = true;
        ret_dump->lost = losses.overrun + losses.torn;
        ret_dump->has_next = r.count == limit;
        ret_dump->next = event_ring_position(r.ring);
        event_ring_free(r.ring);
        return r.failed ? -ENOMEM : 0;
}
