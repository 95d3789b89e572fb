/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* Hashes with long keys, and with those keys whose words need care when they are put down. */
#include <device/gpuobs_helpers.h>

#include "device_keys.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define HASH(name, key_, entries)                                                                  \
        struct {                                                                                   \
                __uint(type, BPF_MAP_TYPE_HASH);                                                   \
                __type(key, key_);                                                                 \
                __type(value, struct keys_value);                                                  \
                __uint(max_entries, entries);                                                      \
                __uint(map_extra, GPUOBS_PLACE_DEVICE);                                            \
        } name SEC(".maps")

HASH(places, struct keys_place, KEYS_ENTRIES);
HASH(pairs, struct keys_pair, KEYS_ENTRIES);
HASH(wides, struct keys_wide, KEYS_ENTRIES);
HASH(numbers, __u64, KEYS_ENTRIES);
HASH(few, struct keys_pair, KEYS_FEW);

volatile __u64 failed, there, crafted[4];

/* Count under a key; nobody's count may be lost, whoever else inserts the key. */
#define COUNT(map, key)                                                                            \
        do {                                                                                       \
                struct keys_value first_ = {.first = 7},                                           \
                                  *v_ = bpf_map_lookup_elem(&(map), &(key));                       \
                if (!v_) {                                                                         \
                        if (bpf_map_update_elem(&(map), &(key), &first_, BPF_NOEXIST) ==           \
                            -7 /* -E2BIG */)                                                       \
                                __sync_fetch_and_add(&failed, 1);                                  \
                        v_ = bpf_map_lookup_elem(&(map), &(key));                                  \
                }                                                                                  \
                if (v_)                                                                            \
                        __sync_fetch_and_add(&v_->count, 1);                                       \
        } while (0)

SEC("gpu/entry.thread")
int count_places(struct gpuobs_kernel_ctx *ctx)
{
        struct keys_place key = {
                .kernel = ctx->kernel_id, .column = ctx->thread_x, .row = ctx->block_y};

        COUNT(places, key);
        return 0;
}

/* Words that are 0 or 1 when they are put down. */
SEC("gpu/entry.thread")
int count_pairs(struct gpuobs_kernel_ctx *ctx)
{
        struct keys_pair key = {.a = DEVICE_HASH_TAG ^ (ctx->thread_x & 1),
                                .b = DEVICE_HASH_TAG ^ (ctx->thread_x >> 1)};

        COUNT(pairs, key);
        return 0;
}

SEC("gpu/entry.block")
int count_wides(struct gpuobs_kernel_ctx *ctx)
{
        struct keys_wide key = {.words = {DEVICE_HASH_TAG, 0, ctx->block_x & 3,
                                          (__u64)(ctx->block_x >> 2 & 3) << 62, ~0ULL, 0, 0,
                                          ctx->block_y}};

        COUNT(wides, key);
        return 0;
}

/* The key whose tag would be 0 is the first thread's. */
SEC("gpu/entry.thread")
int count_numbers(struct gpuobs_kernel_ctx *ctx)
{
        __u64 key = DEVICE_HASH_TAG ^ ctx->thread_x;

        COUNT(numbers, key);
        return 0;
}

SEC("gpu/exit.thread")
int drop_numbers(struct gpuobs_kernel_ctx *ctx)
{
        __u64 key = DEVICE_HASH_TAG ^ ctx->thread_x;

        if (ctx->thread_x < 2 && !bpf_map_delete_elem(&numbers, &key))
                __sync_fetch_and_add(&there, 1);
        return 0;
}

/* Some keys go, and one of another hash is written over. */
SEC("gpu/exit.block")
int change(struct gpuobs_kernel_ctx *ctx)
{
        struct keys_wide key = {
                .words = {DEVICE_HASH_TAG, 0, ctx->block_x, 0, ~0ULL, 0, 0, ctx->block_y}};

        struct keys_pair pair = {.a = ctx->gridid, .b = DEVICE_HASH_TAG};
        struct keys_value value = {.count = 77, .first = 1, .pad = 2};

        if (!bpf_map_delete_elem(&wides, &key))
                __sync_fetch_and_add(&there, 1);
        bpf_map_update_elem(&pairs, &pair, &value, BPF_ANY);
        return 0;
}

SEC("gpu/entry.thread")
int fill_up(struct gpuobs_kernel_ctx *ctx)
{
        struct keys_pair key = {.a = ctx->thread_x, .b = ctx->gridid};

        COUNT(few, key);
        return 0;
}

/* The first thread of each block has one key, the others another one, of the test's choice. */
SEC("gpu/entry.thread")
int count_crafted(struct gpuobs_kernel_ctx *ctx)
{
        struct keys_pair key = {.a = crafted[0], .b = crafted[1]};

        if (ctx->thread_x) {
                key.a = crafted[2];
                key.b = crafted[3];
        }
        COUNT(pairs, key);
        return 0;
}
