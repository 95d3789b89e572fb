/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/argument_ring.h"

#include <string.h>

#include "probe/claimed_ring.h"
#include "util/time.h"

void argument_ring_init(struct argument_ring *r, struct agent_argument_map *map)
{
        *r = (struct argument_ring){.map = map, .created_ns = now_ns()};
}

/* ---- the table ---- */

static void set_version(struct agent_argument_table *t, uint32_t version)
{
        __atomic_store_n(&t->version, version, __ATOMIC_RELEASE);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void argument_ring_set_table(struct argument_ring *r, const struct agent_argument_range *ranges,
                             size_t count)
{
        struct agent_argument_table *t = &r->map->table;
        uint32_t version;

        if (count > AGENT_ARGUMENT_RANGES)
                count = AGENT_ARGUMENT_RANGES;
        /* Made odd whatever the process left there. */
        version = __atomic_load_n(&t->version, __ATOMIC_RELAXED) | 1;
        set_version(t, version);
        for (size_t i = 0; i < count; i++) {
                __atomic_store_n(&r->map->ranges[i].start, ranges[i].start, __ATOMIC_RELAXED);
                __atomic_store_n(&r->map->ranges[i].end, ranges[i].end, __ATOMIC_RELAXED);
        }
        __atomic_store_n(&t->low, count ? ranges[0].start : 0, __ATOMIC_RELAXED);
        __atomic_store_n(&t->high, count ? ranges[count - 1].end : 0, __ATOMIC_RELAXED);
        __atomic_store_n(&t->count, (uint32_t)count, __ATOMIC_RELAXED);
        set_version(t, version + 1);
}

/* ---- the ring ---- */

static void pass(struct argument_ring *r)
{
        r->hole_ns = 0;
        r->position++;
        __atomic_store_n(&r->map->consumer.tail, r->position, __ATOMIC_RELEASE);
}

static bool copy_record(const struct argument_ring *r, struct agent_argument *ret)
{
        const struct agent_argument *slot = &r->map->records[r->position % AGENT_ARGUMENT_ENTRIES];

        if (__atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE) != r->position + 1)
                return false;
        memcpy(ret, slot, sizeof(*ret));
        return true;
}

/* Nothing whole is at position. Returns whether it was given up and reading goes on. */
static bool pass_hole(struct argument_ring *r, uint64_t now)
{
        uint64_t head = __atomic_load_n(&r->map->producer.head, __ATOMIC_RELAXED);

        if (!claimed_hole_is_over(&r->hole_ns, head, r->position, AGENT_ARGUMENT_ENTRIES, now,
                                  false))
                return false;
        r->losses.torn++;
        pass(r);
        return true;
}

static bool is_possible(const struct argument_ring *r, const struct agent_argument *a, uint64_t now)
{
        return a->count > 0 && a->count <= AGENT_ARGUMENT_ADDRESSES && a->at_ns >= r->created_ns &&
               a->at_ns <= now + CLAIMED_FUTURE_NS;
}

bool argument_ring_take(struct argument_ring *r, uint64_t now, struct agent_argument *ret)
{
        /* No more rounds than records, lest a process that writes nonsense keep us here. */
        for (uint32_t budget = AGENT_ARGUMENT_ENTRIES; budget; budget--) {
                struct agent_argument a;

                if (!copy_record(r, &a)) {
                        if (!pass_hole(r, now))
                                return false;
                        continue;
                }
                pass(r);
                if (is_possible(r, &a, now)) {
                        *ret = a;
                        return true;
                }
                r->losses.torn++;
        }
        return false;
}

bool argument_ring_sleep(struct argument_ring *r)
{
        const struct agent_argument *next = &r->map->records[r->position % AGENT_ARGUMENT_ENTRIES];

        __atomic_store_n(&r->map->producer.asleep, 1, __ATOMIC_RELAXED);
        /* The agent adds a record first and looks at asleep after. */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        return __atomic_load_n(&next->turn, __ATOMIC_ACQUIRE) != r->position + 1;
}

void argument_ring_get_losses(struct argument_ring *r, struct argument_ring_losses *ret_losses)
{
        const struct agent_argument_producer *p = &r->map->producer;

        r->losses.overrun +=
                claimed_counted(__atomic_load_n(&p->dropped, __ATOMIC_RELAXED), &r->dropped);
        r->losses.unread +=
                claimed_counted(__atomic_load_n(&p->unread, __ATOMIC_RELAXED), &r->unread);
        *ret_losses = r->losses;
}
