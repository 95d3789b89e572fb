/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What events of managed memory add up to. */
#include <stdint.h>

#include "driver/uvm_event.h"

#define UVM_COUNTS(X)                                                                              \
        X(gpu_faults)                                                                              \
        X(cpu_faults)                                                                              \
        X(bytes_to_gpu) /* migrated from the CPU */                                                \
        X(bytes_to_cpu)                                                                            \
        X(bytes_between_gpus)                                                                      \
        X(bytes_evicted) /* of bytes_to_cpu and bytes_between_gpus: to make room */                \
        X(evictions)                                                                               \
        X(thrashing) /* times the driver found processors fighting for memory */                   \
        X(throttled) /* times a processor was held up for that */                                  \
        X(read_duplications)                                                                       \
        X(remote_maps) /* times memory was mapped rather than moved */                             \
        X(fatal_faults)

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
