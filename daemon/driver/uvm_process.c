/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_process.h"

#include <stdlib.h>

struct uvm_process *uvm_process_new(void)
{
        struct uvm_process *p = calloc(1, sizeof(*p));

        if (!p)
                return NULL;
        p->join = uvm_join_new();
        p->blocks = uvm_hot_new(UVM_BLOCK_SHIFT, UVM_HOT_ENTRIES_MAX);
        p->pages = uvm_hot_new(UVM_PAGE_SHIFT, UVM_HOT_ENTRIES_MAX);
        if (!p->join || !p->blocks || !p->pages)
                return uvm_process_free(p);
        return p;
}

struct uvm_process *uvm_process_free(struct uvm_process *p)
{
        if (!p)
                return NULL;
        uvm_join_free(p->join);
        uvm_hot_free(p->blocks);
        uvm_hot_free(p->pages);
        uvm_allocations_done(&p->allocations);
        free(p);
        return NULL;
}

void uvm_process_event(struct uvm_process *p, const struct uvm_event *e, uint64_t at_ns)
{
        uvm_counts_event(&p->total, e);
        uvm_allocations_event(&p->allocations, e);
        uvm_hot_event(p->blocks, e);
        uvm_hot_event(p->pages, e);
        uvm_join_event(p->join, e, at_ns);
}

void uvm_process_second(struct uvm_process *p, uint64_t now_ns)
{
        p->rate = uvm_counts_since(&p->total, &p->mark);
        p->mark = p->total;
        uvm_allocations_second(&p->allocations);
        uvm_join_settle(p->join, now_ns);
}
