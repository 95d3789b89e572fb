/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: the only ring buffer of a policy is policy_actions */
#include "gpuobs_policy.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
} other SEC(".maps");

POLICY(tick)
{
        return bpf_ringbuf_output(&other, &policy_unsaid, 8, 0) < 0;
}
