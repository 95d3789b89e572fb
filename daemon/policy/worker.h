/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Carries orders out in a thread of its own, one after the other: a migration
 * takes milliseconds, which the event loop does not have. An order has two
 * halves: what the loop's data is needed for is done when it is taken (plan), the
 * rest in the thread (perform).
 *
 * A call of the driver that does not return cannot be ended. It is given up: its
 * order's result is -EINPROGRESS, a new thread goes on with the other orders, and
 * orders for the same process are refused until the call has returned.
 *
 * All functions are for the loop's thread; perform() alone, and what it calls, runs in the
 * worker's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/actuator.h"

#define WORKER_ORDERS_MAX 1024
#define WORKER_PLAN_BYTES 1024          /* what plan() may leave for perform() */
#define WORKER_STUCK_MAX  4             /* calls that are given up; then nothing is carried out */
#define WORKER_LIMIT_NS   5000000000ull /* after that a call is given up */
#define WORKER_HURRY_NS   2000000000ull /* the same after policy_worker_hurry() */

struct policy_worker;

struct policy_worker_ops {
        /*
         * On the loop's thread. 0, or -errno: the order is not carried out, and that is
         * its result. plan: zeroed, aligned for anything, handed to perform().
         */
        int (*plan)(void *data, const struct policy_order *order, void *plan);
        /* In the worker's thread; sets error, bytes and before. */
        void (*perform)(void *data, const struct policy_order *order, const void *plan,
                        struct policy_result *result);
        /* What plan() allocated for it; on the loop's thread, or, when it returns after
         * policy_worker_free(), in the worker's. May be NULL. */
        void (*release)(void *data, void *plan);
};

/*
 * limit_ns: how long an order may take before it is given up. 0 or -errno. ops and data outlive
 * the worker, and every call that it has given up: policy_worker_abandoned().
 */
int policy_worker_new(const struct policy_worker_ops *ops, void *data, uint64_t limit_ns,
                      struct policy_worker **ret_worker);
/*
 * Ends the thread after the order it is at, or gives that up; orders not begun are dropped.
 * Returns NULL.
 */
struct policy_worker *policy_worker_free(struct policy_worker *w);

/* Calls, of all workers that have been freed, that have not returned. Any thread. */
unsigned policy_worker_abandoned(void);

/*
 * From now on orders that have not begun are not carried out, except those that
 * undo: their result is -ECANCELED. So that ending does not take as long as what
 * waits. And calls are given up earlier.
 */
void policy_worker_hurry(struct policy_worker *w);

/* Readable when results wait: policy_worker_collect(). Not owned by the caller. */
int policy_worker_fd(const struct policy_worker *w);

/* As struct policy_actuator_ops has it: false when too many orders wait. */
bool policy_worker_submit(struct policy_worker *w, const struct policy_order *order);

/* No order is begun while it is on: more come that are to be planned before. */
void policy_worker_hold(struct policy_worker *w, bool on);

/* Whether a call for the process was given up and has not returned: who else calls may wait, too.
 */
bool policy_worker_is_stuck(struct policy_worker *w, uint32_t pid, uint64_t start_ticks);

/*
 * By perform(): the calls to come are about this process rather than the order's, until it turns to
 * another. False: one about it was given up and has not returned; it is not to be asked.
 */
bool policy_worker_turn_to(uint32_t pid, uint64_t start_ticks);

/* A few times a second: give up the call that takes too long. */
void policy_worker_watch(struct policy_worker *w);

/* Hand the results that are there to done(), in the order of the orders; late ones after them. */
void policy_worker_collect(struct policy_worker *w,
                           void (*done)(void *done_data, const struct policy_result *result),
                           void *done_data);

/* The same for all orders taken so far: waits for the thread, or gives up what it is at. */
void policy_worker_flush(struct policy_worker *w,
                         void (*done)(void *done_data, const struct policy_result *result),
                         void *done_data);
