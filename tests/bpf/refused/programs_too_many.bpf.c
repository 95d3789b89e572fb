/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: more than 8 programs */
#include "refused.h"

#define PROBE(number)                                                                              \
        SEC("gpu/entry") int probe##number(struct gpuobs_kernel_ctx *ctx)                          \
        {                                                                                          \
                return 0;                                                                          \
        }

PROBE(1)
PROBE(2)
PROBE(3)
PROBE(4)
PROBE(5)
PROBE(6)
PROBE(7)
PROBE(8)
PROBE(9)
