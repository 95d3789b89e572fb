/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/moves.h"

static struct move *move_at(struct moves *m, uint64_t i)
{
        return &m->list[i % MOVES_MAX];
}

void moves_ordered(struct moves *m, uint32_t policy, const struct policy_action *a, uint64_t now_ns)
{
        *move_at(m, m->count++) = (struct move){.process = a->process,
                                                .address = a->address,
                                                .bytes = a->bytes,
                                                .ordered_ns = now_ns,
                                                .unseen_bytes = a->bytes,
                                                .policy = policy,
                                                .to = a->to};
}

static uint64_t least(uint64_t a, uint64_t b)
{
        return a < b ? a : b;
}

/* Of what was seen, the part in the order's range that it has not been credited with. */
static uint64_t common(const struct move *o, uint64_t process, const struct policy_moved *moved)
{
        uint64_t start = moved->address > o->address ? moved->address : o->address;
        uint64_t end = least(moved->address + moved->bytes, o->address + o->bytes);

        if (o->process != process || o->to != moved->to || start >= end)
                return 0;
        return least(end - start, o->unseen_bytes);
}

void moves_seen(struct moves *m, uint64_t process, const struct policy_moved *moved,
                uint64_t now_ns, void (*seen)(void *data, uint32_t policy, uint64_t bytes),
                void *data)
{
        uint64_t first = m->count > MOVES_MAX ? m->count - MOVES_MAX : 0, left = moved->bytes;

        if (moved->cause != POLICY_BY_REQUEST)
                return;
        for (uint64_t i = m->count; i-- > first && left;) {
                struct move *o = move_at(m, i);
                uint64_t bytes = least(common(o, process, moved), left);

                if (now_ns > o->ordered_ns + MOVES_LIMIT_NS)
                        return; /* and all before it */
                if (!bytes)
                        continue;
                o->unseen_bytes -= bytes;
                left -= bytes;
                seen(data, o->policy, bytes);
        }
}
