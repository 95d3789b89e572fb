/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The processes policies may act on, and the managed memory each of them has. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "policies/policy_abi.h"
#include "policy/actuator.h"

/* Managed allocations remembered of one process; more are unknown to policies. */
#define TARGET_RANGES_MAX 65536

struct target_range {
        uint64_t start, end;
        uint8_t *places; /* of each block: number of the GPU that it was last seen on and 1; 0
                            elsewhere or not known. NULL: none was seen moving */
};

struct target {
        UT_hash_handle hh;
        uint64_t key;
        uint64_t start_ticks; /* with pid: who it is */
        uint32_t pid;
        uint32_t uid;
        uint32_t gpu;                       /* the first that it was seen to use; 0 until then */
        uint64_t gpus;                      /* all of them, a bit each */
        uint64_t resident[POLICY_GPUS_MAX]; /* managed bytes on each, as far as migrations told */
        char comm[16];
        char cgroup[POLICY_TEXT_MAX];
        struct target_range *ranges; /* ascending, apart */
        size_t range_count, range_room;
};

struct targets {
        struct target *by_key;
};

/* NULL on no memory. A key that is there already is returned as it is. */
struct target *targets_add(struct targets *t, uint64_t key);
struct target *targets_find(const struct targets *t, uint64_t key);
void targets_remove(struct targets *t, struct target *target);
void targets_done(struct targets *t);

/*
 * Managed memory came to be. What it overlaps is replaced: its end went unseen.
 * 0; -EINVAL an impossible range; -ENOSPC, -ENOMEM.
 */
int target_add_range(struct target *t, uint64_t address, uint64_t bytes);

/* The allocation that begins at the address is gone. Its size, 0 when there was none. */
uint64_t target_remove_range(struct target *t, uint64_t address);

/* The part of [address, address + bytes) that lies in the first allocation it touches; false: in
 * none. */
bool target_clip(const struct target *t, uint64_t address, uint64_t bytes, uint64_t *ret_address,
                 uint64_t *ret_bytes);

/* Whether it uses the GPU; as long as none is known, the first may be meant. */
bool target_uses(const struct target *t, uint32_t gpu);

/* Memory of the process moved: keep count of what is where. */
void target_moved(struct target *t, const struct policy_moved *moved);

/* Whether part of the range, which lies in one allocation, is known to be on another GPU. */
bool target_is_on_other(const struct target *t, uint64_t address, uint64_t bytes, uint32_t gpu);
