/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: mem_race.bpf.c:LINE: in probe: map values is read, changed and written back */
#include "refused.h"

/* Lanes of a warp that have gone different ways access memory each with a leader of their own. */
struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_WARP);
} values SEC(".maps");

SEC("gpu/mem.warp")
int probe(struct gpuobs_mem_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v += ctx->lanes; /* LINE */
        return 0;
}
