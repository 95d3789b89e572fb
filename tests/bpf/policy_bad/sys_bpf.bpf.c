/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: calls eBPF helper 166, which a policy may not */
#include "gpuobs_policy.h"

__u64 attributes[16];

POLICY(tick)
{
        return bpf_sys_bpf(0, attributes, sizeof(attributes)) < 0;
}
