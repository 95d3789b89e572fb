/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: variable_race.bpf.c:LINE: in probe: map .bss is read, changed and written back */
#include "refused.h"

volatile __u64 counter;

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        counter++; /* LINE */
        return 0;
}
