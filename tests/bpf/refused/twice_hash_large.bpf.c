/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: map table: a hash that is there twice has at most 16384 entries, not 16385 */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 16385);
        __uint(map_extra, GPUOBS_PLACE_DUPLICATE | GPUOBS_SUM);
} table SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = ctx->block_x;

        bpf_map_delete_elem(&table, &key);
        return 0;
}
