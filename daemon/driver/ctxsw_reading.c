/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/ctxsw_reading.h"

#include <stdlib.h>

#include "util/time.h"

#define ROOM_FIRST 1024

struct ctxsw_note {
        uint64_t lost; /* records; 0: an event */
        struct ctxsw_event event;
};

static void add(struct ctxsw_reading *r, const struct ctxsw_note *note, uint64_t records)
{
        size_t room = r->room ? 2 * r->room : ROOM_FIRST;
        struct ctxsw_note *grown;

        if (r->count == r->room) {
                grown = reallocarray(r->notes, room, sizeof(*grown));
                if (!grown) {
                        r->forgotten += records;
                        return;
                }
                r->notes = grown;
                r->room = room;
        }
        r->notes[r->count++] = *note;
}

static void on_event(void *data, const struct ctxsw_event *e)
{
        add(data, &(struct ctxsw_note){.event = *e}, 1);
}

static void on_gap(void *data, uint64_t lost)
{
        add(data, &(struct ctxsw_note){.lost = lost}, lost);
}

static const struct ctxsw_ops noting = {.event = on_event, .gap = on_gap};

void ctxsw_reading_open(struct ctxsw_reading *r, const struct rm_system *system, unsigned instance,
                        unsigned minor)
{
        r->error = ctxsw_new(system, instance, minor, &r->trace);
}

void ctxsw_reading_read(struct ctxsw_reading *r)
{
        int n;

        r->count = r->forgotten = 0;
        r->before_ns = now_ns();
        n = ctxsw_read(r->trace, &noting, r);
        r->after_ns = now_ns();
        r->garbage = ctxsw_garbage(r->trace);
        r->error = n < 0 ? n : 0;
        if (n < 0)
                ctxsw_reading_close(r);
}

void ctxsw_reading_close(struct ctxsw_reading *r)
{
        r->trace = ctxsw_free(r->trace);
}

void ctxsw_reading_replay(const struct ctxsw_reading *r, const struct ctxsw_ops *ops, void *data)
{
        for (size_t i = 0; i < r->count; i++) {
                if (r->notes[i].lost)
                        ops->gap(data, r->notes[i].lost);
                else
                        ops->event(data, &r->notes[i].event);
        }
        if (r->forgotten)
                ops->gap(data, r->forgotten);
}

void ctxsw_reading_done(struct ctxsw_reading *r)
{
        free(r->notes);
        *r = (struct ctxsw_reading){0};
}
