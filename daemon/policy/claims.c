/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/claims.h"

#include <stdlib.h>
#include <string.h>

#include "policy/actuator.h"

enum action_class { place, preference, mapping, copying, slice, preempt, pace, rate, streams };

static const enum action_class classes[POLICY_ACTION_COUNT] = {
#define X(name, value, class_) [value] = class_,
        POLICY_ACTIONS(X)
#undef X
};

bool claim_is_setting(uint32_t kind)
{
        return classes[kind] != place && classes[kind] != preempt;
}

bool claim_has_value(uint32_t kind)
{
        return classes[kind] == slice || classes[kind] == pace || classes[kind] == rate ||
               classes[kind] == streams;
}

bool claim_has_place(uint32_t kind)
{
        return kind == POLICY_ACTION_migrate || classes[kind] == preference ||
               classes[kind] == mapping;
}

bool claim_has_groups(uint32_t kind)
{
        return classes[kind] == slice || classes[kind] == preempt;
}

uint32_t claim_gpu(const struct policy_action *a)
{
        uint32_t gpu = a->to ^ POLICY_ON_GPU(0);

        return gpu < POLICY_GPUS_MAX ? gpu : POLICY_GPUS_MAX;
}

bool claim_shares_gpu(uint32_t kind, uint32_t to, uint32_t other_to)
{
        return !claim_has_groups(kind) || !to || !other_to || to == other_to;
}

static bool is_about_the_same(const struct claim *a, const struct claim *b)
{
        if (a->process != b->process || classes[a->kind] != classes[b->kind] ||
            !claim_shares_gpu(a->kind, a->to, b->to))
                return false;
        return a->end == 0 || b->end == 0 || (a->start < b->end && b->start < a->end);
}

static bool asks_the_same(const struct claim *a, const struct claim *b)
{
        return a->kind == b->kind && a->value == b->value &&
               (a->to == b->to || claim_has_groups(a->kind));
}

/* Of what holds on all GPUs the rest still does when another has its way on one. */
static bool is_part_of(const struct claim *a, const struct claim *b)
{
        return claim_has_groups(a->kind) && a->to && !b->to;
}

static void remove_at(struct claims *c, size_t i)
{
        c->list[i] = c->list[--c->count];
}

/* The next of a run of neighbours, or the same again: one claim is enough. */
static bool extend(struct claims *c, const struct claim *claim)
{
        for (size_t i = 0; i < c->count; i++) {
                struct claim *old = &c->list[i];

                if (old->policy != claim->policy || old->process != claim->process ||
                    !asks_the_same(old, claim) || old->to != claim->to)
                        continue;
                if (claim->start > old->end || claim->end < old->start)
                        continue;
                old->start = claim->start < old->start ? claim->start : old->start;
                old->end = claim->end > old->end ? claim->end : old->end;
                old->until_ns = claim->until_ns;
                return true;
        }
        return false;
}

static struct claim *new_place(struct claims *c)
{
        size_t first = 0;

        if (!c->list)
                c->list = calloc(CLAIMS_MAX, sizeof(*c->list));
        if (!c->list)
                return NULL;
        if (c->count < CLAIMS_MAX)
                return &c->list[c->count++];
        for (size_t i = 1; i < c->count; i++)
                if (c->list[i].until_ns < c->list[first].until_ns)
                        first = i;
        return &c->list[first];
}

/* Whether a claim in force forbids the new one; expired ones are forgotten on the way. */
static bool is_overruled(struct claims *c, const struct claim *claim, uint64_t now_ns)
{
        for (size_t i = c->count; i-- > 0;) {
                const struct claim *old = &c->list[i];

                if (old->until_ns <= now_ns)
                        remove_at(c, i);
                else if (old->policy != claim->policy && old->precedence >= claim->precedence &&
                         is_about_the_same(old, claim) && !asks_the_same(old, claim))
                        return true;
        }
        return false;
}

/* The policy itself may change its mind; those it outranks have to. */
static bool displace(struct claims *c, const struct claim *claim)
{
        bool others = false;

        for (size_t i = c->count; i-- > 0;) {
                const struct claim *old = &c->list[i];

                if (!is_about_the_same(old, claim) || asks_the_same(old, claim))
                        continue;
                others = others || old->policy != claim->policy;
                if (!is_part_of(claim, old))
                        remove_at(c, i);
        }
        return others;
}

enum claim_answer claims_take(struct claims *c, const struct claim *claim, uint64_t now_ns)
{
        struct claim *place_;
        bool displaced;

        if (is_overruled(c, claim, now_ns))
                return CLAIM_OVERRULED;
        displaced = displace(c, claim);
        if (!extend(c, claim)) {
                place_ = new_place(c);
                if (place_)
                        *place_ = *claim;
        }
        return displaced ? CLAIM_OVERRIDES : CLAIM_FREE;
}

void claims_drop_setting(struct claims *c, uint32_t policy, uint64_t process, uint32_t kind)
{
        for (size_t i = c->count; i-- > 0;)
                if (c->list[i].policy == policy && c->list[i].process == process &&
                    c->list[i].kind == kind)
                        remove_at(c, i);
}

void claims_drop_action(struct claims *c, uint32_t policy, const struct policy_action *a)
{
        for (size_t i = c->count; i-- > 0;) {
                const struct claim *old = &c->list[i];

                if (old->policy == policy && old->process == a->process && old->kind == a->kind &&
                    old->to == a->to && old->value == a->value && old->start >= a->address &&
                    old->end <= a->address + a->bytes)
                        remove_at(c, i);
        }
}

void claims_drop_policy(struct claims *c, uint32_t policy)
{
        for (size_t i = c->count; i-- > 0;)
                if (c->list[i].policy == policy)
                        remove_at(c, i);
}

void claims_drop_process(struct claims *c, uint64_t process)
{
        for (size_t i = c->count; i-- > 0;)
                if (c->list[i].process == process)
                        remove_at(c, i);
}

void claims_drop_memory(struct claims *c, uint64_t process, uint64_t start, uint64_t end)
{
        for (size_t i = c->count; i-- > 0;) {
                struct claim old = c->list[i];

                if (old.process != process || old.start >= end || old.end <= start)
                        continue;
                if (old.start < start)
                        c->list[i].end = start;
                else
                        remove_at(c, i);
                if (old.end > end) {
                        old.start = end;
                        *new_place(c) = old; /* there is a list, so there is a place */
                }
        }
}

void claims_done(struct claims *c)
{
        free(c->list);
        *c = (struct claims){0};
}
