/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: constant_race.bpf.c:LINE: in probe: map states is read, changed and written back */
#include "refused.h"

DEVICE_ARRAY(states, __u64, 1);

const volatile __u8 next[4] = {1, 2, 3, 0};

/* The next state is chosen by the one that was read: as much of a race as adding to it. */
SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&states, &zero);

        if (v)
                *v = next[*v & 3]; /* LINE */
        return 0;
}
