/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/*
 * Shell-like patterns on UTF-8 text, the case minded: * any characters, ? one
 * character, [a-z] one of a set, [^a-z] one not in it ("]" first in a set is
 * itself). As SQLite's GLOB, but the time is at most the product of the two
 * lengths: SQLite's own takes time exponential in the number of stars, which
 * anybody who may ask for kernels could use to stop a reader for good.
 */
bool glob_matches(const char *pattern, const char *text);
