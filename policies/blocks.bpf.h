/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * What is on the GPU, in blocks of 2 MiB: each known block is in one of a few
 * lists, in an order the policy gives it. Everything is O(1): a hash from
 * (process, address) to a number, an array of blocks linked by numbers. Number 0
 * is no block.
 *
 * Functions are global and take numbers, so that the verifier looks at each of
 * them once.
 */
#include "gpuobs_policy.h"

#define BLOCKS_MAX 131072 /* 256 GiB */
#ifndef BLOCK_LISTS
#define BLOCK_LISTS 4 /* a power of two */
#endif

struct block_key {
        __u64 process;
        __u64 address;
};

struct block {
        struct block_key key;
        __u64 used_ns;
        __u32 prev, next;
        __u32 list;
        __u32 uses;
        __u32 from; /* the policy's: list it was in before */
        __u32 gpu;  /* the policy's: where it is */
};

struct block_list {
        __u32 first, last;
        __u32 count;
};

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, BLOCKS_MAX);
        __type(key, struct block_key);
        __type(value, __u32);
} block_numbers SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, BLOCKS_MAX + 1);
        __type(key, __u32);
        __type(value, struct block);
} blocks SEC(".maps");

struct block_list block_lists[BLOCK_LISTS];
__u32 blocks_ever; /* numbers given out so far */
__u32 blocks_free; /* first of those given back, linked by next */

#define noinline_ __attribute__((noinline))

inline_ struct block *block_at(__u32 number)
{
        return bpf_map_lookup_elem(&blocks, &number);
}

/* 0: not known. */
noinline_ __u32 block_find(__u64 process, __u64 address)
{
        struct block_key key = {process, policy_block(address)};
        __u32 *number = bpf_map_lookup_elem(&block_numbers, &key);

        return number ? *number : 0;
}

noinline_ int block_unlink(__u32 number)
{
        struct block *b = block_at(number), *other;
        struct block_list *l;

        if (!b)
                return 0;
        l = &block_lists[b->list % BLOCK_LISTS];
        other = b->prev ? block_at(b->prev) : NULL;
        if (other)
                other->next = b->next;
        else
                l->first = b->next;
        other = b->next ? block_at(b->next) : NULL;
        if (other)
                other->prev = b->prev;
        else
                l->last = b->prev;
        b->prev = b->next = 0;
        l->count--;
        return 0;
}

noinline_ int block_append(__u32 number, __u32 list)
{
        struct block *b = block_at(number), *last;
        struct block_list *l = &block_lists[list % BLOCK_LISTS];

        if (!b)
                return 0;
        b->list = list;
        b->next = 0;
        b->prev = l->last;
        last = l->last ? block_at(l->last) : NULL;
        if (last)
                last->next = number;
        else
                l->first = number;
        l->last = number;
        l->count++;
        return 0;
}

noinline_ int block_prepend(__u32 number, __u32 list)
{
        struct block *b = block_at(number), *first;
        struct block_list *l = &block_lists[list % BLOCK_LISTS];

        if (!b)
                return 0;
        b->list = list;
        b->prev = 0;
        b->next = l->first;
        first = l->first ? block_at(l->first) : NULL;
        if (first)
                first->prev = number;
        else
                l->last = number;
        l->first = number;
        l->count++;
        return 0;
}

inline_ void block_move(__u32 number, __u32 list)
{
        block_unlink(number);
        block_append(number, list);
}

/* A block that was not known, at the end of a list. 0: no room. */
noinline_ __u32 block_add(__u64 process, __u64 address, __u32 list)
{
        struct block_key key = {process, policy_block(address)};
        __u32 number = blocks_free;
        struct block *b;

        if (!number && blocks_ever < BLOCKS_MAX)
                number = ++blocks_ever;
        b = number ? block_at(number) : NULL;
        if (!b || bpf_map_update_elem(&block_numbers, &key, &number, BPF_NOEXIST))
                return 0;
        if (number == blocks_free)
                blocks_free = b->next;
        b->key = key;
        b->uses = 0;
        b->used_ns = 0;
        block_append(number, list);
        return number;
}

noinline_ int block_forget(__u32 number)
{
        struct block *b = block_at(number);
        struct block_key key;

        if (!number || !b)
                return 0;
        key = b->key;
        block_unlink(number);
        bpf_map_delete_elem(&block_numbers, &key);
        b->key.process = 0;
        b->next = blocks_free;
        blocks_free = number;
        return 0;
}

/* ---- blocks of a range ---- */

#define RANGE_BLOCKS_MAX 4096

inline_ __u32 range_blocks(__u64 address, __u64 bytes)
{
        __u64 n = (policy_block(address + bytes + POLICY_BLOCK_BYTES - 1) - policy_block(address)) /
                  POLICY_BLOCK_BYTES;

        return n < RANGE_BLOCKS_MAX ? n : RANGE_BLOCKS_MAX;
}

/* ---- a process that ended ---- */

static long forget_if_of(__u32 i, __u64 *process)
{
        struct block *b = block_at(i + 1);

        if (b && b->key.process == *process)
                block_forget(i + 1);
        return 0;
}

inline_ void blocks_forget_process(__u64 process)
{
        bpf_loop(blocks_ever, forget_if_of, &process, 0);
}
