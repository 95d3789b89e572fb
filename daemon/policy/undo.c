/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Settings in force, in the order they came. One is kept per policy and thing
 * set: a policy that turns a time slice up and down again and again leaves one
 * entry, with the value from before the first time. When a policy goes whose
 * setting another has changed since, nothing is set back now; what it found goes
 * to the later one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "policy/internal.h"

static bool is_of_place(uint32_t kind)
{
        return kind == POLICY_ACTION_accessed_by || claim_has_groups(kind);
}

bool undo_is_same_thing(const struct policy_action *a, const struct policy_action *b)
{
        return a->kind == b->kind && a->process == b->process && a->address == b->address &&
               a->bytes == b->bytes && (!is_of_place(a->kind) || a->to == b->to);
}

bool undo_covers(const struct policy_action *a, const struct policy_action *b)
{
        struct policy_action all = *b;

        if (claim_has_groups(a->kind) && !a->to)
                all.to = 0;
        return undo_is_same_thing(a, &all);
}

bool undo_overlaps(const struct policy_action *a, const struct policy_action *b)
{
        if (a->kind != b->kind || a->process != b->process)
                return false;
        if (a->kind == POLICY_ACTION_accessed_by && a->to != b->to)
                return false;
        if (!claim_shares_gpu(a->kind, a->to, b->to))
                return false;
        return a->bytes == 0 || b->bytes == 0 ||
               (a->address < b->address + b->bytes && b->address < a->address + a->bytes);
}

bool undo_takes_back(const struct policy_action *a)
{
        return a->kind == POLICY_ACTION_prefer ? a->to == POLICY_NOWHERE : a->value == 0;
}

static void remove_at(struct policy_engine *e, size_t i)
{
        memmove(&e->settings.list[i], &e->settings.list[i + 1],
                (e->settings.count - i - 1) * sizeof(*e->settings.list));
        e->settings.count--;
}

/* NULL on no memory. */
static struct setting *add(struct setting_list *l)
{
        size_t room = l->room ? 2 * l->room : 4;
        struct setting *grown;

        if (l->count == l->room) {
                grown = realloc(l->list, room * sizeof(*grown));
                if (!grown)
                        return NULL;
                l->list = grown;
                l->room = room;
        }
        return &l->list[l->count++];
}

/* Whether what it is about still is. */
static bool is_there(const struct policy_engine *e, const struct policy_action *a)
{
        const struct target *t = targets_find(&e->targets, a->process);
        uint64_t start, bytes;

        return t && (!a->bytes || target_clip(t, a->address, a->bytes, &start, &bytes));
}

void undo_remember(struct policy_engine *e, const struct policy *p,
                   const struct policy_action *action, uint64_t before)
{
        struct setting *s = NULL;

        for (size_t i = e->settings.count; i-- > 0;) {
                if (e->settings.list[i].policy != p->id ||
                    !undo_covers(action, &e->settings.list[i].action))
                        continue;
                before = e->settings.list[i].before;
                remove_at(e, i);
        }
        if (undo_takes_back(action) || !is_there(e, action))
                return;
        s = add(&e->settings);
        if (!s) {
                /* What cannot be remembered is not left in force. */
                undo_action(e, p->id, p->name, action, before);
                return;
        }
        *s = (struct setting){.policy = p->id, .before = before, .action = *action};
        memcpy(s->owner, p->name, sizeof(s->owner));
}

static struct policy_action inverse(const struct policy_action *action, uint64_t before)
{
        struct policy_action a = *action;

        if (a.kind == POLICY_ACTION_prefer)
                a.to = POLICY_NOWHERE;
        else
                a.value = claim_has_value(a.kind) ? before : 0;
        return a;
}

/*
 * An order that no policy is asked about: setting back, or renewing what stays in force. Of
 * time slices it takes all of the process's on these GPUs back, and so what came into force
 * meanwhile, or holds on one of several GPUs, too.
 */
static void order_back(struct policy_engine *e, uint32_t policy, const char *owner,
                       const struct policy_action *action)
{
        struct waiting w = {.policy = policy,
                            .undo = true,
                            .again = action->kind == POLICY_ACTION_time_slice,
                            .again_to = action->to,
                            .action = *action};

        memcpy(w.owner, owner, sizeof(w.owner));
        order_surely(e, &w);
}

void undo_action(struct policy_engine *e, uint32_t policy, const char *owner,
                 const struct policy_action *action, uint64_t before)
{
        struct policy_action back = inverse(action, before);

        order_back(e, policy, owner, &back);
}

/*
 * Whether a later setting decides about all of the same process: then it stays, and what
 * was before passes to it.
 */
static bool pass_on(struct policy_engine *e, const struct setting *s, size_t from)
{
        for (size_t i = from; i < e->settings.count; i++) {
                struct setting *over = &e->settings.list[i];

                if (over->action.bytes || !undo_overlaps(&over->action, &s->action))
                        continue;
                over->before = s->before;
                if (undo_covers(&over->action, &s->action))
                        return true;
        }
        return false;
}

/*
 * Later settings about parts of memory that has just been set back are in force again. Time slices
 * are renewed when they have been set back.
 */
static void renew_from(struct policy_engine *e, const struct policy_action *action, size_t from)
{
        for (size_t i = from; i < e->settings.count; i++)
                if (e->settings.list[i].action.bytes &&
                    undo_overlaps(&e->settings.list[i].action, action))
                        order_back(e, e->settings.list[i].policy, e->settings.list[i].owner,
                                   &e->settings.list[i].action);
}

static void undo_at(struct policy_engine *e, size_t i)
{
        struct setting s = e->settings.list[i];

        remove_at(e, i);
        if (pass_on(e, &s, i))
                return;
        undo_action(e, s.policy, s.owner, &s.action, s.before);
        renew_from(e, &s.action, i);
}

void undo_renew(struct policy_engine *e, const struct policy_action *action)
{
        renew_from(e, action, 0);
}

size_t undo_policy(struct policy_engine *e, uint32_t policy)
{
        size_t n = 0, i = e->settings.count;

        while (i > 0) {
                if (e->settings.list[--i].policy != policy)
                        continue;
                undo_at(e, i);
                n++;
                /* Results that came meanwhile may have changed the list. */
                i = i < e->settings.count ? i : e->settings.count;
        }
        return n;
}

/*
 * Only of memory: the driver lets no advice replace another's. A time slice is
 * simply set anew, and what was before the first passes on.
 */
void undo_overridden(struct policy_engine *e, uint32_t policy, const struct policy_action *action,
                     struct setting_list *displaced)
{
        struct setting *kept;
        struct policy *p;
        size_t i = action->bytes ? e->settings.count : 0;

        while (i > 0) {
                const struct setting *s = &e->settings.list[--i];

                if (s->policy == policy || !undo_overlaps(&s->action, action))
                        continue;
                kept = add(displaced);
                if (kept)
                        *kept = *s;
                p = engine_policy(e, s->policy);
                if (p)
                        p->stats.undone++;
                undo_at(e, i);
                i = i < e->settings.count ? i : e->settings.count;
        }
}

struct setting *undo_in_force(const struct policy_engine *e, uint32_t policy,
                              const struct policy_action *action)
{
        for (size_t i = e->settings.count; i-- > 0;)
                if (e->settings.list[i].policy == policy &&
                    undo_is_same_thing(&e->settings.list[i].action, action))
                        return &e->settings.list[i];
        return NULL;
}

size_t undo_setting(struct policy_engine *e, const struct policy *p,
                    const struct policy_action *action)
{
        size_t n = 0, i = e->settings.count;

        while (i > 0) {
                const struct setting *s = &e->settings.list[--i];

                if (s->policy != p->id || !undo_covers(action, &s->action) ||
                    decide_is_to_come(e, p, &s->action))
                        continue;
                undo_at(e, i);
                n++;
                i = i < e->settings.count ? i : e->settings.count;
        }
        return n;
}

void undo_beyond_reach(struct policy_engine *e, const struct target *t)
{
        size_t i = e->settings.count;

        while (i > 0) {
                const struct setting *s = &e->settings.list[--i];
                struct policy *p = engine_policy(e, s->policy);

                if (s->action.process != t->key || !p || engine_in_reach(p, t, &s->action))
                        continue;
                p->stats.undone++;
                undo_at(e, i);
                i = i < e->settings.count ? i : e->settings.count;
        }
}

uint32_t undo_slice_us(const struct policy_engine *e, uint64_t process, uint32_t gpu)
{
        const struct policy_action there = {.kind = POLICY_ACTION_time_slice,
                                            .to = gpu < POLICY_GPUS_MAX ? POLICY_ON_GPU(gpu) : 0,
                                            .process = process};

        for (size_t i = e->settings.count; i-- > 0;)
                if (undo_covers(&e->settings.list[i].action, &there))
                        return (uint32_t)e->settings.list[i].action.value;
        return 0;
}

static bool sets_slice_of(const struct waiting *w, uint64_t process)
{
        return w->action.kind == POLICY_ACTION_time_slice && w->action.process == process;
}

/* One order at a time, however often it is called for: what waits may have missed this, too. */
static bool renew_when_done(struct policy_engine *e, uint64_t process, uint32_t to)
{
        struct waiting *w, *next;
        bool found = false;

        HASH_ITER (hh, e->orders, w, next) {
                if (!sets_slice_of(w, process))
                        continue;
                w->again_to = w->again && w->again_to != to ? 0 : to;
                w->again = found = true;
        }
        DL_FOREACH(e->backlog, w)
        {
                if (!sets_slice_of(w, process))
                        continue;
                w->again_to = w->again_to != to ? 0 : to; /* renewed when done anyway */
                found = true;
        }
        return found;
}

/* Whether a later setting decides about all of it, as far as it is on a GPU (`to` of an action). */
static bool is_superseded(const struct policy_engine *e, size_t i, uint32_t to)
{
        struct policy_action there = e->settings.list[i].action;

        there.to = there.to ? there.to : to;
        while (++i < e->settings.count)
                if (undo_covers(&e->settings.list[i].action, &there))
                        return true;
        return false;
}

static void renew_slice(struct policy_engine *e, const struct target *t, const struct setting *s,
                        uint32_t to)
{
        struct waiting w = {.policy = s->policy, .renewal = true, .action = s->action};
        struct policy *p = engine_policy(e, s->policy);

        w.action.to = w.action.to ? w.action.to : to;
        memcpy(w.owner, s->owner, sizeof(w.owner));
        if (!order_submit(e, t, &w) && p)
                p->stats.unrenewed++;
}

void undo_renew_slices(struct policy_engine *e, uint64_t process, uint32_t to)
{
        const struct policy_action changed = {
                .kind = POLICY_ACTION_time_slice, .to = to, .process = process};
        const struct target *t = targets_find(&e->targets, process);

        if (!t || renew_when_done(e, process, to))
                return;
        for (size_t i = 0; i < e->settings.count; i++)
                if (undo_overlaps(&e->settings.list[i].action, &changed) &&
                    !is_superseded(e, i, to))
                        renew_slice(e, t, &e->settings.list[i], to);
}

void policy_engine_slices_changed(struct policy_engine *e, uint64_t process, uint32_t gpu)
{
        undo_renew_slices(e, process, gpu < POLICY_GPUS_MAX ? POLICY_ON_GPU(gpu) : 0);
}

void undo_forget_process(struct policy_engine *e, uint64_t process)
{
        stuck_forget_process(e, process);
        for (size_t i = e->settings.count; i-- > 0;)
                if (e->settings.list[i].action.process == process)
                        remove_at(e, i);
}

void undo_forget_memory(struct policy_engine *e, uint64_t process, uint64_t address, uint64_t bytes)
{
        for (size_t i = e->settings.count; i-- > 0;) {
                const struct policy_action *a = &e->settings.list[i].action;

                if (a->process == process && a->bytes && a->address < address + bytes &&
                    address < a->address + a->bytes)
                        remove_at(e, i);
        }
}

uint64_t undo_count(const struct policy_engine *e, uint32_t policy)
{
        uint64_t n = 0;

        for (size_t i = 0; i < e->settings.count; i++)
                n += e->settings.list[i].policy == policy;
        return n;
}
