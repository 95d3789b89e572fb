/* SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"

#include <stdlib.h>

#include "agent/launch_abi.h"
#include "daemon.h"
#include "driver/uvm_process.h"
#include "managed.h"
#include "policies.h"
#include "policies/policy_abi.h"
#include "probe/argument_ring.h"
#include "util/time.h"

_Static_assert(UVM_ALLOCATIONS_MAX <= AGENT_ARGUMENT_RANGES, "all allocations fit into the table");

struct arguments {
        struct agent_launch_wishes *wishes;
        struct argument_ring ring;
        struct argument_ring_losses seen; /* already in the ledger */
        bool is_wanted;
        bool is_changed; /* the process's table is not up to date */
        /* What is being gathered for one run of the policies. */
        struct policy_range ranges[POLICY_ITEMS_MAX];
        size_t range_count;
        uint32_t launches;
        struct agent_argument last; /* the record before */
};

struct arguments *arguments_new(struct agent_launch_wishes *wishes, struct agent_argument_map *map)
{
        struct arguments *a = calloc(1, sizeof(*a));

        if (!a)
                return NULL;
        a->wishes = wishes;
        a->is_changed = true;
        argument_ring_init(&a->ring, map);
        return a;
}

struct arguments *arguments_free(struct arguments *a)
{
        if (!a)
                return NULL;
        __atomic_store_n(&a->wishes->arguments, 0, __ATOMIC_RELEASE);
        free(a);
        return NULL;
}

void arguments_memory_changed(struct observed *o)
{
        if (o->arguments)
                o->arguments->is_changed = true;
}

/* ---- what came ---- */

static void tell(struct gpuobsd *d, struct observed *o)
{
        struct arguments *a = o->arguments;

        if (a->range_count)
                policies_arguments(d, o, a->last.device, a->launches, a->ranges, a->range_count);
        a->range_count = 0;
        a->launches = 0;
}

static bool is_same_launch(const struct agent_argument *one, const struct agent_argument *other)
{
        return one->at_ns == other->at_ns && one->func == other->func &&
               one->device == other->device;
}

/* From where it points to, to the end of the allocation: see policy_abi.h. */
static void add(struct observed *o, const struct agent_argument *r, uint64_t address)
{
        const struct uvm_allocation *found =
                o->managed ? uvm_allocations_find(&o->managed->allocations, address) : NULL;
        struct arguments *a = o->arguments;

        /* Freed meanwhile, or never the process's. */
        if (!found || address - found->address >= found->bytes) {
                o->ledger.lost[LOSS_argument_stale]++;
                return;
        }
        a->ranges[a->range_count++] = (struct policy_range){
                .address = address,
                .bytes = found->address + found->bytes - address,
                .at_ns = r->at_ns,
                .kernel = r->func,
        };
}

static void take_one(struct gpuobsd *d, struct observed *o, const struct agent_argument *r)
{
        struct arguments *a = o->arguments;

        if (a->launches &&
            (a->range_count + r->count > POLICY_ITEMS_MAX || r->device != a->last.device))
                tell(d, o);
        if (!a->launches || !is_same_launch(r, &a->last))
                a->launches++;
        a->last = *r;
        for (uint32_t i = 0; i < r->count; i++)
                add(o, r, r->addresses[i]);
}

/* At most a ring full: a process that writes without end has to wait for the next turn. */
static void take(struct gpuobsd *d, struct observed *o)
{
        struct arguments *a = o->arguments;
        struct agent_argument record;
        uint64_t now = now_ns();

        for (uint32_t left = AGENT_ARGUMENT_ENTRIES; left > 0; left--) {
                if (argument_ring_take(&a->ring, now, &record)) {
                        take_one(d, o, &record);
                        continue;
                }
                if (argument_ring_sleep(&a->ring))
                        break;
                now = now_ns();
        }
        tell(d, o);
}

void arguments_wake(struct gpuobsd *d, struct observed *o)
{
        if (!o->arguments || !o->arguments->is_wanted)
                return;
        managed_catch_up(o); /* so that policies know where the memory is */
        take(d, o);
}

/* ---- what is wanted ---- */

static void write_table(struct observed *o)
{
        struct agent_argument_range ranges[UVM_ALLOCATIONS_MAX];
        const struct uvm_allocations *list = &o->managed->allocations;

        for (size_t i = 0; i < list->count; i++)
                ranges[i] = (struct agent_argument_range){
                        list->list[i].address, list->list[i].address + list->list[i].bytes};
        argument_ring_set_table(&o->arguments->ring, ranges, list->count);
        o->arguments->is_changed = false;
}

static void settle_wish(struct gpuobsd *d, struct observed *o)
{
        struct arguments *a = o->arguments;
        bool wanted = o->managed && !o->gone && policies_want_arguments(d, o);

        if (wanted && a->is_changed)
                write_table(o);
        if (wanted == a->is_wanted)
                return;
        a->is_wanted = wanted;
        __atomic_store_n(&a->wishes->arguments, wanted, __ATOMIC_RELEASE);
}

static void settle_losses(struct observed *o)
{
        struct arguments *a = o->arguments;
        struct argument_ring_losses now;

        argument_ring_get_losses(&a->ring, &now);
        o->ledger.lost[LOSS_argument_overrun] += now.overrun - a->seen.overrun;
        o->ledger.lost[LOSS_argument_unread] += now.unread - a->seen.unread;
        o->ledger.lost[LOSS_argument_stale] += now.torn - a->seen.torn;
        a->seen = now;
}

void arguments_turn(struct gpuobsd *d, struct observed *o)
{
        if (!o->arguments)
                return;
        settle_wish(d, o);
        if (o->arguments->is_wanted)
                take(d, o);
        settle_losses(o);
}
