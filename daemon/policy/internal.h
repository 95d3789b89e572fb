/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside the policy engine. */
#include "policy/claims.h"
#include "policy/engine.h"
#include "policy/moves.h"
#include "policy/object.h"
#include "policy/targets.h"

#define ORDERS_MAX   4096 /* waiting to be carried out, of all policies */
#define REFUSALS_MAX 4096 /* that a policy has not heard of yet */

/* Use in the running second. */
struct usage {
        uint64_t second;
        struct policy_limits used;
        uint64_t cpu_ns; /* the thread had used when the second began */
        bool exceeded;   /* an action was refused for it */
};

/* What a policy is to hear of with a tick. */
struct refusals {
        union policy_item *items;
        size_t count, room;
        uint64_t not_before_ns; /* as some were refused again */
};

struct policy {
        struct policy *prev, *next;
        uint32_t id; /* never used again */
        char name[POLICY_NAME_MAX];
        char *cgroup, *process; /* copies, options points to them */
        struct policy_options options;
        struct policy_object *object;
        enum policy_state state;
        char reason[POLICY_REASON_MAX];
        struct policy_stats stats;
        struct usage usage;
        struct refusals refused;
        uint64_t loaded_ns;
        bool has_lost; /* something that was in force: to be told of processes again */
};

/* Something in force that has to be set back. */
struct setting {
        uint32_t policy;
        char owner[POLICY_NAME_MAX];
        uint64_t before;
        bool revoked; /* taken back; an order that came later decides what becomes of it */
        struct policy_action action;
};

/* Settings in a row; a zeroed one is empty. */
struct setting_list {
        struct setting *list;
        size_t count, room;
};

/*
 * An order whose result has not come, or that has not been given yet (backlog); whose call does not
 * return (stuck), or that undoes and waits for such a call (parked).
 */
struct waiting {
        UT_hash_handle hh;
        struct waiting *prev, *next;
        uint64_t id;
        uint32_t policy;
        char owner[POLICY_NAME_MAX];
        bool undo;
        bool renewal;      /* of what is in force already */
        bool restore;      /* a renewal of what an order that failed had displaced */
        bool again;        /* it did not reach everything: renew what is in force when it is done */
        uint32_t again_to; /* on which GPU, as `to` of an action; 0: all */
        bool revoked;      /* its policy has taken it back meanwhile */
        bool retried;      /* asked for when its policy heard of what was refused */
        bool noted;        /* undo of what is noted, though it may never have been set */
        struct policy_action action;
        struct setting_list displaced; /* by it: in force again if it fails */
};

struct gpu_memory {
        uint64_t total_bytes, free_bytes;
        uint64_t second;              /* that is being summed up */
        uint64_t moved, moved_before; /* in it, and in the one before */
};

struct policy_engine {
        const struct policy_actuator_ops *ops;
        void *data;
        struct policy *policies; /* by descending precedence; of equals, the older first */
        uint32_t policy_count;
        uint32_t next_policy;
        uint64_t next_order;
        uint64_t now_ns;
        struct targets targets;
        struct claims claims;
        struct moves moves;
        struct waiting *orders;
        struct waiting *backlog; /* to be set back when there is room for orders, first to last */
        struct waiting *stuck, *parked;
        bool draining;
        struct setting_list settings; /* in the order they came into force */
        struct gpu_memory gpus[POLICY_GPUS_MAX];
        struct policy *running; /* whose answers are being taken */
        bool tells_refused;     /* it hears of what was refused */
};

/* ---- decide.c ---- */

/* An action of e->running: check it and order it. NULL: an answer that is none. */
void decide(void *engine, const struct policy_action *action);

/*
 * Claim what the policies have in force, or ordered. While there was one policy alone nothing was
 * claimed: call it before the second one is told of anything.
 */
void decide_claim_all(struct policy_engine *e);

/* Whether an order of the policy to set the very same thing waits. */
bool decide_is_to_come(struct policy_engine *e, const struct policy *p,
                       const struct policy_action *a);

/*
 * Give the actuator an order, and remember it until its result comes; what it displaced is taken
 * over then. False: it takes no more, or others wait for room before it.
 */
bool order_submit(struct policy_engine *e, const struct target *t, const struct waiting *what);

/* As order_submit(), for what may not be skipped: later, where there is no room now. */
void order_surely(struct policy_engine *e, const struct waiting *what);
/* Give the actuator what waited for room. Whether it took any of it. */
bool order_backlog(struct policy_engine *e);
/* Somebody has to know of what stays in force, also when its policy is no more. */
void order_not_undone(struct policy_engine *e, const struct waiting *w, int error);

/* ---- engine.c ---- */

/* Returns NULL. */
struct waiting *waiting_free(struct waiting *w);
void waiting_free_all(struct waiting **list);

struct policy *engine_policy(const struct policy_engine *e, uint32_t id);

/* Stop it for good and undo, keeping the reason. */
void engine_eject(struct policy_engine *e, struct policy *p, const char *format, ...)
        _printf_(3, 4);

/* Whether the process is in the policy's scope. */
bool engine_in_scope(const struct policy *p, const struct target *t);
/*
 * Whether the action is about the policy's GPU alone, where it is loaded for one: of memory that
 * is not known to be on another, or to come to its own; of channel groups on it; else of a process
 * that uses no other.
 */
bool engine_in_reach(const struct policy *p, const struct target *t, const struct policy_action *a);

/* ---- dispatch.c ---- */

/* Tell a policy of everything that is there already. */
void dispatch_introduce(struct policy_engine *e, struct policy *p);

/* Tell it of the processes alone. */
void dispatch_processes(struct policy_engine *e, struct policy *p);

/*
 * The policy hears with a tick of an action that was checked and then refused, if it wants to;
 * a second later if it was asked for as such a one was told of (retried).
 */
void dispatch_refused(struct policy_engine *e, struct policy *p, const struct policy_action *a,
                      enum policy_refusal reason, bool retried);

/* The window of the running second, emptied when a new one has begun. */
struct usage *usage_now(struct policy *p, uint64_t now_ns);

/* ---- stuck.c ---- */

/* Its result came: keep the order if another comes, or if it has to be given again. False: neither.
 */
bool stuck_keep(struct policy_engine *e, struct waiting *w, const struct policy_result *result);
/* The second result of an order that was given up. */
void stuck_returned(struct policy_engine *e, const struct policy_result *result);
/* Nothing is to be undone in a process that has ended. */
void stuck_forget_process(struct policy_engine *e, uint64_t process);

/* ---- undo.c ---- */

/* Whether both are about the same memory or process, in the same respect. */
bool undo_overlaps(const struct policy_action *a, const struct policy_action *b);
/* Whether both are about the very same memory or process, or its channel groups on the same GPU. */
bool undo_is_same_thing(const struct policy_action *a, const struct policy_action *b);
/* Whether the first is about all that the second is about: the same, or on all GPUs. */
bool undo_covers(const struct policy_action *a, const struct policy_action *b);
/* Whether the action takes back rather than sets. */
bool undo_takes_back(const struct policy_action *a);

/* An action of a policy took effect: remember what it takes to set it back. */
void undo_remember(struct policy_engine *e, const struct policy *p,
                   const struct policy_action *action, uint64_t before);
/*
 * The time slice that policies have in force for a process on a GPU, us; POLICY_GPUS_MAX: on all.
 * 0: none.
 */
uint32_t undo_slice_us(const struct policy_engine *e, uint64_t process, uint32_t gpu);
/* Order everything a policy has in force to be set back. The number. */
size_t undo_policy(struct policy_engine *e, uint32_t policy);
/* What it has in force about the very same thing; NULL: nothing. */
struct setting *undo_in_force(const struct policy_engine *e, uint32_t policy,
                              const struct policy_action *action);
/*
 * Order what it has in force of what the action is about to be set back, but for what an order that
 * waits decides about. The number.
 */
size_t undo_setting(struct policy_engine *e, const struct policy *p,
                    const struct policy_action *action);
/*
 * The same for what others have said of memory that this policy now decides about. Added to
 * displaced, as far as there is memory.
 */
void undo_overridden(struct policy_engine *e, uint32_t policy, const struct policy_action *action,
                     struct setting_list *displaced);
/* Set time slices of a process again that policies have in force on a GPU (0: all). */
void undo_renew_slices(struct policy_engine *e, uint64_t process, uint32_t to);
/* Put in force again what policies have in force of the process's memory that the action is about.
 */
void undo_renew(struct policy_engine *e, const struct policy_action *action);
/* Set back one action that took effect for a policy that is gone, or has no room for it. */
void undo_action(struct policy_engine *e, uint32_t policy, const char *owner,
                 const struct policy_action *action, uint64_t before);
/* Set back what is no more in the reach of the policy that has it in force. */
void undo_beyond_reach(struct policy_engine *e, const struct target *t);
/* Nothing is to be undone in a process that has ended, or about memory that was freed. */
void undo_forget_process(struct policy_engine *e, uint64_t process);
void undo_forget_memory(struct policy_engine *e, uint64_t process, uint64_t address,
                        uint64_t bytes);
uint64_t undo_count(const struct policy_engine *e, uint32_t policy);
