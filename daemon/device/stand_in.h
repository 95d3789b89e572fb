/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Functions that stand for helpers only a GPU has (probes/device/gpuobs_helpers.h).
 * What they return on the GPU is not what the kernel's verifier sees them return, so
 * it must not believe to know it: they must be global functions, of which it takes
 * nothing for granted.
 */
#include <stddef.h>

/*
 * Look for stand-ins that are not global in an eBPF object. 0; -EINVAL there is one,
 * ret_name has its name; an object that cannot be read has none.
 */
int stand_in_check(const void *elf, size_t elf_bytes, char *ret_name, size_t name_size);
