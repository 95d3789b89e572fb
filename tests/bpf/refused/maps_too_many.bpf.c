/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: more than 8 maps */
#include "refused.h"

DEVICE_ARRAY(map1, __u64, 1);
DEVICE_ARRAY(map2, __u64, 1);
DEVICE_ARRAY(map3, __u64, 1);
DEVICE_ARRAY(map4, __u64, 1);
DEVICE_ARRAY(map5, __u64, 1);
DEVICE_ARRAY(map6, __u64, 1);
DEVICE_ARRAY(map7, __u64, 1);
DEVICE_ARRAY(map8, __u64, 1);
DEVICE_ARRAY(map9, __u64, 1);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;

        COUNT(map1);
        COUNT(map2);
        COUNT(map3);
        COUNT(map4);
        COUNT(map5);
        COUNT(map6);
        COUNT(map7);
        COUNT(map8);
        COUNT(map9);
        return 0;
}
