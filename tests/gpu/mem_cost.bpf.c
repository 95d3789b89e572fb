/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* For mem_check: what is commonly asked of accesses, at the least cost that is known. */
#include <device/gpuobs_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct cost_counts {
        __u64 requests;
        __u64 sectors;
};

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct cost_counts);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_WARP);
} cost SEC(".maps");

SEC("gpu/mem.warp")
int cost_requests(struct gpuobs_mem_ctx *ctx)
{
        __u32 zero = 0;
        struct cost_counts *c = bpf_map_lookup_elem(&cost, &zero);

        if (c)
                __sync_fetch_and_add(&c->requests, 1);
        return 0;
}

SEC("gpu/mem.warp")
int cost_sectors(struct gpuobs_mem_ctx *ctx)
{
        __u32 zero = 0;
        struct cost_counts *c = bpf_map_lookup_elem(&cost, &zero);

        if (!c)
                return 0;
        __sync_fetch_and_add(&c->requests, 1);
        __sync_fetch_and_add(&c->sectors, gpuobs_sectors());
        return 0;
}
