/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: late_stand_in.bpf.c:LINE: in probe: the mark of a helper of the GPU is not at the beginning of a function */
#include <device/gpuobs_helpers.h>

#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

GPUOBS_HELPER __u32 my_ballot(__u32 predicate)
{
        asm volatile("r1 += 1");
        GPUOBS_STAND_IN(01, GPUOBS_32_BITS, predicate); /* LINE */
        return predicate;
}

SEC("gpu/entry.thread")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = my_ballot(1);
        return 0;
}
