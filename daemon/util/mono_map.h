/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CLOCK_MONOTONIC_RAW to CLOCK_MONOTONIC, with a bound of the error, from pairs of
 * readings. NTP may change the rate of CLOCK_MONOTONIC at any time and by any amount;
 * what is assumed of it: mono_map.c. Not thread-safe.
 */
#include <stddef.h>
#include <stdint.h>

#include "util/clock_sample.h"

/* The kernel's largest correction of the rate, 500 (adjtimex), and adjtime()'s, 500. */
#define MONO_RATE_MAX_PPM 1000

struct mono_map;

/*
 * read (may be NULL): called for a pair when a time later than the latest is asked for;
 * 0 or -errno. NULL on no memory.
 */
typedef int (*mono_map_read_fn)(void *data, struct clock_pair *ret_pair);
struct mono_map *mono_map_new(mono_map_read_fn read, void *data);
struct mono_map *mono_map_free(struct mono_map *m);

/* Add a pair, in order of time. -EINVAL: not later than the last, or CLOCK_MONOTONIC went back. */
int mono_map_add(struct mono_map *m, const struct clock_pair *pair);

/* Have a pair read and add it. -ENOTSUP: there is nothing to read; else as read and mono_map_add().
 */
int mono_map_read(struct mono_map *m);

/*
 * CLOCK_MONOTONIC ns of a time in [raw_ns - raw_error_ns, raw_ns + raw_error_ns], and the
 * bound of its error in ns, raw_error_ns included; it grows before the oldest pair kept
 * (seconds ago) and after the latest. -EAGAIN: no pair yet.
 */
int mono_map_convert(struct mono_map *m, uint64_t raw_ns, double raw_error_ns,
                     uint64_t *ret_monotonic_ns, double *ret_error_ns);

/*
 * A mono_map_read_fn: both clocks of this machine, the narrowest of a few brackets; error_ns: half
 * of it. Returns 0.
 */
int clock_pair_read(void *data, struct clock_pair *ret_pair);
