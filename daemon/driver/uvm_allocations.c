/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_allocations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void uvm_allocations_done(struct uvm_allocations *a)
{
        for (size_t i = 0; i < a->count; i++)
                uvm_hot_free(a->list[i].pages);
        free(a->list);
        *a = (struct uvm_allocations){0};
}

/* Index of the first allocation that ends after the address. */
static size_t lower(const struct uvm_allocations *a, uint64_t address)
{
        size_t low = 0, high = a->count;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (a->list[middle].address + a->list[middle].bytes <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static void drop(struct uvm_allocations *a, size_t at)
{
        uvm_counts_add(&a->freed, &a->list[at].total);
        uvm_hot_free(a->list[at].pages);
        a->count--;
        memmove(&a->list[at], &a->list[at + 1], (a->count - at) * sizeof(a->list[0]));
}

static int make_room(struct uvm_allocations *a)
{
        size_t room = a->room ? a->room * 2 : 16;
        struct uvm_allocation *list;

        if (a->count < a->room)
                return 0;
        if (a->count == UVM_ALLOCATIONS_MAX)
                return -ENOSPC;
        list = realloc(a->list, room * sizeof(*list));
        if (!list)
                return -ENOMEM;
        a->list = list;
        a->room = room;
        return 0;
}

int uvm_allocations_add(struct uvm_allocations *a, uint64_t address, uint64_t bytes, uint64_t at_ns)
{
        size_t at;
        int r;

        if (address == 0 || bytes == 0 || bytes > UINT64_MAX - address)
                return -EINVAL;
        at = lower(a, address);
        while (at < a->count && a->list[at].address < address + bytes)
                drop(a, at);
        r = make_room(a);
        if (r < 0) {
                a->refused++;
                return r;
        }
        memmove(&a->list[at + 1], &a->list[at], (a->count - at) * sizeof(a->list[0]));
        a->list[at] =
                (struct uvm_allocation){.address = address, .bytes = bytes, .since_ns = at_ns};
        a->count++;
        return 0;
}

bool uvm_allocations_remove(struct uvm_allocations *a, uint64_t address)
{
        size_t at = lower(a, address);

        if (at == a->count || a->list[at].address != address)
                return false;
        drop(a, at);
        return true;
}

void uvm_allocations_advised(struct uvm_allocations *a, uint64_t address, uint64_t bytes)
{
        for (size_t i = lower(a, address); i < a->count; i++) {
                if (bytes <= UINT64_MAX - address && a->list[i].address >= address + bytes)
                        break;
                a->list[i].advised = true;
        }
}

const struct uvm_allocation *uvm_allocations_from(const struct uvm_allocations *a, uint64_t address)
{
        size_t at = lower(a, address);

        return at < a->count ? &a->list[at] : NULL;
}

const struct uvm_allocation *uvm_allocations_find(const struct uvm_allocations *a, uint64_t address)
{
        const struct uvm_allocation *found = uvm_allocations_from(a, address);

        return found && found->address <= address ? found : NULL;
}

static bool holds(const struct uvm_allocation *a, uint64_t address)
{
        return address >= a->address && address - a->address < a->bytes;
}

static void count_in(struct uvm_allocation *a, const struct uvm_event *e)
{
        uvm_counts_event(&a->total, e);
        if (!a->pages)
                a->pages = uvm_hot_new(UVM_PAGE_SHIFT, UVM_ALLOCATION_HOT);
        if (a->pages)
                uvm_hot_event(a->pages, e);
}

void uvm_allocations_event(struct uvm_allocations *a, const struct uvm_event *e)
{
        if (a->last >= a->count || !holds(&a->list[a->last], e->address))
                a->last = lower(a, e->address);
        if (a->last < a->count && holds(&a->list[a->last], e->address))
                count_in(&a->list[a->last], e);
        else
                uvm_counts_event(&a->outside, e);
}

void uvm_allocations_second(struct uvm_allocations *a)
{
        for (size_t i = 0; i < a->count; i++) {
                struct uvm_allocation *l = &a->list[i];

                l->rate = uvm_counts_since(&l->total, &l->mark);
                l->mark = l->total;
        }
}

uint64_t uvm_allocations_bytes(const struct uvm_allocations *a)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < a->count; i++)
                bytes += a->list[i].bytes;
        return bytes;
}
