/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/silence.h"

#include "util/time.h"

static atomic_uint abandoned;

void silence_begin(struct silence *s)
{
        silence_end(s);
        atomic_store(&s->begun_ns, now_ns());
}

void silence_end(struct silence *s)
{
        uint64_t ns = silence_lasts_ns(s);

        atomic_store(&s->begun_ns, 0);
        if (ns < SILENCE_NS)
                return;
        atomic_fetch_add(&s->count, 1);
        atomic_fetch_add(&s->total_ns, ns);
}

uint64_t silence_lasts_ns(const struct silence *s)
{
        uint64_t begun_ns = atomic_load(&s->begun_ns), now = now_ns();

        return begun_ns && now > begun_ns ? now - begun_ns : 0;
}

uint64_t silence_count(const struct silence *s)
{
        return atomic_load(&s->count) + (silence_lasts_ns(s) >= SILENCE_NS);
}

uint64_t silence_total_ns(const struct silence *s)
{
        uint64_t ns = silence_lasts_ns(s);

        return atomic_load(&s->total_ns) + (ns >= SILENCE_NS ? ns : 0);
}

void silence_abandon(void)
{
        atomic_fetch_add(&abandoned, 1);
}

void silence_returned(void)
{
        atomic_fetch_sub(&abandoned, 1);
}

unsigned silence_abandoned(void)
{
        return atomic_load(&abandoned);
}
