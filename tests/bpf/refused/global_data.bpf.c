/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: section .bss: global variables are not supported */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

volatile __u64 counter;

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        counter++;
        return 0;
}
