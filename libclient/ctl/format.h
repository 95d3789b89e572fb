/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Numbers for people. Each returns one of a few static buffers, good until a
 * handful of further calls.
 */
#include <stdbool.h>
#include <stdint.h>

/* "812 ns", "3.42 µs", "-1.20 ms", "4.56 s". */
const char *format_duration(int64_t ns);
/* The same, "-" when it is not known. */
const char *format_known_duration(bool known, int64_t ns);
/* "512 B", "1.5 KiB", "3.2 GiB". */
const char *format_bytes(uint64_t bytes);
/* A CLOCK_MONOTONIC time as local time of day: "14:03:22.123456". */
const char *format_time(uint64_t monotonic_ns);
const char *format_count(uint64_t n);
/* "97.3 %" of a whole; "-" of nothing. */
const char *format_share(uint64_t part, uint64_t whole);
/* printf into a buffer of the same kind. */
const char *format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
