/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* Counts accesses of memory by kind and space, once per warp and once per thread. */
#include <device/gpuobs_helpers.h>

#include "device_mem.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct mem_counts);
        __uint(max_entries, MEM_ENTRIES);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} counts SEC(".maps");

static __always_inline struct mem_counts *find(struct gpuobs_mem_ctx *ctx)
{
        __u32 index = MEM_INDEX(ctx->kind, ctx->space);

        return bpf_map_lookup_elem(&counts, &index);
}

SEC("gpu/mem")
int mem_warp(struct gpuobs_mem_ctx *ctx)
{
        struct mem_counts *c = find(ctx);

        if (!c)
                return 0;
        __sync_fetch_and_add(&c->requests, 1);
        __sync_fetch_and_add(&c->lanes, ctx->lanes);
        __sync_fetch_and_add(&c->sectors, gpuobs_sectors());
        __sync_fetch_and_add(&c->lines, gpuobs_lines());
        return 0;
}

SEC("gpu/mem.thread")
int mem_thread(struct gpuobs_mem_ctx *ctx)
{
        struct mem_counts *c = find(ctx);

        if (!c)
                return 0;
        __sync_fetch_and_add(&c->accesses, 1);
        __sync_fetch_and_add(&c->bytes, ctx->size);
        __sync_fetch_and_add(&c->sum, ctx->address);
        __sync_fetch_and_add(&c->mix, mem_mix(ctx->address));
        return 0;
}
