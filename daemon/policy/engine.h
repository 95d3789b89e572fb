/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The policy engine: keeps loaded policies, runs them on events within their
 * scopes and budgets, checks what they ask for, settles their conflicts, hands
 * orders to the actuator, keeps what has to be undone, and counts everything.
 *
 * One thread. Time is what the caller says (CLOCK_MONOTONIC ns in the daemon,
 * simulated ns in the simulator) and must not go backwards.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/actuator.h"
#include "policy/variables.h"
#include "policies/policy_abi.h"

#define POLICIES_MAX      32
#define POLICY_REASON_MAX 200

struct policy_engine;

extern const char *const policy_refusal_names[POLICY_REFUSED_COUNT];
extern const char *const policy_refusal_texts[POLICY_REFUSED_COUNT];

/* What a policy may use in a second. 0: the default. */
struct policy_limits {
        uint64_t runs;
        uint64_t run_ns; /* beyond: it is ejected */
        uint64_t actions;
        uint64_t bytes;
};

struct policy_options {
        const char *name; /* unique; [A-Za-z0-9_.-], at most POLICY_NAME_MAX - 1 */
        int32_t precedence;
        bool has_gpu;
        uint32_t gpu;
        const char *cgroup; /* globs; NULL: all */
        const char *process;
        bool may_discard; /* contents of memory may be thrown away for it */
        bool is_disabled; /* load only: policy_engine_enable() starts it */
        struct policy_limits limits;
};

struct policy_stats {
        uint64_t events;  /* items count for one each, an event without items for one */
        uint64_t skipped; /* not run: over its budget of runs */
        uint64_t runs;
        uint64_t run_ns;
        uint64_t longest_ns;
        uint64_t asked; /* actions; = done + refused + waiting */
        uint64_t done;
        uint64_t refused[POLICY_REFUSED_COUNT];
        uint64_t waiting;
        uint64_t overrode;   /* done although another, lower policy wanted the opposite */
        uint64_t bytes;      /* moved, as the driver took the orders */
        uint64_t bytes_seen; /* of these, seen moving: of processes that are watched */
        uint64_t undone;     /* settings set back, or that was tried */
        uint64_t not_undone; /* of these, those that could not be */
        uint64_t renewed;    /* set once more: slices, after what a process did since; advice, */
                             /* after an order of another policy that took its place failed */
        uint64_t unrenewed;  /* of these, those that could not be */
        uint64_t missed; /* channel groups that failed, or were too many, in actions that succeeded
                          */
        uint64_t untold; /* refusals that it was to hear of, beyond those that are kept */
};

enum policy_state { POLICY_ACTIVE, POLICY_DISABLED, POLICY_EJECTED };

struct policy_info {
        uint32_t id;
        enum policy_state state;
        const char *reason; /* of an ejection, else "" */
        const struct policy_options *options;
        const struct policy_stats *stats;
        uint64_t settings; /* in force: to be undone */
        uint64_t loaded_ns;
};

/* NULL on no memory. ops and data outlive the engine. */
struct policy_engine *policy_engine_new(const struct policy_actuator_ops *ops, void *data);

/* Unload all and free. Returns NULL. */
struct policy_engine *policy_engine_free(struct policy_engine *e);

/* ---- policies ---- */

/*
 * Load and start. 0, or -errno with a sentence in error[]: -EEXIST the name is
 * taken, -ENOSPC too many, -EINVAL bad options, else as policy_object_load().
 */
int policy_engine_load(struct policy_engine *e, const struct policy_options *options,
                       const void *bytes, size_t size, uint64_t now_ns, char *error,
                       size_t error_size);

/* By name: 0, or -ENOENT. Unloading and disabling undo what the policy set. */
int policy_engine_unload(struct policy_engine *e, const char *name);
int policy_engine_disable(struct policy_engine *e, const char *name);
/* Run again, also after an ejection; it is told of the processes there are. */
int policy_engine_enable(struct policy_engine *e, const char *name, uint64_t now_ns);
/*
 * -ENOENT also when it has no such variable; see policy_variable_set(). The policy
 * is told of all processes again: patterns may match others than before.
 */
int policy_engine_set(struct policy_engine *e, const char *name, const char *variable,
                      const char *value, char *error, size_t error_size);

/* Unload all: waits until what policies set has been set back. */
void policy_engine_unload_all(struct policy_engine *e);

uint32_t policy_engine_count(const struct policy_engine *e);

/* Each policy, by descending precedence, until row() returns nonzero. */
void policy_engine_each(const struct policy_engine *e,
                        int (*row)(void *data, const struct policy_info *info), void *data);
int policy_engine_variables(const struct policy_engine *e, const char *name,
                            int (*row)(void *data, const struct policy_variable *v), void *data);

/* ---- the world ---- */

struct policy_process {
        uint64_t key; /* not 0 */
        uint64_t start_ticks;
        uint32_t pid;
        uint32_t uid;
        uint32_t gpu; /* it uses; POLICY_GPUS_MAX or more: none is known yet */
        const char *comm;
        const char *cgroup;
};

/* 0 or -ENOMEM. */
int policy_engine_process_start(struct policy_engine *e, const struct policy_process *p,
                                uint64_t now_ns);
/* The process uses this GPU, too; it is known by the first. Policies of that GPU's scope meet it.
 */
void policy_engine_process_gpu(struct policy_engine *e, uint64_t process, uint32_t gpu,
                               uint64_t now_ns);
/* Tell of one that is known already once more: something about it has changed. */
void policy_engine_process_again(struct policy_engine *e, uint64_t process, uint64_t now_ns);
void policy_engine_process_exit(struct policy_engine *e, uint64_t process, uint64_t now_ns);
/*
 * 0, or policies do not hear of it and cannot act on it: -ENOSPC the process has too many, -ENOMEM,
 * -EINVAL no memory range. Of a process that is not known: 0, and ignored.
 */
int policy_engine_alloc(struct policy_engine *e, uint64_t process, uint64_t address, uint64_t bytes,
                        uint64_t now_ns);
void policy_engine_freed(struct policy_engine *e, uint64_t process, uint64_t address,
                         uint64_t now_ns);

/* The GPU's memory now. POLICY_UNKNOWN where it is not known. */
void policy_engine_memory(struct policy_engine *e, uint32_t gpu, uint64_t total_bytes,
                          uint64_t free_bytes);

/*
 * Launches, faults, migrations of one process. Items of a process that is not known
 * are ignored. gpu: launched on; POLICY_GPUS_MAX or more: not known.
 */
void policy_engine_launches(struct policy_engine *e, uint64_t process, uint32_t gpu,
                            uint32_t launches, uint64_t depth, const struct policy_range *ranges,
                            size_t n, uint64_t now_ns);
void policy_engine_faults(struct policy_engine *e, uint64_t process,
                          const struct policy_fault *faults, size_t n, uint64_t now_ns);
void policy_engine_moved(struct policy_engine *e, uint64_t process,
                         const struct policy_moved *moved, size_t n, uint64_t now_ns);
/*
 * The process has made a channel group on a GPU, or set the time slice of one itself: the slice
 * that a policy has in force for it there is set again, once for all that is told before that is
 * done. POLICY_GPUS_MAX or more: the GPU is not known.
 */
void policy_engine_slices_changed(struct policy_engine *e, uint64_t process, uint32_t gpu);
/*
 * Who had the GPU in the period just over, for policies that are of it. POLICY_GPUS_MAX: who had
 * any GPU, for those that are of no one GPU. slice_us: that the process has set itself.
 */
void policy_engine_shares(struct policy_engine *e, uint32_t gpu, const struct policy_share *shares,
                          size_t n, uint64_t now_ns);
/* Little memory is left on the GPU. */
void policy_engine_pressure(struct policy_engine *e, uint32_t gpu, uint64_t now_ns);
/* Ten times a second. */
void policy_engine_tick(struct policy_engine *e, uint64_t now_ns);

/* Whether a running policy has a program for such events, so that they are worth collecting. */
bool policy_engine_wants(const struct policy_engine *e, enum policy_event_type type);
/* The same for events about one process. */
bool policy_engine_wants_of(const struct policy_engine *e, uint64_t process,
                            enum policy_event_type type);

/* ---- the actuator ---- */

void policy_engine_done(struct policy_engine *e, const struct policy_result *result);
