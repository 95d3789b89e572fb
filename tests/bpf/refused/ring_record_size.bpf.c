/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring_record_size.bpf.c:LINE: in probe: a record of 56 bytes, but ring ring has room for 1 to 48 */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u64 *r = bpf_ringbuf_reserve(&ring, 56, 0); /* LINE */

        if (r)
                bpf_ringbuf_discard(r, 0);
        return 0;
}
