/* SPDX-License-Identifier: Apache-2.0 */

/*
 * As with the start/end map (record_ring.c): a slot that does not hold the record of
 * its turn is the end of what was written, a hole, or one of a later round. Numbers are
 * given out in order, so once a later record is there, what is missing before it is on
 * its way, and when that takes too long it will not come. To find that out the whole
 * ring is searched, ever more rarely while nothing is found.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/event_ring.h"
#include "util/macro.h"

#define HOLE_PATIENCE_NS   UINT64_C(20000000)
#define SEARCH_WAIT_MIN_NS UINT64_C(20000000)
#define SEARCH_WAIT_MAX_NS UINT64_C(2000000000)
#define NUMBER_MAX         (UINT64_C(1) << 62)

/* A slot as it was a moment ago. */
struct copy {
        struct device_event event;
        uint64_t words[GPUOBS_RECORD_MAX / 8];
};

struct event_ring {
        uint32_t first, slots, slot_bytes, record_bytes;
        uint64_t position;
        struct event_ring_losses losses;
        bool marked;
        uint64_t mark; /* number of a complete record behind the hole at position */
        uint64_t mark_ns;
        uint64_t search_ns;      /* when to search for records behind a missing one */
        uint64_t search_wait_ns; /* time between such searches */
};

enum slot_state {
        SLOT_MISSING, /* not written, half written, of an earlier round, or garbage */
        SLOT_COMPLETE,
        SLOT_OVERWRITTEN, /* a complete record of a later round */
};

static void copy_slot(const struct event_ring *r, const void *memory, uint64_t n, struct copy *ret)
{
        uint64_t place = n & (r->slots - 1);
        const uint64_t *slot =
                (const uint64_t *)((const char *)memory + r->first + place * r->slot_bytes);

        ret->event.check = __atomic_load_n(&slot[0], __ATOMIC_RELAXED);
        ret->event.bytes = __atomic_load_n(&slot[1], __ATOMIC_RELAXED);
        for (uint32_t i = 0; 8 * i < r->record_bytes; i++)
                ret->words[i] = __atomic_load_n(&slot[2 + i], __ATOMIC_RELAXED);
}

/* The number of the record that the seal says this is. */
static uint64_t sealed_number(const struct copy *c)
{
        uint64_t seal = c->event.bytes;

        for (uint64_t i = 0; 8 * i < c->event.bytes; i++)
                seal = seal * DEVICE_EVENT_MIX + c->words[i];
        return (c->event.check ^ seal) - 1;
}

/* Copy the slot of record n, and say whether that is what it holds. */
static enum slot_state read_slot(const struct event_ring *r, const void *memory, uint64_t n,
                                 struct copy *ret_copy, uint64_t *ret_number)
{
        copy_slot(r, memory, n, ret_copy);
        if (ret_copy->event.bytes == 0 || ret_copy->event.bytes > r->record_bytes)
                return SLOT_MISSING;
        *ret_number = sealed_number(ret_copy);
        if (*ret_number == n)
                return SLOT_COMPLETE;
        if (*ret_number > n && *ret_number < NUMBER_MAX && (*ret_number - n) % r->slots == 0)
                return SLOT_OVERWRITTEN;
        return SLOT_MISSING;
}

/* Whether there is a record behind the one that is missing at position; ret_mark the last one. */
static bool find_later(const struct event_ring *r, const void *memory, uint64_t *ret_mark)
{
        bool found = false;
        struct copy copy;
        uint64_t number;

        for (uint64_t n = r->position + 1; n < r->position + r->slots; n++) {
                if (read_slot(r, memory, n, &copy, &number) == SLOT_MISSING)
                        continue;
                *ret_mark = n;
                found = true;
        }
        return found;
}

/* The record at position is missing. Returns whether it was given up and reading goes on. */
static bool pass_hole(struct event_ring *r, const void *memory, uint64_t now_ns)
{
        if (r->marked && r->position < r->mark) {
                if (now_ns < r->mark_ns + HOLE_PATIENCE_NS)
                        return false;
                r->losses.torn++;
                r->position++;
                return true;
        }
        if (now_ns < r->search_ns)
                return false;
        r->marked = find_later(r, memory, &r->mark);
        r->mark_ns = now_ns;
        r->search_wait_ns = r->marked ? SEARCH_WAIT_MIN_NS : 2 * r->search_wait_ns;
        if (r->search_wait_ns > SEARCH_WAIT_MAX_NS)
                r->search_wait_ns = SEARCH_WAIT_MAX_NS;
        r->search_ns = now_ns + r->search_wait_ns;
        return false;
}

/* The slot of position holds a record of a later round: go to the oldest that may be there. */
static void skip_overrun(struct event_ring *r, uint64_t number)
{
        uint64_t lost = number - r->slots + 1 - r->position;

        r->losses.overrun += lost;
        r->position += lost;
}

size_t event_ring_read(struct event_ring *r, const void *memory, uint64_t now_ns, size_t max,
                       void (*record)(void *data, const void *bytes, size_t size), void *data)
{
        size_t taken = 0;
        struct copy copy;
        uint64_t number;

        for (uint64_t budget = (uint64_t)max + r->slots; taken < max && budget; budget--) {
                enum slot_state state = read_slot(r, memory, r->position, &copy, &number);

                if (state == SLOT_MISSING) {
                        if (!pass_hole(r, memory, now_ns))
                                break;
                        continue;
                }
                if (state == SLOT_OVERWRITTEN) {
                        skip_overrun(r, number);
                        continue;
                }
                r->position++;
                r->search_wait_ns = SEARCH_WAIT_MIN_NS;
                record(data, copy.words, (size_t)copy.event.bytes);
                taken++;
        }
        return taken;
}

int event_ring_new(const struct device_map_info *map, uint64_t position,
                   struct event_ring **ret_ring)
{
        struct event_ring *r = calloc(1, sizeof(*r));

        if (!r)
                return -ENOMEM;
        r->first = device_ring_first(map);
        r->slots = device_ring_slots(map);
        r->slot_bytes = device_ring_slot_bytes(map);
        r->record_bytes = map->record_bytes;
        r->position = position;
        r->search_wait_ns = SEARCH_WAIT_MIN_NS;
        *ret_ring = r;
        return 0;
}

struct event_ring *event_ring_free(struct event_ring *r)
{
        free(r);
        return NULL;
}

void event_ring_get_losses(const struct event_ring *r, struct event_ring_losses *ret_losses)
{
        *ret_losses = r->losses;
}

uint64_t event_ring_position(const struct event_ring *r)
{
        return r->position;
}
