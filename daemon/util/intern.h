/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Interned strings: one id per distinct text for the life of the table. Ids are
 * small, start at 1 and never change; 0 means "no string". Not thread-safe for
 * writing; intern_text() of an id already seen by another thread is safe after
 * a happens-before hand-over of that id (texts never move).
 */
#include <stddef.h>
#include <stdint.h>

struct intern;

/* NULL on no memory. */
struct intern *intern_new(void);
struct intern *intern_free(struct intern *t);

/* Id of the text (length bytes, no NUL inside needed at the end); 0 on no memory. */
uint64_t intern_id(struct intern *t, const char *text, size_t length);

/* NUL-terminated text of an id; "" for 0 or an unknown id. Valid until intern_free(). */
const char *intern_text(const struct intern *t, uint64_t id);

/* Number of ids given so far; ids are 1 .. intern_count(). */
uint64_t intern_count(const struct intern *t);
