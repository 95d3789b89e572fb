/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* The maps that device_cost gives to the programs it compares: those of the start/end program. */
#include "gpuobs_device.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_record);
        __uint(max_entries, DEVICE_RING_ENTRIES);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(map_extra, GPUOBS_PLACE_HOST);
} records SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_counters);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} counters SEC(".maps");

static __always_inline struct device_counters *all_counters(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&counters, &zero);
}

static __always_inline __u32 blocks_of(const struct gpuobs_kernel_ctx *ctx)
{
        return ctx->grid_x * ctx->grid_y * ctx->grid_z;
}

static __always_inline __u32 block_index(const struct gpuobs_kernel_ctx *ctx)
{
        return ctx->block_x + ctx->grid_x * (ctx->block_y + ctx->grid_y * ctx->block_z);
}
