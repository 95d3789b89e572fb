/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * What a device program (eBPF C that runs on the GPU) includes.
 *
 * A program is a function in a section SEC("gpu/entry"), SEC("gpu/exit") or
 * SEC("gpu/mem"), with an optional scope suffix .grid, .block, .warp, .thread
 * that says which thread runs it: the first thread of the first block, the first
 * thread of each block (default), the lowest active lane of each warp, each thread.
 * A gpu/mem program runs before accesses of memory, per warp (default) or thread, and
 * takes a struct gpuobs_mem_ctx; the others take a struct gpuobs_kernel_ctx.
 * Fields of its context are read from the GPU's special registers at the moment
 * of the load (active_mask: when the program was entered, before the leader was
 * chosen); the context cannot be written.
 *
 * Map memory is shared between the threads that run the program: use atomics
 * (__sync_fetch_and_add and so on), or a map with an element per thread. Atomics
 * work in maps placed on the device only. Loads see what others stored last. Maps
 * carry a placement:
 *     __uint(map_extra, GPUOBS_PLACE_DEVICE);
 *
 * docs/device-programs.md has the rules and what things cost; gpuobs_helpers.h the
 * helpers that only a GPU has.
 */
#include "../bpf/gpuobs_core.h"
#include <bpf/bpf_helpers.h>
#include "device_abi.h"
