/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counters of lost events that programs in the kernel keep, one for each CPU. */
#include <stdint.h>

/* The first `count` elements of a per-CPU array of u64, summed up. 0 or -errno. */
int losses_read(int map_fd, uint32_t count, uint64_t ret_losses[]);
