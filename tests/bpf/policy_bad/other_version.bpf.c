/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: the policy was built for another version */
#define policy_abi the_abi
#include "gpuobs_policy.h"
#undef policy_abi

const volatile __u32 policy_abi = POLICY_ABI_VERSION + 1;

POLICY(tick)
{
        return 0;
}
