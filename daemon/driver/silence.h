/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * For how long the driver has not answered the call that a thread of ours is in, and how often
 * that has been. A call cannot be ended: who stops leaves the thread to it.
 */
#include <stdatomic.h>
#include <stdint.h>

/* From then on it is a silence, and said so. */
#define SILENCE_NS 2000000000ull
/* Who stops waits for a call that long; then the thread is left to it. */
#define SILENCE_END_NS 2000000000ull

/* Of one thread. Zeroed at first. */
struct silence {
        atomic_uint_least64_t begun_ns; /* of the call at hand; 0: it is in none */
        atomic_uint_least64_t count, total_ns;
};

/* By the thread, around its calls; begin() again in between: another call. */
void silence_begin(struct silence *s);
void silence_end(struct silence *s);

/* How long the call at hand has lasted; 0: there is none. Any thread. */
uint64_t silence_lasts_ns(const struct silence *s);

/* Silences that have ended and the one that lasts, and how long they were. Any thread. */
uint64_t silence_count(const struct silence *s);
uint64_t silence_total_ns(const struct silence *s);

/* A thread is left to the call it is in; it says so when that has returned. Any thread. */
void silence_abandon(void);
void silence_returned(void);

/* Threads that have been left and have not returned. What they may look at is not freed. */
unsigned silence_abandoned(void);
