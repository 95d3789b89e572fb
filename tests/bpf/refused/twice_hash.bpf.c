/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: map table: settings are an array, not a hash */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 16);
        __uint(map_extra, GPUOBS_PLACE_DUPLICATE | GPUOBS_SETTINGS);
} table SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = ctx->block_x;

        return bpf_map_lookup_elem(&table, &key) != 0;
}
