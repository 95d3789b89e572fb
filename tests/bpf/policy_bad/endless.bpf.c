/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: the kernel's verifier */
#include "gpuobs_policy.h"

volatile __u64 n;

POLICY(tick)
{
        while (n != 1)
                n += 2;
        return 0;
}
