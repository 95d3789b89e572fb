/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: it does not include gpuobs_policy.h */
#include "bpf/gpuobs_core.h"

#include <bpf/bpf_helpers.h>

SEC("syscall") int policy_tick(void *e)
{
        return 0;
}

char LICENSE[] SEC("license") = "GPL";
