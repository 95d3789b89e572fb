/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: update_race.bpf.c:LINE: in probe: map values is read, changed and written back */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 4);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = ctx->smid;
        __u64 *old = bpf_map_lookup_elem(&values, &key), value;

        if (!old)
                return 0;
        value = *old + 1;
        bpf_map_update_elem(&values, &key, &value, BPF_ANY); /* LINE */
        return 0;
}
