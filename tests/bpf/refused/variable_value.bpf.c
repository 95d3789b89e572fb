/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: section .data: variables on a GPU begin as 0 */
#include "refused.h"

volatile __u64 counter = 5;

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __sync_fetch_and_add(&counter, 1);
        return 0;
}
