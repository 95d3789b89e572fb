/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: update_flags.bpf.c:LINE: in probe: the flags of an update must be BPF_ANY */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 4);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = ctx->smid;
        __u64 value = 7;

        bpf_map_update_elem(&values, &key, &value, BPF_EXIST); /* LINE */
        return 0;
}
