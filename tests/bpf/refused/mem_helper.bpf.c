/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: mem_helper.bpf.c:LINE: in probe: what a warp accesses is known in gpu/mem programs only */
#include <device/gpuobs_helpers.h>

#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/exit.warp")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = gpuobs_sectors(); /* LINE */
        return 0;
}
