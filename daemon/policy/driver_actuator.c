/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/driver_actuator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/claims.h"
#include "policy/group_actuator.h"
#include "policy/group_notes.h"
#include "util/macro.h"

/* What plan() leaves for perform(). */
struct plan {
        bool is_memory;
        union {
                struct uvm_plan memory;
                struct group_choice groups;
        };
};
_Static_assert(sizeof(struct plan) <= WORKER_PLAN_BYTES, "room for a plan");

int actuator_process_add(struct actuator_process *p, const struct tsg_target *group)
{
        size_t room = p->group_room ? 2 * p->group_room : 8;
        struct tsg_target *grown;

        if (p->gpu && group_actuator_is_known(group->gpu) &&
            memcmp(p->gpu, group->gpu, sizeof(group->gpu)) != 0)
                return 0;
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
        result->in_part = outcome.in_part;
        if (plan->request.op == UVM_OP_MIGRATE)
                result->bytes = outcome.bytes;
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

/* The GPU that the order is about; false: that is not known. */
static bool find_gpu(const struct driver_actuator_options *o, const struct policy_action *a,
                     struct group_choice *choice)
{
        choice->has_gpu = claim_has_groups(a->kind) && a->to;
        return !choice->has_gpu || o->gpu(o->data, claim_gpu(a), choice->gpu) == 0;
}

static int plan_groups(const struct driver_actuator_options *o, const struct policy_order *order,
                       struct actuator_process *process, struct group_choice *choice)
{
        if (o->notes)
                choice->process =
                        group_notes_watch(o->notes, (pid_t)order->pid, order->start_ticks);
        if (o->notes && !choice->process)
                return -ENOMEM;
        choice->list = TAKE_PTR(process->groups);
        choice->count = process->group_count;
        choice->beyond = process->groups_beyond;
        if (order->action.kind == POLICY_ACTION_time_slice && !order->undo)
                group_actuator_note(o, order, choice);
        return 0;
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
        p->is_memory = op != UVM_OP_COUNT;
        if (!p->is_memory && !find_gpu(o, &order->action, &p->groups))
                return -ENODATA;
        process.gpu = !p->is_memory && p->groups.has_gpu ? p->groups.gpu : NULL;
        r = o->process(o->data, order->pid, order->start_ticks, &process);
        if (r < 0)
                return r;
        if (p->is_memory)
                return plan_memory(o, order, &process, op, &p->memory);
        if (!o->journal || !o->tsg)
                return -EOPNOTSUPP;
        return plan_groups(o, order, &process, &p->groups);
}

static void perform(void *data, const struct policy_order *order, const void *planned,
                    struct policy_result *result)
{
        const struct driver_actuator_options *o = data;
        const struct plan *p = planned;

        if (p->is_memory) {
                perform_memory(o, &p->memory, result);
        } else if (is_slice_undo(order)) {
                result->error = group_actuator_undo(o, (pid_t)order->pid, order->start_ticks,
                                                    p->groups.has_gpu ? p->groups.gpu : NULL);
        } else {
                group_actuator_perform(o, order, &p->groups, result);
        }
}

static void release(void *data, void *planned)
{
        const struct driver_actuator_options *o = data;
        struct plan *p = planned;

        if (!p->is_memory)
                group_actuator_release(o, &p->groups);
}

const struct policy_worker_ops driver_actuator_ops = {
        .plan = plan, .perform = perform, .release = release};
