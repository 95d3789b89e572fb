/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: reads a clock or a random number */
#include "gpuobs_policy.h"

POLICY(tick)
{
        policy_preempt(bpf_ktime_get_ns());
        return 0;
}
