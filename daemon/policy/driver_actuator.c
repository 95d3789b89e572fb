/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/driver_actuator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/macro.h"

/* What plan() leaves for perform(). */
struct plan {
        bool is_memory;
        union {
                struct uvm_plan memory;
                struct {
                        struct tsg_target *list;
                        size_t count, beyond;
                } groups;
        };
};
_Static_assert(sizeof(struct plan) <= WORKER_PLAN_BYTES, "room for a plan");

DEFINE_CLEANUP(struct tsg *, tsg_close)

int actuator_process_add(struct actuator_process *p, const struct tsg_target *group)
{
        size_t room = p->group_room ? 2 * p->group_room : 8;
        struct tsg_target *grown;

        if (p->group_count == ACTUATOR_GROUPS_MAX) {
                p->groups_beyond++;
                return 0;
        }
        if (p->group_count == p->group_room) {
                grown = reallocarray(p->groups, room, sizeof(*grown));
                if (!grown)
                        return -ENOMEM;
                p->groups = grown;
                p->group_room = room;
        }
        p->groups[p->group_count++] = *group;
        return 0;
}

/* ---- managed memory ---- */

/* UVM_OP_COUNT: not an action about memory. */
static enum uvm_op op_of(const struct policy_action *a)
{
        switch (a->kind) {
        case POLICY_ACTION_migrate:
                return UVM_OP_MIGRATE;
        case POLICY_ACTION_discard:
                return UVM_OP_DISCARD;
        case POLICY_ACTION_prefer:
                return a->to == POLICY_NOWHERE ? UVM_OP_UNPREFER : UVM_OP_PREFER;
        case POLICY_ACTION_accessed_by:
                return a->value ? UVM_OP_ACCESSED_BY : UVM_OP_NOT_ACCESSED_BY;
        case POLICY_ACTION_read_duplicate:
                return a->value ? UVM_OP_DUPLICATE : UVM_OP_NOT_DUPLICATE;
        default:
                return UVM_OP_COUNT;
        }
}

/* Whether the action names a GPU. */
static bool needs_gpu(enum uvm_op op, const struct policy_action *a)
{
        return a->to != POLICY_HOST && (op == UVM_OP_MIGRATE || op == UVM_OP_PREFER ||
                                        op == UVM_OP_ACCESSED_BY || op == UVM_OP_NOT_ACCESSED_BY);
}

static int plan_memory(const struct driver_actuator_options *o, const struct policy_order *order,
                       const struct actuator_process *p, enum uvm_op op, struct uvm_plan *ret_plan)
{
        struct uvm_request request = {
                .op = op,
                .pid = (pid_t)order->pid,
                .start_ticks = order->start_ticks,
                .address = order->action.address,
                .bytes = order->action.bytes,
                .to_cpu = order->action.to == POLICY_HOST,
        };

        if (!o->uvm)
                return -EOPNOTSUPP;
        if (!p->allocations ||
            (needs_gpu(op, &order->action) && o->gpu(o->data, order->action.to, request.gpu) < 0))
                return -ENODATA;
        snprintf(request.owner, sizeof(request.owner), "%s", order->owner);
        return -uvm_op_error_number(uvm_ops_plan(o->uvm, p->allocations, &request, ret_plan));
}

static void perform_memory(const struct driver_actuator_options *o, const struct uvm_plan *plan,
                           struct policy_result *result)
{
        struct uvm_outcome outcome;

        uvm_ops_run(o->uvm, plan, &outcome);
        result->error = -uvm_op_error_number(outcome.error);
        if (plan->request.op == UVM_OP_MIGRATE)
                result->bytes = outcome.bytes;
}

/* ---- time slices ---- */

static struct tsg_target target_of(const struct undo_entry *e)
{
        return (struct tsg_target){.pid = e->pid,
                                   .start_ticks = e->start_ticks,
                                   .fd = (int)e->values[3],
                                   .client = (uint32_t)e->values[0],
                                   .object = (uint32_t)e->values[1]};
}

static bool is_of_group(const struct undo_entry *e, const struct tsg_target *t)
{
        return e->kind == UNDO_TIME_SLICE && e->pid == t->pid && e->start_ticks == t->start_ticks &&
               e->values[0] == t->client && e->values[1] == t->object;
}

/* The journal's entries, to be freed; NULL on no memory. */
static struct undo_entry *list_journal(const struct driver_actuator_options *o, size_t *ret_count)
{
        struct undo_entry *entries = calloc(UNDO_ENTRIES_MAX, sizeof(*entries));
        size_t n = entries ? undo_journal_list(o->journal, entries, UNDO_ENTRIES_MAX) : 0;

        *ret_count = n < UNDO_ENTRIES_MAX ? n : UNDO_ENTRIES_MAX;
        return entries;
}

static const struct undo_entry *find_noted(const struct undo_entry *entries, size_t n,
                                           const struct tsg_target *t)
{
        for (size_t i = 0; i < n; i++)
                if (is_of_group(&entries[i], t))
                        return &entries[i];
        return NULL;
}

static bool means_gone(int error)
{
        return error == -ESRCH || error == -EBADF || error == -ENODEV || error == -ENOENT;
}

static bool is_gone(const struct driver_actuator_options *o, const struct undo_entry *e)
{
        const struct tsg_target target = target_of(e);
        _cleanup_(tsg_closep) struct tsg *t = NULL;
        uint64_t now_us;
        int r = tsg_open(o->tsg, &target, &t);

        if (r == 0)
                r = tsg_get_timeslice(t, &now_us);
        return means_gone(r);
}

/* In a journal that is full: what groups had that the process has freed since. */
static void forget_gone(const struct driver_actuator_options *o, const struct undo_entry *entries,
                        size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (entries[i].kind == UNDO_TIME_SLICE && is_gone(o, &entries[i]))
                        (void)undo_journal_done(o->journal, entries[i].id);
}

/*
 * What the slice was before the first policy came is noted once: whoever is the
 * last to go sets that back. What the process has set itself since takes its place; both
 * are in the journal for a moment, and the later one is set back last.
 */
static int note_slice(const struct driver_actuator_options *o, const struct policy_order *order,
                      const struct tsg_target *t, uint64_t before_us)
{
        _cleanup_free_ struct undo_entry *entries = NULL;
        struct undo_entry entry = {
                .kind = UNDO_TIME_SLICE,
                .pid = t->pid,
                .start_ticks = t->start_ticks,
                .values = {t->client, t->object, t->slice_us ? t->slice_us : before_us,
                           (uint64_t)t->fd},
        };
        const struct undo_entry *noted;
        size_t n;
        int r;

        entries = list_journal(o, &n);
        if (!entries)
                return -ENOMEM;
        noted = find_noted(entries, n, t);
        if (noted && (!t->slice_us || noted->values[2] == t->slice_us))
                return 0;
        snprintf(entry.owner, sizeof(entry.owner), "%s", order->owner);
        r = undo_journal_add(o->journal, &entry, &entry.id);
        if (r == -ENOSPC) {
                forget_gone(o, entries, n);
                r = undo_journal_add(o->journal, &entry, &entry.id);
        }
        if (r == 0 && noted)
                (void)undo_journal_done(o->journal, noted->id);
        return r == -ENOSPC ? -EIO : r; /* no room on a GPU is something else */
}

static int set_slice(const struct driver_actuator_options *o, const struct policy_order *order,
                     const struct tsg_target *target, uint64_t *ret_before_us)
{
        _cleanup_(tsg_closep) struct tsg *t = NULL;
        uint64_t before_us, now_us;
        int r;

        r = tsg_open(o->tsg, target, &t);
        if (r == 0)
                r = tsg_get_timeslice(t, &before_us);
        if (r == 0)
                r = note_slice(o, order, target, before_us);
        if (r == 0)
                r = tsg_set_timeslice(t, order->action.value, &now_us);
        /* It read back another: what counts as failed is not left in force. */
        if (r == -EPROTO)
                (void)tsg_set_timeslice(t, before_us, &now_us);
        if (r == 0)
                *ret_before_us = before_us;
        return r;
}

/* 0; -ESRCH, -EBADF, -ENOENT: there is nothing to set back any more; other -errno. */
static int set_slice_back(const struct driver_actuator_options *o, const struct undo_entry *e)
{
        const struct tsg_target target = target_of(e);
        _cleanup_(tsg_closep) struct tsg *t = NULL;
        uint64_t now_us;
        int r = tsg_open(o->tsg, &target, &t);

        return r < 0 ? r : tsg_set_timeslice(t, e->values[2], &now_us);
}

/* Those of one process; pid 0: all. */
static void undo_slices(const struct driver_actuator_options *o, pid_t pid, uint64_t start_ticks,
                        struct actuator_undone *ret_undone)
{
        _cleanup_free_ struct undo_entry *entries = NULL;
        size_t n;

        *ret_undone = (struct actuator_undone){0};
        entries = list_journal(o, &n);
        ret_undone->failed = !entries;
        for (size_t i = 0; i < n; i++) {
                const struct undo_entry *e = &entries[i];
                int r;

                if (e->kind != UNDO_TIME_SLICE ||
                    (pid && (e->pid != pid || e->start_ticks != start_ticks)))
                        continue;
                r = set_slice_back(o, e);
                if (r < 0 && !means_gone(r)) {
                        ret_undone->failed++;
                        continue;
                }
                ret_undone->undone += r == 0;
                ret_undone->gone += r < 0;
                (void)undo_journal_done(o->journal, e->id);
        }
}

void driver_actuator_undo_slices(const struct driver_actuator_options *o,
                                 struct actuator_undone *ret_undone)
{
        undo_slices(o, 0, 0, ret_undone);
}

void driver_actuator_forget(const struct driver_actuator_options *o, pid_t pid,
                            uint64_t start_ticks)
{
        _cleanup_free_ struct undo_entry *entries = NULL;
        size_t n;

        entries = list_journal(o, &n);
        for (size_t i = 0; i < n; i++)
                if (entries[i].kind == UNDO_TIME_SLICE && entries[i].pid == pid &&
                    entries[i].start_ticks == start_ticks)
                        (void)undo_journal_done(o->journal, entries[i].id);
}

static int preempt(const struct driver_actuator_options *o, const struct tsg_target *target)
{
        _cleanup_(tsg_closep) struct tsg *t = NULL;
        int r = tsg_open(o->tsg, target, &t);

        return r < 0 ? r : tsg_preempt(t, 0);
}

static void perform_groups(const struct driver_actuator_options *o,
                           const struct policy_order *order, const struct plan *plan,
                           struct policy_result *result)
{
        uint64_t before_us = 0;
        int r, error = -ENODATA; /* no channel group is known */
        uint32_t failed = 0;
        bool done = false;

        for (size_t i = 0; i < plan->groups.count; i++) {
                const struct tsg_target *group = &plan->groups.list[i];

                r = order->action.kind == POLICY_ACTION_preempt
                            ? preempt(o, group)
                            : set_slice(o, order, group, &before_us);
                if (r == 0 && !done)
                        result->before = before_us;
                done = done || r == 0;
                if (r < 0 && !means_gone(r))
                        failed++;
                if (r < 0 && (!failed || !means_gone(r)))
                        error = r;
        }
        /*
         * A group that has gone meanwhile is no failure as long as another one is there. What was
         * set in part is in force, so that it is set back with the rest.
         */
        result->error = done ? 0 : error;
        result->missed = done ? failed + (uint32_t)plan->groups.beyond : 0;
}

/* ---- the two halves of an order ---- */

static bool is_slice_undo(const struct policy_order *order)
{
        return order->undo && order->action.kind == POLICY_ACTION_time_slice;
}

static void process_done(struct actuator_process *p)
{
        free(p->groups);
}

static int plan(void *data, const struct policy_order *order, void *ret_plan)
{
        const struct driver_actuator_options *o = data;
        enum uvm_op op = op_of(&order->action);
        _cleanup_(process_done) struct actuator_process process = {0};
        struct plan *p = ret_plan;
        int r;

        if (order->action.kind >= POLICY_ACTION_pace)
                return -EOPNOTSUPP;
        r = o->process(o->data, order->pid, order->start_ticks, &process);
        if (r < 0)
                return r;
        p->is_memory = op != UVM_OP_COUNT;
        if (p->is_memory)
                return plan_memory(o, order, &process, op, &p->memory);
        if (!o->journal || !o->tsg)
                return -EOPNOTSUPP;
        p->groups.list = TAKE_PTR(process.groups);
        p->groups.count = process.group_count;
        p->groups.beyond = process.groups_beyond;
        return 0;
}

static void perform(void *data, const struct policy_order *order, const void *planned,
                    struct policy_result *result)
{
        const struct driver_actuator_options *o = data;
        const struct plan *p = planned;
        struct actuator_undone undone;

        if (p->is_memory) {
                perform_memory(o, &p->memory, result);
        } else if (is_slice_undo(order)) {
                undo_slices(o, (pid_t)order->pid, order->start_ticks, &undone);
                result->error = undone.failed ? -EIO : 0;
        } else {
                perform_groups(o, order, p, result);
        }
}

static void release(void *data, void *planned)
{
        struct plan *p = planned;

        if (!p->is_memory)
                free(p->groups.list);
}

const struct policy_worker_ops driver_actuator_ops = {
        .plan = plan, .perform = perform, .release = release};
