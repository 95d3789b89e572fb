/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/targets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct target *targets_find(const struct targets *t, uint64_t key)
{
        struct target *found;

        HASH_FIND(hh, t->by_key, &key, sizeof(key), found);
        return found;
}

struct target *targets_add(struct targets *t, uint64_t key)
{
        struct target *target = targets_find(t, key);

        if (target)
                return target;
        target = calloc(1, sizeof(*target));
        if (!target)
                return NULL;
        target->key = key;
        HASH_ADD(hh, t->by_key, key, sizeof(target->key), target);
        return target;
}

void targets_remove(struct targets *t, struct target *target)
{
        HASH_DEL(t->by_key, target);
        for (size_t i = 0; i < target->range_count; i++)
                free(target->ranges[i].places);
        free(target->ranges);
        free(target);
}

void targets_done(struct targets *t)
{
        struct target *target, *next;

        HASH_ITER (hh, t->by_key, target, next)
                targets_remove(t, target);
}

/* ---- ranges ---- */

/* The first range that ends after the address; range_count when none does. */
static size_t first_after(const struct target *t, uint64_t address)
{
        size_t low = 0, high = t->range_count;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (t->ranges[middle].end > address)
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

static void remove_at(struct target *t, size_t at, size_t count)
{
        if (!count)
                return;
        for (size_t i = at; i < at + count; i++)
                free(t->ranges[i].places);
        memmove(&t->ranges[at], &t->ranges[at + count],
                (t->range_count - at - count) * sizeof(*t->ranges));
        t->range_count -= count;
}

static int make_room(struct target *t)
{
        size_t room = t->range_room ? 2 * t->range_room : 16;
        struct target_range *grown;

        if (t->range_count < t->range_room)
                return 0;
        if (t->range_count == TARGET_RANGES_MAX)
                return -ENOSPC;
        grown = realloc(t->ranges, room * sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        t->ranges = grown;
        t->range_room = room;
        return 0;
}

int target_add_range(struct target *t, uint64_t address, uint64_t bytes)
{
        size_t at = first_after(t, address), overlapped = 0;
        int r;

        if (bytes == 0 || address == 0 || address + bytes < address)
                return -EINVAL;
        while (at + overlapped < t->range_count &&
               t->ranges[at + overlapped].start < address + bytes)
                overlapped++;
        remove_at(t, at, overlapped);
        r = make_room(t);
        if (r < 0)
                return r;
        memmove(&t->ranges[at + 1], &t->ranges[at], (t->range_count - at) * sizeof(*t->ranges));
        t->ranges[at] = (struct target_range){.start = address, .end = address + bytes};
        t->range_count++;
        return 0;
}

uint64_t target_remove_range(struct target *t, uint64_t address)
{
        size_t at = first_after(t, address);
        uint64_t bytes;

        if (at == t->range_count || t->ranges[at].start != address)
                return 0;
        bytes = t->ranges[at].end - address;
        remove_at(t, at, 1);
        return bytes;
}

bool target_clip(const struct target *t, uint64_t address, uint64_t bytes, uint64_t *ret_address,
                 uint64_t *ret_bytes)
{
        size_t at = first_after(t, address);
        uint64_t end = address + bytes, start;

        if (end < address || at == t->range_count || t->ranges[at].start >= end)
                return false;
        start = t->ranges[at].start > address ? t->ranges[at].start : address;
        end = t->ranges[at].end < end ? t->ranges[at].end : end;
        *ret_address = start;
        *ret_bytes = end - start;
        return true;
}

bool target_uses(const struct target *t, uint32_t gpu)
{
        if (!t->gpus)
                return gpu == t->gpu;
        return gpu < POLICY_GPUS_MAX && t->gpus >> gpu & 1;
}

/* ---- where memory is ---- */

static uint64_t block_of(uint64_t address)
{
        return address / POLICY_BLOCK_BYTES;
}

/* The blocks of a range that [address, address + bytes) touches: from *ret_first on; the number. */
static size_t blocks_in(const struct target_range *r, uint64_t address, uint64_t bytes,
                        size_t *ret_first)
{
        uint64_t start = address > r->start ? address : r->start;
        uint64_t end = address + bytes < r->end ? address + bytes : r->end;

        *ret_first = block_of(start) - block_of(r->start);
        return start < end ? block_of(end - 1) - block_of(start) + 1 : 0;
}

static void note_place(struct target_range *r, const struct policy_moved *moved)
{
        size_t first, n = blocks_in(r, moved->address, moved->bytes, &first);

        if (!r->places)
                r->places = calloc(block_of(r->end - 1) - block_of(r->start) + 1, 1);
        if (r->places)
                memset(r->places + first, moved->to < POLICY_GPUS_MAX ? (int)moved->to + 1 : 0, n);
}

void target_moved(struct target *t, const struct policy_moved *moved)
{
        size_t at = first_after(t, moved->address);

        if (moved->to < POLICY_GPUS_MAX)
                t->resident[moved->to] += moved->bytes;
        if (moved->from < POLICY_GPUS_MAX)
                t->resident[moved->from] -= moved->bytes < t->resident[moved->from]
                                                    ? moved->bytes
                                                    : t->resident[moved->from];
        for (; at < t->range_count && t->ranges[at].start < moved->address + moved->bytes; at++)
                note_place(&t->ranges[at], moved);
}

bool target_is_on_other(const struct target *t, uint64_t address, uint64_t bytes, uint32_t gpu)
{
        size_t at = first_after(t, address), first, n;

        if (at == t->range_count || !t->ranges[at].places)
                return false;
        n = blocks_in(&t->ranges[at], address, bytes, &first);
        for (size_t i = first; i < first + n; i++)
                if (t->ranges[at].places[i] && t->ranges[at].places[i] != gpu + 1)
                        return true;
        return false;
}
