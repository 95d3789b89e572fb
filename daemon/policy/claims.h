/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who decided what about which memory or process, so that policies that want
 * opposite things do not undo each other's work: a claim keeps policies of a
 * lower or the same precedence from contradicting it while it holds.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policies/policy_abi.h"

#define CLAIM_HOLD_NS 20000000ull /* of what is done once and leaves no setting behind */
#define CLAIM_FOREVER UINT64_MAX
#define CLAIMS_MAX    1024 /* beyond: the one that would end first is forgotten */

struct claim {
        uint64_t process;
        uint64_t start, end; /* of memory; 0, 0: the process */
        uint64_t until_ns;
        uint64_t value;
        uint32_t policy;
        int32_t precedence;
        uint32_t kind; /* enum policy_action_kind */
        uint32_t to;
};

struct claims {
        struct claim *list;
        size_t count;
};

enum claim_answer {
        CLAIM_FREE,      /* nobody minds; taken */
        CLAIM_OVERRIDES, /* taken from policies of lower precedence */
        CLAIM_OVERRULED, /* somebody else's holds: not taken */
};

/* Take a claim at a time, unless a contradicting one holds. No memory: as if nobody minded. */
enum claim_answer claims_take(struct claims *c, const struct claim *claim, uint64_t now_ns);

/* Whether it is a setting, which stays until taken back, rather than something done once. */
bool claim_is_setting(uint32_t kind);

/* Whether it is a setting of a process, a value that replaces another: a slice, a limit. */
bool claim_has_value(uint32_t kind);

/* Whether it names a place: the host or a GPU. */
bool claim_has_place(uint32_t kind);

/* Whether it is about channel groups, on one GPU or on all. */
bool claim_has_groups(uint32_t kind);

/* Of such: the GPU; POLICY_GPUS_MAX: all, or none that there is. */
uint32_t claim_gpu(const struct policy_action *a);

/* Whether what it is about is on a GPU that the other one is about, too. */
bool claim_shares_gpu(uint32_t kind, uint32_t to, uint32_t other_to);

/* Forget what a policy claimed of a process by actions of a kind. */
void claims_drop_setting(struct claims *c, uint32_t policy, uint64_t process, uint32_t kind);

/*
 * Forget what a policy claimed by an action that came to nothing. What was claimed since in its
 * place stays, and so does what has grown together with neighbouring memory.
 */
void claims_drop_action(struct claims *c, uint32_t policy, const struct policy_action *a);

/* Forget the claims of a policy, or about a process. */
void claims_drop_policy(struct claims *c, uint32_t policy);
void claims_drop_process(struct claims *c, uint64_t process);
/* The same of memory that has been freed. */
void claims_drop_memory(struct claims *c, uint64_t process, uint64_t start, uint64_t end);
void claims_done(struct claims *c);
