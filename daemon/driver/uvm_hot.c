/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_hot.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct uvm_hot *uvm_hot_new(unsigned shift, size_t room)
{
        struct uvm_hot *h = calloc(1, sizeof(*h) + room * sizeof(h->entries[0]));

        if (!h)
                return NULL;
        h->shift = shift;
        h->room = room;
        return h;
}

struct uvm_hot *uvm_hot_free(struct uvm_hot *h)
{
        free(h);
        return NULL;
}

static size_t least(const struct uvm_hot *h)
{
        size_t at = 0;

        for (size_t i = 1; i < h->count; i++)
                if (h->entries[i].events < h->entries[at].events)
                        at = i;
        return at;
}

static size_t find(const struct uvm_hot *h, uint64_t address)
{
        size_t i;

        if (h->last < h->count && h->entries[h->last].address == address)
                return h->last;
        for (i = 0; i < h->count && h->entries[i].address != address; i++)
                ;
        return i;
}

static struct uvm_hot_entry *entry_for(struct uvm_hot *h, uint64_t address)
{
        size_t at = find(h, address);

        if (at == h->count && h->count < h->room) {
                h->entries[h->count++] = (struct uvm_hot_entry){.address = address};
        } else if (at == h->count) {
                uint64_t inherited;

                at = least(h);
                inherited = h->entries[at].events;
                h->entries[at] = (struct uvm_hot_entry){
                        .address = address, .events = inherited, .error = inherited};
        }
        h->last = at;
        return &h->entries[at];
}

void uvm_hot_event(struct uvm_hot *h, const struct uvm_event *e)
{
        bool fault = e->kind == UVM_KIND_GPU_FAULT || e->kind == UVM_KIND_CPU_FAULT;
        struct uvm_hot_entry *entry;

        if (!fault && (e->kind != UVM_KIND_MIGRATION || e->bytes > 1ULL << h->shift))
                return;
        entry = entry_for(h, e->address >> h->shift << h->shift);
        entry->events++;
        entry->faults += fault;
        if (!fault && e->target == UVM_CPU)
                entry->bytes_to_cpu += e->bytes;
        else if (!fault)
                entry->bytes_to_gpu += e->bytes;
}

static int by_events(const void *a, const void *b)
{
        const struct uvm_hot_entry *x = a, *y = b;

        if (x->events != y->events)
                return x->events < y->events ? 1 : -1;
        return x->address < y->address ? -1 : x->address > y->address;
}

size_t uvm_hot_top(const struct uvm_hot *h, struct uvm_hot_entry *ret_entries, size_t max)
{
        struct uvm_hot_entry sorted[UVM_HOT_ENTRIES_MAX];
        size_t n = h->count < max ? h->count : max;

        memcpy(sorted, h->entries, h->count * sizeof(sorted[0]));
        qsort(sorted, h->count, sizeof(sorted[0]), by_events);
        memcpy(ret_entries, sorted, n * sizeof(sorted[0]));
        return n;
}
