/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: those of a policy are in SEC("syscall") */
#include "gpuobs_policy.h"

SEC("socket") int policy_tick(void *e)
{
        return 0;
}
