/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: map values: the key of a hash has a multiple of 4 bytes, up to 64, not 6 */
#include "refused.h"

struct key {
        __u16 a, b, c;
};
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, struct key);
        __type(value, __u64);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} values SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        struct key key = {1, 2, 3};
        __u64 *v = bpf_map_lookup_elem(&values, &key);

        if (v)
                *v = 1;
        return 0;
}
