/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: calls eBPF helper 113, which a policy may not */
#include "gpuobs_policy.h"

__u64 found;

/* In a function of its own, which only loading makes part of the program. */
__attribute__((noinline)) int look(__u64 address)
{
        return bpf_probe_read_kernel(&found, sizeof(found), (void *)address);
}

POLICY(tick)
{
        return look(e->now_ns);
}
