/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Bring the rest of a neighbourhood when much of it is there.
 *
 * The driver does this within a block of 2 MiB. Here regions of 64 MiB are looked
 * at as a tree of 32 blocks: when of a subtree more than `density` percent have
 * come, the rest is brought, and the next larger one is looked at with that. While
 * the link is busier than `link_mib` in a second nothing is brought: faults would
 * wait behind guesses.
 *
 * Wins where memory is used in patches, in any order within one: sparse matrices in
 * blocks, tiles, hash tables that grow. Loses where half a neighbourhood says
 * nothing of the other half, as with two of each three blocks of an array of
 * structures: what is brought is never used, and takes places. It never evicts; load it
 * together with a policy that keeps a reserve.
 *
 * Source: the tree-based prefetcher of the driver, described by Ganguly et al.,
 * "Interplay between hardware prefetcher and page eviction policy in CPU-GPU
 * unified virtual memory", ISCA 2019.
 */
#include "gpuobs_policy.h"

#define REGION_BLOCKS 32
#define REGION_BYTES  (REGION_BLOCKS * (__u64)POLICY_BLOCK_BYTES)

POLICY_PARAM(__u32, density, 50, 10, 99, "percent of a subtree that have come");
POLICY_PARAM(__u64, link_mib, 32768, 1, 1048576, "MiB a second on the link that are too busy");
POLICY_PARAM(__u32, least, 4, 1, 32, "blocks of a region that have to have come at all");

struct region_key {
        __u64 process;
        __u64 address;
};

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 65536);
        __type(key, struct region_key);
        __type(value, __u32);
} regions SEC(".maps");

struct visit {
        __u64 process;
        __u64 address;
        __u32 gpu;
        bool busy;
        bool left;
};

inline_ __u32 count_ones(__u32 n)
{
        n = n - ((n >> 1) & 0x55555555);
        n = (n & 0x33333333) + ((n >> 2) & 0x33333333);
        return ((n + (n >> 4) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

/* The blocks of the region that should be there, given those that are and the one that came. */
inline_ __u32 grown(__u32 there, __u32 at)
{
        __u32 all = there;

        for (__u32 size = 2; size <= REGION_BLOCKS; size *= 2) {
                __u32 ones = size == 32 ? ~0u : (1u << size) - 1;
                __u32 subtree = ones << ((at & ~(size - 1)) & 31);

                if (count_ones(all & subtree) * 100 > size * density)
                        all |= subtree;
        }
        return all;
}

struct bringing {
        __u64 process;
        __u64 region;
        __u32 blocks;
        __u32 gpu;
};

/* A run of wanted blocks in one request: called for each block, acts at the first of a run. */
static long bring_run(__u32 i, struct bringing *b)
{
        __u32 n = 0;

        if (i >= REGION_BLOCKS || !(b->blocks >> i & 1) || (i && b->blocks >> (i - 1) & 1))
                return 0;
        while (n < REGION_BLOCKS && i + n < REGION_BLOCKS && b->blocks >> (i + n & 31) & 1)
                n++;
        policy_migrate(b->process, b->region + (__u64)i * POLICY_BLOCK_BYTES,
                       (__u64)n * POLICY_BLOCK_BYTES, b->gpu);
        return 0;
}

inline_ __u32 blocks_of(__u64 address, __u64 bytes)
{
        __u64 n = (policy_block(address + bytes + POLICY_BLOCK_BYTES - 1) - policy_block(address)) /
                  POLICY_BLOCK_BYTES;

        return n < 4096 ? n : 4096;
}

static long visit_block(__u32 i, struct visit *v)
{
        __u64 address = policy_block(v->address) + (__u64)i * POLICY_BLOCK_BYTES;
        struct region_key key = {v->process, address & ~(REGION_BYTES - 1)};
        __u32 at = (address - key.address) / POLICY_BLOCK_BYTES & 31, none = 0, *there;
        struct bringing b = {v->process, key.address, 0, v->gpu};

        if (!v->left)
                bpf_map_update_elem(&regions, &key, &none, BPF_NOEXIST);
        there = bpf_map_lookup_elem(&regions, &key);
        if (!there)
                return 0;
        if (v->left) {
                *there &= ~(1u << at);
                if (!*there)
                        bpf_map_delete_elem(&regions, &key);
                return 0;
        }
        *there |= 1u << at;
        if (v->busy || count_ones(*there) < least)
                return 0;
        b.blocks = grown(*there, at) & ~*there;
        *there |= b.blocks;
        if (b.blocks)
                bpf_loop(REGION_BLOCKS, bring_run, &b, 0);
        return 0;
}

static long visit_moved(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();
        const struct policy_moved *m;

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        m = &b->items[i].moved;
        v->address = m->address;
        v->left = m->to == POLICY_HOST;
        if (!v->left && m->cause == POLICY_BY_REQUEST)
                return 0; /* what was brought proves nothing */
        bpf_loop(blocks_of(m->address, m->bytes), visit_block, v, 0);
        return 0;
}

/* What was not brought is not there. */
static long visit_refused(__u32 i, struct visit *v)
{
        struct policy_refused *r = policy_refused_at(i);

        if (!r)
                return 1;
        v->process = r->process;
        v->address = r->address;
        bpf_loop(blocks_of(r->address, r->bytes), visit_block, v, 0);
        return 0;
}

POLICY(refused)
{
        struct visit v = {.left = true};

        bpf_loop(e->items, visit_refused, &v, 0);
        return 0;
}

POLICY(migration)
{
        struct visit v = {.process = e->process, .gpu = e->gpu};

        v.busy = e->moved_bytes != POLICY_UNKNOWN && e->moved_bytes > link_mib << 20;
        bpf_loop(e->items, visit_moved, &v, 0);
        return 0;
}
