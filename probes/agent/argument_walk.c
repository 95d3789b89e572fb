/* SPDX-License-Identifier: Apache-2.0 */
#include "argument_walk.h"

#include <string.h>

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

bool argument_walk_begin(const struct agent_argument_map *m, struct argument_found *ret_found)
{
        ret_found->version = __atomic_load_n(&m->table.version, __ATOMIC_ACQUIRE);
        ret_found->count = ret_found->words = 0;
        ret_found->cut = false;
        return !(ret_found->version & 1) && LOAD(m->table.count) > 0;
}

bool argument_walk_end(const struct agent_argument_map *m, const struct argument_found *f)
{
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return LOAD(m->table.version) == f->version;
}

/* The allocation a word points into: its start; 0 none. The count may be anything. */
static uint64_t find(const struct agent_argument_map *m, uint64_t word)
{
        uint32_t low = 0, high = LOAD(m->table.count);

        if (high > AGENT_ARGUMENT_RANGES)
                return 0;
        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (LOAD(m->ranges[middle].end) <= word)
                        low = middle + 1;
                else if (LOAD(m->ranges[middle].start) > word)
                        high = middle;
                else
                        return LOAD(m->ranges[middle].start);
        }
        return 0;
}

static void add(struct argument_found *f, uint64_t start, uint64_t address)
{
        for (unsigned i = 0; i < f->count; i++) {
                if (f->list[i].start != start)
                        continue;
                if (address < f->list[i].address)
                        f->list[i].address = address;
                return;
        }
        if (f->count == ARGUMENT_FOUND_MAX) {
                f->cut = true;
                return;
        }
        f->list[f->count].start = start;
        f->list[f->count++].address = address;
}

void argument_walk_bytes(const struct agent_argument_map *m, struct argument_found *f,
                         const void *bytes, size_t size)
{
        uint64_t low = LOAD(m->table.low), high = LOAD(m->table.high), word, start;
        const char *at = bytes;

        for (size_t left = size / sizeof(word); left > 0; left--, at += sizeof(word)) {
                if (f->words == ARGUMENT_WORDS_MAX) {
                        f->cut = true;
                        return;
                }
                f->words++;
                memcpy(&word, at, sizeof(word));
                if (word < low || word >= high)
                        continue;
                start = find(m, word);
                if (start)
                        add(f, start, word);
        }
}

/* Claim a place; NULL when there is none. */
static struct agent_argument *claim(struct agent_argument_map *m, uint64_t *ret_position)
{
        __u64 head = LOAD(m->producer.head);

        do {
                if (head - __atomic_load_n(&m->consumer.tail, __ATOMIC_ACQUIRE) >=
                    AGENT_ARGUMENT_ENTRIES)
                        return NULL;
        } while (!__atomic_compare_exchange_n(&m->producer.head, &head, head + 1, true,
                                              __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        *ret_position = head;
        return &m->records[head % AGENT_ARGUMENT_ENTRIES];
}

bool argument_push(struct agent_argument_map *m, const struct argument_found *f, uint64_t at_ns,
                   uint64_t func, uint32_t device)
{
        for (unsigned i = 0; i < f->count; i += AGENT_ARGUMENT_ADDRESSES) {
                unsigned left = f->count - i;
                unsigned n = left < AGENT_ARGUMENT_ADDRESSES ? left : AGENT_ARGUMENT_ADDRESSES;
                uint64_t position;
                struct agent_argument *r = claim(m, &position);

                if (!r) {
                        __atomic_add_fetch(&m->producer.dropped,
                                           (left + AGENT_ARGUMENT_ADDRESSES - 1) /
                                                   AGENT_ARGUMENT_ADDRESSES,
                                           __ATOMIC_RELAXED);
                        return false;
                }
                r->at_ns = at_ns;
                r->func = func;
                r->device = device;
                r->count = n;
                for (unsigned k = 0; k < n; k++)
                        r->addresses[k] = f->list[i + k].address;
                __atomic_store_n(&r->turn, position + 1, __ATOMIC_RELEASE);
        }
        return true;
}

void argument_unread(struct agent_argument_map *m)
{
        __atomic_add_fetch(&m->producer.unread, 1, __ATOMIC_RELAXED);
}

bool argument_wakes(struct agent_argument_map *m)
{
        /* The record before, the look at asleep after: the daemon does it the other way round. */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        return LOAD(m->producer.asleep) &&
               __atomic_exchange_n(&m->producer.asleep, 0, __ATOMIC_RELAXED);
}
