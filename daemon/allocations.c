/* SPDX-License-Identifier: Apache-2.0 */
#include "allocations.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_abi.h"

void allocations_done(struct allocations *a)
{
        free(a->list);
        *a = (struct allocations){0};
}

/* The first that ends after an address. */
static size_t position(const struct allocations *a, uint64_t address)
{
        size_t low = 0, high = a->count;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (a->list[middle].address + a->list[middle].bytes > address)
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

static void take_out(struct allocations *a, size_t from, size_t count)
{
        a->count -= count;
        memmove(&a->list[from], &a->list[from + count], (a->count - from) * sizeof(*a->list));
}

/* What is there is gone: its free was not seen. */
static size_t make_way(struct allocations *a, uint64_t address, uint64_t bytes)
{
        size_t at = position(a, address), n = 0;

        while (at + n < a->count && a->list[at + n].address < address + bytes)
                n++;
        if (n)
                take_out(a, at, n);
        return at;
}

static bool grow(struct allocations *a)
{
        size_t room = a->room ? 2 * a->room : 64;
        struct allocation *list;

        if (a->count < a->room)
                return true;
        if (a->count == ALLOCATIONS_MAX)
                return false;
        list = reallocarray(a->list, room, sizeof(*list));
        if (!list)
                return false;
        a->list = list;
        a->room = room;
        return true;
}

static void add(struct allocations *a, const struct cpu_operation_event *e)
{
        size_t at;

        if (!e->address || !e->bytes || e->address + e->bytes < e->address)
                return;
        at = make_way(a, e->address, e->bytes);
        if (!grow(a)) {
                a->unlisted++;
                return;
        }
        memmove(&a->list[at + 1], &a->list[at], (a->count - at) * sizeof(*a->list));
        a->count++;
        a->list[at] = (struct allocation){.address = e->address,
                                          .bytes = e->bytes,
                                          .since_ns = e->enter_ns + e->duration_ns,
                                          .context = e->context,
                                          .operation = e->operation};
}

/* One that was made since the call began is another one, at the same address. */
static void remove_range(struct allocations *a, const struct cpu_operation_event *e, uint64_t bytes)
{
        size_t at = position(a, e->address);

        while (at < a->count && a->list[at].address - e->address < bytes)
                if (a->list[at].since_ns <= e->enter_ns)
                        take_out(a, at, 1);
                else
                        at++;
}

void allocations_operation(struct allocations *a, const struct cpu_operation_event *e)
{
        if (e->result != 0)
                return;
        switch (e->operation) {
        case CPU_OP_ALLOC:
        case CPU_OP_ALLOC_MANAGED:
        case CPU_OP_ALLOC_HOST:
        case CPU_OP_ALLOC_ASYNC:
        case CPU_OP_MAP:
                add(a, e);
                break;
        case CPU_OP_FREE:
                remove_range(a, e, 1);
                break;
        case CPU_OP_UNMAP:
                remove_range(a, e, e->bytes);
                break;
        default:
                break;
        }
}

/* Pools and mappings are the device's and the process's. */
static bool goes_with(const struct allocation *l, uint32_t context)
{
        return l->context == context && l->operation != CPU_OP_ALLOC_ASYNC &&
               l->operation != CPU_OP_MAP;
}

void allocations_context_gone(struct allocations *a, uint32_t context)
{
        size_t kept = 0;

        for (size_t i = 0; i < a->count; i++)
                if (!context || !goes_with(&a->list[i], context))
                        a->list[kept++] = a->list[i];
        a->count = kept;
}

const struct allocation *allocations_from(const struct allocations *a, uint64_t address)
{
        size_t at = position(a, address);

        if (at < a->count && a->list[at].address < address)
                at++;
        return at < a->count ? &a->list[at] : NULL;
}
