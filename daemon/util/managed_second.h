/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One second of one process's managed memory, as it is stored. */
#include <stdint.h>

/* What is counted; also the names of the columns. */
#define MANAGED_COUNTS(X)                                                                          \
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

struct managed_second {
        uint64_t process_key;
        uint64_t end_ns;  /* CLOCK_MONOTONIC */
        uint64_t events;  /* read */
        uint64_t dropped; /* by the driver: what the counts lack */
#define X(name) uint64_t name;
        MANAGED_COUNTS(X)
#undef X
};
