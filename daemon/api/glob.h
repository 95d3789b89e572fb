/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/*
 * Whether the text matches the pattern, as SQLite's GLOB would say: * ? [abc]
 * [a-z] [^a-z], no escapes, case matters. Takes at most length * length steps,
 * whoever wrote the pattern.
 */
bool glob_match(const char *pattern, const char *text);
