/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What events of managed memory add up to. */
#include <stdint.h>

#include "driver/uvm_event.h"
#include "util/managed_second.h"

#define UVM_COUNTS(X) MANAGED_COUNTS(X)

struct uvm_counts {
#define X(name) uint64_t name;
        UVM_COUNTS(X)
#undef X
};

/* c += e. */
void uvm_counts_event(struct uvm_counts *c, const struct uvm_event *e);

/* c += other. */
void uvm_counts_add(struct uvm_counts *c, const struct uvm_counts *other);

/* What came between two states of the same counts. */
struct uvm_counts uvm_counts_since(const struct uvm_counts *now, const struct uvm_counts *before);

/* Whether anything was counted. */
int uvm_counts_any(const struct uvm_counts *c);
