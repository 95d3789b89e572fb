/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: loops with may_goto: a policy loops with bpf_loop() */
#include "gpuobs_policy.h"

__u64 n;

POLICY(tick)
{
again:
        n++;
        /* May go to the end. */
        asm volatile goto(
                "1: .byte 0xe5; .byte 0; .long ((%l[end] - 1b - 8) / 8) & 0xffff; .short 0" :: ::
                        end);
        goto again;
end:
        return 0;
}
