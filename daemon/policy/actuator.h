/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who carries actions out. The engine has checked an order: known process,
 * bounded arguments, own managed memory. The actuator makes sure that the
 * process still is who it was at the moment it acts, and that what would have to
 * be undone after a crash is on disk before.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policies/policy_abi.h"

#define POLICY_NAME_MAX 32 /* with the NUL */
#define POLICY_GPUS_MAX 64

struct policy_order {
        uint64_t id;          /* of the order, never used again */
        uint64_t start_ticks; /* with pid: which process is meant */
        uint32_t pid;
        uint32_t gpu;
        bool undo;  /* of an action done before: its inverse, or what stays in force renewed */
        bool noted; /* undo: to what is noted of it, if anything; the action's value does not say */
        char owner[POLICY_NAME_MAX]; /* the policy */
        struct policy_action action;
};

struct policy_result {
        uint64_t id;
        /*
         * 0; -ESRCH process gone; -ENOSPC no room on the GPU; -EOPNOTSUPP; -EINPROGRESS a call
         * for the process does not return; other.
         */
        int error;
        uint64_t bytes;  /* that were moved */
        uint64_t before; /* value a time slice or a limit had */
        /* Channel groups that failed, or were too many, although others of the process did not. */
        uint32_t missed;
        bool in_part;  /* it failed, but some of it may be in force: it is to be set back */
        bool given_up; /* it is this order's call that does not return: a late result follows */
        bool late;     /* what became of an order that was given up: its second result */
};

struct policy_actuator_ops {
        /*
         * Take an order; its result goes to policy_engine_done(), once, or once more if it
         * was given up, from this call or later on the engine's thread. False: too many are
         * waiting, no result will come.
         */
        bool (*submit)(void *data, const struct policy_order *order);

        /*
         * A policy runs, and orders come one after the other; or it has run. What they note
         * before they act can be noted together. May be NULL.
         */
        void (*hold)(void *data, bool on);

        /* A policy was ejected; it is being undone. May be NULL. */
        void (*ejected)(void *data, const char *policy, const char *reason);

        /* What a policy, unloaded by now perhaps, had set could not be set back. May be NULL. */
        void (*not_undone)(void *data, const char *policy, const struct policy_action *action,
                           int error);

        /* An order's call was given up; or, later, it has returned. May be NULL. */
        void (*stuck)(void *data, const char *policy, const struct policy_action *action,
                      uint32_t pid, bool returned);

        /* Return when the results of all orders taken have been handed over, but late ones. */
        void (*flush)(void *data);
};
