/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Orders whose call of the driver does not return. The policy was told that it failed; if it takes
 * effect after all, that is set back. What was to be set back in the process meanwhile, and was
 * not as other calls for it would wait as well, is set back then, too; and with it what was noted
 * of its time slices for orders that were refused.
 */
#include <errno.h>
#include <utlist.h>

#include "policy/internal.h"

static void say(struct policy_engine *e, const struct waiting *w, bool returned)
{
        const struct target *t = targets_find(&e->targets, w->action.process);

        if (t && e->ops->stuck)
                e->ops->stuck(e->data, w->owner, &w->action, t->pid, returned);
}

static bool is_parked(const struct policy_engine *e, const struct policy_action *slice)
{
        const struct waiting *w;

        DL_FOREACH(e->parked, w)
        {
                if (w->undo && undo_covers(&w->action, slice))
                        return true;
        }
        return false;
}

/* It was noted before it was refused, and nothing would take the note out. */
static bool is_noted(const struct policy_engine *e, const struct waiting *w)
{
        return w->action.kind == POLICY_ACTION_time_slice && !is_parked(e, &w->action);
}

static void make_undo(struct waiting *w)
{
        w->undo = w->noted = w->again = true;
        w->again_to = w->action.to;
        w->renewal = w->restore = false;
}

bool stuck_keep(struct policy_engine *e, struct waiting *w, const struct policy_result *result)
{
        if (result->given_up) {
                DL_APPEND(e->stuck, w);
                say(e, w, false);
                return true;
        }
        if (result->error != -EINPROGRESS || (!w->undo && !is_noted(e, w)))
                return false;
        if (!w->undo)
                make_undo(w);
        DL_APPEND(e->parked, w);
        return true;
}

static struct waiting *take_stuck(struct policy_engine *e, uint64_t id)
{
        struct waiting *w;

        DL_SEARCH_SCALAR(e->stuck, w, id, id);
        if (w)
                DL_DELETE(e->stuck, w);
        return w;
}

static bool is_stuck(const struct policy_engine *e, uint64_t process)
{
        const struct waiting *w;

        DL_SEARCH_SCALAR(e->stuck, w, action.process, process);
        return w;
}

/*
 * They had been told of as not undone. The call may have been about another process than its
 * order: all go whose own does not hang.
 */
static void unpark(struct policy_engine *e)
{
        struct waiting *w, *next, *free_ones = NULL;

        DL_FOREACH_SAFE(e->parked, w, next)
        {
                if (is_stuck(e, w->action.process))
                        continue;
                DL_DELETE(e->parked, w);
                DL_APPEND(free_ones, w);
        }
        DL_FOREACH_SAFE(free_ones, w, next)
        {
                DL_DELETE(free_ones, w);
                order_surely(e, w);
                undo_renew(e, &w->action);
                waiting_free(w);
        }
}

/* Policies that were refused for it may ask again. */
static void let_ask_again(struct policy_engine *e)
{
        struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                if (p->state == POLICY_ACTIVE && p->stats.refused[POLICY_REFUSED_stuck])
                        p->has_lost = true;
        }
}

void stuck_returned(struct policy_engine *e, const struct policy_result *result)
{
        struct waiting *w = take_stuck(e, result->id);

        if (!w)
                return;
        say(e, w, true);
        if (targets_find(&e->targets, w->action.process)) {
                if ((result->error == 0 || result->in_part) && !w->undo &&
                    claim_is_setting(w->action.kind) && !undo_takes_back(&w->action)) {
                        undo_action(e, w->policy, w->owner, &w->action, result->before);
                        undo_renew(e, &w->action);
                }
        }
        unpark(e);
        let_ask_again(e);
        waiting_free(w);
}

void stuck_forget_process(struct policy_engine *e, uint64_t process)
{
        struct waiting *w, *next;

        DL_FOREACH_SAFE(e->parked, w, next)
        {
                if (w->action.process != process)
                        continue;
                DL_DELETE(e->parked, w);
                waiting_free(w);
        }
}
