/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_counts.h"

static void count_migration(struct uvm_counts *c, const struct uvm_event *e)
{
        if (e->target == UVM_CPU)
                c->bytes_to_cpu += e->bytes;
        else if (e->source == UVM_CPU)
                c->bytes_to_gpu += e->bytes;
        else
                c->bytes_between_gpus += e->bytes;
        if (e->cause == UVM_MIGRATED_EVICTION)
                c->bytes_evicted += e->bytes;
}

void uvm_counts_event(struct uvm_counts *c, const struct uvm_event *e)
{
        switch ((enum uvm_kind)e->kind) {
        case UVM_KIND_CPU_FAULT:
                c->cpu_faults++;
                break;
        case UVM_KIND_MIGRATION:
                count_migration(c, e);
                break;
        case UVM_KIND_GPU_FAULT:
                c->gpu_faults++;
                break;
        case UVM_KIND_FATAL_FAULT:
                c->fatal_faults++;
                break;
        case UVM_KIND_READ_DUPLICATE:
                c->read_duplications++;
                break;
        case UVM_KIND_THRASHING:
                c->thrashing++;
                break;
        case UVM_KIND_THROTTLE_BEGIN:
                c->throttled++;
                break;
        case UVM_KIND_MAP_REMOTE:
                c->remote_maps++;
                break;
        case UVM_KIND_EVICTION:
                c->evictions++;
                break;
        default: /* says nothing about an amount */
                break;
        }
}

void uvm_counts_add(struct uvm_counts *c, const struct uvm_counts *other)
{
#define X(name) c->name += other->name;
        UVM_COUNTS(X)
#undef X
}

struct uvm_counts uvm_counts_since(const struct uvm_counts *now, const struct uvm_counts *before)
{
        struct uvm_counts c;

#define X(name) c.name = now->name - before->name;
        UVM_COUNTS(X)
#undef X
        return c;
}

int uvm_counts_any(const struct uvm_counts *c)
{
        uint64_t any = 0;

#define X(name) any |= c->name;
        UVM_COUNTS(X)
#undef X
        return any != 0;
}
