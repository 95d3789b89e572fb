/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls of the driver, from their eBPF ring into the processes' records. */
#include <stddef.h>

struct gpuobsd;

/* Load the programs, if the settings want them; a kernel that refuses is said so and lived with. */
void driver_flow_open(struct gpuobsd *d);

/* Take in a bounded part of what waits. The number of events. */
size_t driver_flow_turn(struct gpuobsd *d, size_t max);

/* Once a second: losses into the ledger, devices that have come. */
void driver_flow_second(struct gpuobsd *d);
