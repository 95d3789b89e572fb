/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: helper.bpf.c:LINE: in probe: helper bpf_get_current_pid_tgid() is not available on a GPU */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = bpf_get_current_pid_tgid(); /* LINE */
        return 0;
}
