/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Print what programs cost: the least program of each scope at entry and exit, and those
 * in probes/device, in kernels of three shapes. cubin NULL: in PTX only.
 */
#include <stddef.h>

void shipped_cost(const char *ptx, const void *cubin, size_t cubin_size, const char *directory);
