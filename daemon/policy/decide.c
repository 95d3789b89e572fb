/* SPDX-License-Identifier: Apache-2.0 */

/* What a policy asks for: checked, ordered, and what became of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "policy/internal.h"

#define PAGE_BYTES       4096ull
#define ACTION_BYTES_MAX (1ull << 30)
#define SLICE_US_MIN     100
#define SLICE_US_MAX     100000
#define PACE_MAX         4096
#define RATE_MIN         10 /* fewer would wait longer than launches may */
#define RATE_MAX         1000000
#define PRIORITY_MAX     64

/* ---- bounds ---- */

static bool memory_is_sane(const struct policy_action *a)
{
        return a->bytes > 0 && a->bytes <= ACTION_BYTES_MAX && a->address > 0 &&
               a->address + a->bytes > a->address;
}

static bool place_is_sane(const struct policy_action *a, const struct target *t)
{
        if (a->kind == POLICY_ACTION_prefer && a->to == POLICY_NOWHERE)
                return true;
        return a->to == POLICY_HOST || target_uses(t, a->to);
}

static bool names_gpu(const struct policy_action *a)
{
        return a->to >> 16 == POLICY_ON_GPU(0) >> 16;
}

/* Channel groups on all of the process's GPUs, or on one that it uses. */
static bool groups_are_sane(const struct policy_action *a, const struct target *t)
{
        return !names_gpu(a) || target_uses(t, claim_gpu(a));
}

static bool is_sane(const struct policy_action *a, const struct target *t)
{
        switch (a->kind) {
        case POLICY_ACTION_migrate:
        case POLICY_ACTION_prefer:
                return memory_is_sane(a) && place_is_sane(a, t);
        case POLICY_ACTION_accessed_by:
                return memory_is_sane(a) && place_is_sane(a, t) && a->value <= 1;
        case POLICY_ACTION_read_duplicate:
                return memory_is_sane(a) && a->value <= 1;
        case POLICY_ACTION_discard:
                return memory_is_sane(a);
        case POLICY_ACTION_time_slice:
                return groups_are_sane(a, t) &&
                       (a->value == 0 || (a->value >= SLICE_US_MIN && a->value <= SLICE_US_MAX));
        case POLICY_ACTION_preempt:
                return groups_are_sane(a, t);
        case POLICY_ACTION_pace:
                return a->value <= PACE_MAX;
        case POLICY_ACTION_launch_rate:
                return a->value == 0 || (a->value >= RATE_MIN && a->value <= RATE_MAX);
        case POLICY_ACTION_stream_priority:
                return a->value <= PRIORITY_MAX;
        default:
                return false;
        }
}

static bool is_about_memory(uint32_t kind)
{
        return kind >= POLICY_ACTION_migrate && kind <= POLICY_ACTION_read_duplicate;
}

/*
 * Members an action has no use for must not tell apart what is the same. Channel groups are those
 * on the policy's GPU, where it is loaded for one.
 */
static void tidy(const struct policy *p, struct policy_action *a)
{
        if (!is_about_memory(a->kind))
                a->address = a->bytes = 0;
        if (!is_about_memory(a->kind) && !(claim_has_groups(a->kind) && names_gpu(a)))
                a->to = 0;
        if (claim_has_groups(a->kind) && !a->to && p->options.has_gpu)
                a->to = POLICY_ON_GPU(p->options.gpu);
        if (a->kind == POLICY_ACTION_read_duplicate || a->kind == POLICY_ACTION_discard)
                a->to = 0;
        if (a->kind <= POLICY_ACTION_prefer || a->kind == POLICY_ACTION_preempt)
                a->value = 0;
}

/* To whole pages of one allocation. */
static bool clip(const struct target *t, struct policy_action *a)
{
        uint64_t start = a->address & ~(PAGE_BYTES - 1);
        uint64_t bytes = (a->address - start + a->bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);

        if (!target_clip(t, start, bytes, &start, &bytes))
                return false;
        a->address = start;
        a->bytes = bytes;
        return true;
}

/* ---- budget, conflicts ---- */

static bool may_spend(struct policy_engine *e, struct policy *p, const struct policy_action *a)
{
        struct usage *usage = usage_now(p, e->now_ns);
        struct policy_limits *used = &usage->used;
        bool moves = a->kind == POLICY_ACTION_migrate;

        if (used->actions >= p->options.limits.actions ||
            (moves && used->bytes + a->bytes > p->options.limits.bytes)) {
                usage->exceeded = true;
                return false;
        }
        used->actions++;
        used->bytes += moves ? a->bytes : 0;
        return true;
}

static enum claim_answer take_claim(struct policy_engine *e, const struct policy *p,
                                    const struct policy_action *a)
{
        bool stays = claim_is_setting(a->kind) && !undo_takes_back(a);
        struct claim c = {
                .process = a->process,
                .start = a->address,
                .end = a->address + a->bytes,
                .until_ns = stays ? CLAIM_FOREVER : e->now_ns + CLAIM_HOLD_NS,
                .value = a->value,
                .policy = p->id,
                .precedence = p->options.precedence,
                .kind = a->kind,
                .to = a->to,
        };

        return claims_take(&e->claims, &c, e->now_ns);
}

/* With one policy there is nobody to contradict. What it overrides is taken back, and kept. */
static bool claim(struct policy_engine *e, struct policy *p, const struct policy_action *a,
                  struct setting_list *displaced)
{
        enum claim_answer answer;

        if (e->policy_count < 2)
                return true;
        answer = take_claim(e, p, a);
        if (answer == CLAIM_OVERRIDES) {
                p->stats.overrode++;
                undo_overridden(e, p->id, a, displaced);
        }
        return answer != CLAIM_OVERRULED;
}

static void claim_of(struct policy_engine *e, uint32_t policy, const struct policy_action *a)
{
        const struct policy *p = engine_policy(e, policy);

        if (p && claim_is_setting(a->kind))
                (void)take_claim(e, p, a);
}

/* It came to nothing: others may have their way; what is in force about the same still holds. */
static void unclaim(struct policy_engine *e, const struct policy *p, const struct policy_action *a)
{
        claims_drop_action(&e->claims, p->id, a);
        for (size_t i = 0; i < e->settings.count; i++)
                if (undo_overlaps(&e->settings.list[i].action, a))
                        claim_of(e, e->settings.list[i].policy, &e->settings.list[i].action);
}

void decide_claim_all(struct policy_engine *e)
{
        struct waiting *w, *next;

        claims_done(&e->claims);
        for (size_t i = 0; i < e->settings.count; i++)
                claim_of(e, e->settings.list[i].policy, &e->settings.list[i].action);
        HASH_ITER (hh, e->orders, w, next)
                if (!w->undo)
                        claim_of(e, w->policy, &w->action);
}

/* ---- orders ---- */

void order_not_undone(struct policy_engine *e, const struct waiting *w, int error)
{
        struct policy *p = engine_policy(e, w->policy);

        if (p)
                p->stats.not_undone++;
        if (e->ops->not_undone)
                e->ops->not_undone(e->data, w->owner, &w->action, error);
}

/* Takes w over; on failure it is the caller's again. */
static bool give(struct policy_engine *e, const struct target *t, struct waiting *w)
{
        struct policy_order o = {.id = e->next_order++,
                                 .start_ticks = t->start_ticks,
                                 .pid = t->pid,
                                 .gpu = t->gpu,
                                 .undo = w->undo,
                                 .noted = w->noted,
                                 .action = w->action};

        w->id = o.id;
        memcpy(o.owner, w->owner, sizeof(o.owner));
        HASH_ADD(hh, e->orders, id, sizeof(w->id), w);
        if (e->ops->submit(e->data, &o))
                return true;
        HASH_DEL(e->orders, w);
        return false;
}

/* NULL on no memory. */
static struct waiting *copy(const struct waiting *what)
{
        struct waiting *w = malloc(sizeof(*w));

        if (w)
                *w = *what;
        return w;
}

bool order_submit(struct policy_engine *e, const struct target *t, const struct waiting *what)
{
        struct waiting *w = e->backlog ? NULL : copy(what);

        if (!w)
                return false;
        if (give(e, t, w))
                return true;
        free(w);
        return false;
}

bool order_backlog(struct policy_engine *e)
{
        struct waiting *w;
        bool any = false;

        if (e->draining)
                return false;
        e->draining = true;
        while ((w = e->backlog)) {
                const struct target *t = targets_find(&e->targets, w->action.process);

                DL_DELETE(e->backlog, w);
                if (t && !give(e, t, w)) {
                        DL_PREPEND(e->backlog, w);
                        break;
                }
                any = true;
                if (!t)
                        waiting_free(w); /* the process is gone, and what was set with it */
        }
        e->draining = false;
        return any;
}

void order_surely(struct policy_engine *e, const struct waiting *what)
{
        struct waiting *w = copy(what);

        if (!w) {
                order_not_undone(e, what, -ENOMEM);
                return;
        }
        DL_APPEND(e->backlog, w);
        (void)order_backlog(e);
}

/* What came to nothing had displaced this: it is in force again, or else its policy is told. */
static void restore(struct policy_engine *e, const struct setting *s)
{
        const struct target *t = targets_find(&e->targets, s->action.process);
        struct policy *p = engine_policy(e, s->policy);
        struct waiting w = {
                .policy = s->policy, .renewal = true, .restore = true, .action = s->action};

        if (!p || p->state != POLICY_ACTIVE || !t)
                return;
        memcpy(w.owner, s->owner, sizeof(w.owner));
        if (take_claim(e, p, &s->action) != CLAIM_OVERRULED && order_submit(e, t, &w))
                return;
        p->stats.unrenewed++;
        p->has_lost = true;
}

static void restore_all(struct policy_engine *e, struct setting_list *displaced)
{
        for (size_t i = 0; i < displaced->count; i++)
                restore(e, &displaced->list[i]);
        free(displaced->list);
        *displaced = (struct setting_list){0};
}

static bool order(struct policy_engine *e, struct policy *p, const struct target *t,
                  const struct policy_action *a, const struct setting_list *displaced)
{
        struct waiting w = {.policy = p->id,
                            .retried = e->tells_refused,
                            .action = *a,
                            .displaced = *displaced};

        if (HASH_COUNT(e->orders) >= ORDERS_MAX)
                return false;
        memcpy(w.owner, p->name, sizeof(w.owner));
        /* Counted before: an actuator may have the result at once. */
        p->stats.waiting++;
        if (a->kind == POLICY_ACTION_migrate)
                moves_ordered(&e->moves, p->id, a, e->now_ns);
        if (order_submit(e, t, &w))
                return true;
        p->stats.waiting--;
        return false;
}

/* ---- taking back ---- */

/* What the policy claims beside what it has just taken back. */
static void reclaim(struct policy_engine *e, const struct policy *p, const struct policy_action *a)
{
        struct waiting *w, *next;

        claims_drop_setting(&e->claims, p->id, a->process, a->kind);
        if (e->policy_count < 2)
                return;
        for (size_t i = 0; i < e->settings.count; i++)
                if (e->settings.list[i].policy == p->id &&
                    e->settings.list[i].action.process == a->process)
                        claim_of(e, p->id, &e->settings.list[i].action);
        HASH_ITER (hh, e->orders, w, next) {
                if (w->policy == p->id && !w->undo && !w->revoked &&
                    w->action.process == a->process)
                        claim_of(e, p->id, &w->action);
        }
}

/* "Back to what it was" is what the engine remembers; nothing remembered: it is so already. */
static bool takes_value_back(const struct policy_action *a)
{
        return claim_has_value(a->kind) && a->value == 0;
}

/* The order to set the same thing that was given last and waits; NULL: none. */
static struct waiting *latest_waiting(struct policy_engine *e, const struct policy *p,
                                      const struct policy_action *a)
{
        struct waiting *w, *next, *latest = NULL;

        if (!p->stats.waiting || !claim_is_setting(a->kind))
                return NULL;
        HASH_ITER (hh, e->orders, w, next) {
                if (w->policy == p->id && !w->undo && !w->renewal && !undo_takes_back(&w->action) &&
                    undo_is_same_thing(&w->action, a) && (!latest || w->id > latest->id))
                        latest = w;
        }
        return latest;
}

bool decide_is_to_come(struct policy_engine *e, const struct policy *p,
                       const struct policy_action *a)
{
        return latest_waiting(e, p, a);
}

/* Of each thing the order that was given last. Whether there was any. */
static bool revoke_waiting(struct policy_engine *e, const struct policy *p,
                           const struct policy_action *a)
{
        struct waiting *w, *next;
        bool any = false;

        if (!p->stats.waiting)
                return false;
        HASH_ITER (hh, e->orders, w, next) {
                if (w->policy == p->id && undo_covers(a, &w->action) &&
                    latest_waiting(e, p, &w->action) == w)
                        w->revoked = any = true;
        }
        return any;
}

/*
 * What the policy has in force it may take back whatever its budget: it was paid for. What is to
 * come into force yet is set back when it has, unless another order comes after it.
 */
static bool take_back(struct policy_engine *e, struct policy *p, const struct policy_action *a)
{
        bool revoked = undo_takes_back(a) && revoke_waiting(e, p, a);
        size_t undone = undo_takes_back(a) ? undo_setting(e, p, a) : 0;

        p->stats.undone += undone;
        return revoked || undone;
}

/* POLICY_REFUSED_COUNT: ordered, or taken back. */
static enum policy_refusal consider(struct policy_engine *e, struct policy *p,
                                    struct policy_action *a)
{
        const struct target *t = targets_find(&e->targets, a->process);
        struct setting_list displaced = {0};

        if (!t)
                return POLICY_REFUSED_gone;
        if (!engine_in_scope(p, t))
                return POLICY_REFUSED_foreign;
        if (!is_sane(a, t))
                return POLICY_REFUSED_nonsense;
        if (a->kind == POLICY_ACTION_discard && !p->options.may_discard)
                return POLICY_REFUSED_not_allowed;
        tidy(p, a);
        if (is_about_memory(a->kind) && !clip(t, a))
                return POLICY_REFUSED_not_managed;
        if (!engine_in_reach(p, t, a))
                return POLICY_REFUSED_foreign;
        if (take_back(e, p, a)) {
                reclaim(e, p, a);
                p->stats.done++;
                return POLICY_REFUSED_COUNT;
        }
        if (!may_spend(e, p, a))
                return POLICY_REFUSED_over_budget;
        if (takes_value_back(a)) {
                reclaim(e, p, a);
                p->stats.done++;
                return POLICY_REFUSED_COUNT;
        }
        if (!claim(e, p, a, &displaced))
                return POLICY_REFUSED_overruled;
        if (order(e, p, t, a, &displaced))
                return POLICY_REFUSED_COUNT;
        unclaim(e, p, a);
        restore_all(e, &displaced);
        return POLICY_REFUSED_queue_full;
}

void decide(void *engine, const struct policy_action *action)
{
        struct policy_engine *e = engine;
        struct policy *p = e->running;
        enum policy_refusal refusal;
        struct policy_action a;

        p->stats.asked++;
        if (!action) {
                p->stats.refused[POLICY_REFUSED_nonsense]++;
                return;
        }
        a = *action;
        refusal = consider(e, p, &a);
        if (refusal == POLICY_REFUSED_COUNT)
                return;
        p->stats.refused[refusal]++;
        dispatch_refused(e, p, &a, refusal, e->tells_refused);
}

/* ---- results ---- */

static enum policy_refusal refusal_of(int error)
{
        switch (error) {
        case -ESRCH:
        case -ESTALE:
                return POLICY_REFUSED_gone;
        case -EBUSY: /* advice that another policy, or the application itself, has given */
                return POLICY_REFUSED_overruled;
        case -ENOSPC:
                return POLICY_REFUSED_no_room;
        case -ENODATA:
                return POLICY_REFUSED_not_known;
        case -EOPNOTSUPP:
                return POLICY_REFUSED_unsupported;
        case -EINPROGRESS:
                return POLICY_REFUSED_stuck;
        default:
                return POLICY_REFUSED_failed;
        }
}

static void count(struct policy_engine *e, struct policy *p, const struct waiting *w,
                  const struct policy_result *result)
{
        p->stats.waiting--;
        if (result->error < 0) {
                p->stats.refused[refusal_of(result->error)]++;
                dispatch_refused(e, p, &w->action, refusal_of(result->error), w->retried);
                return;
        }
        p->stats.done++;
        p->stats.bytes += result->bytes;
        p->stats.missed += result->missed;
}

/* A process that has ended has nothing left to set. */
static void count_renewal(struct policy *p, const struct policy_result *result)
{
        p->stats.missed += result->missed;
        if (result->error == 0)
                p->stats.renewed++;
        else if (refusal_of(result->error) != POLICY_REFUSED_gone)
                p->stats.unrenewed++;
}

static void count_undo(struct policy_engine *e, const struct waiting *w,
                       const struct policy_result *result)
{
        /* -EFAULT: the memory has been freed meanwhile. */
        if (result->error < 0 && result->error != -EFAULT &&
            refusal_of(result->error) != POLICY_REFUSED_gone)
                order_not_undone(e, w, result->error);
}

static bool comes_into_force(const struct waiting *w)
{
        return !w->undo && (!w->renewal || w->restore) && claim_is_setting(w->action.kind);
}

static bool is_wanted(const struct policy_engine *e, const struct policy *p,
                      const struct policy_action *a)
{
        const struct target *t = targets_find(&e->targets, a->process);

        return p->state == POLICY_ACTIVE && (!t || engine_in_reach(p, t, a));
}

/* p NULL: unloaded meanwhile. */
static void come_into_force(struct policy_engine *e, const struct policy *p, struct waiting *w,
                            uint64_t before)
{
        if (p && is_wanted(e, p, &w->action)) {
                undo_remember(e, p, &w->action, before);
                return;
        }
        undo_action(e, w->policy, w->owner, &w->action, before);
        restore_all(e, &w->displaced);
}

static void fail(struct policy_engine *e, struct policy *p, struct waiting *w)
{
        if (p && (!w->renewal || w->restore))
                unclaim(e, p, &w->action);
        if (p && w->restore)
                p->has_lost = true;
        restore_all(e, &w->displaced);
}

/* Once: what is in force already is renewed the next time, and goes with its policy. */
static void set_back_part(struct policy_engine *e, const struct waiting *w)
{
        if (w->renewal && !w->restore)
                return;
        undo_action(e, w->policy, w->owner, &w->action, 0);
        undo_renew(e, &w->action);
}

/* What was taken back before it came into force goes when nothing that was asked for since waits.
 */
static void set_back_revoked(struct policy_engine *e, struct policy *p, const struct waiting *w)
{
        struct setting *s = undo_in_force(e, p->id, &w->action);

        if (!s)
                return;
        s->revoked = s->revoked || w->revoked;
        if (s->revoked && !latest_waiting(e, p, &w->action))
                p->stats.undone += undo_setting(e, p, &w->action);
}

void policy_engine_done(struct policy_engine *e, const struct policy_result *result)
{
        struct waiting *w;
        struct policy *p;

        if (result->late) {
                stuck_returned(e, result);
                return;
        }
        HASH_FIND(hh, e->orders, &result->id, sizeof(result->id), w);
        if (!w)
                return;
        HASH_DEL(e->orders, w);
        p = w->undo ? NULL : engine_policy(e, w->policy);
        if (w->undo)
                count_undo(e, w, result);
        else if (p && w->renewal)
                count_renewal(p, result);
        else if (p)
                count(e, p, w, result);
        if (!w->undo && result->in_part)
                set_back_part(e, w);
        if (!w->undo && result->error < 0)
                fail(e, p, w);
        else if (comes_into_force(w))
                come_into_force(e, p, w, result->before);
        if (p && !w->renewal && claim_is_setting(w->action.kind))
                set_back_revoked(e, p, w);
        if (w->again)
                undo_renew_slices(e, w->action.process, w->again_to);
        if (!stuck_keep(e, w, result))
                waiting_free(w);
        (void)order_backlog(e);
}
