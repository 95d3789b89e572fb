/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A line of characters, each a stretch of time: who had a GPU for most of it. A
 * letter is a process, "." nobody (idle or switching), "?" not known.
 */
#include <stdint.h>

#define TIMELINE_WIDTH_MAX 400
#define TIMELINE_LETTERS   26

struct timeline {
        uint64_t from_ns, until_ns;
        uint32_t width;
        uint64_t ns[TIMELINE_WIDTH_MAX][TIMELINE_LETTERS + 2]; /* then the rest, then unknown */
};

/* Who a slice is of, when it is no letter's. */
#define TIMELINE_OTHER   TIMELINE_LETTERS
#define TIMELINE_UNKNOWN (TIMELINE_LETTERS + 1)

/* width 1 to TIMELINE_WIDTH_MAX; until_ns after from_ns. */
void timeline_begin(struct timeline *t, uint64_t from_ns, uint64_t until_ns, uint32_t width);

/* What lies outside is cut. who: 0 for A and so on. */
void timeline_add(struct timeline *t, uint64_t start_ns, uint64_t end_ns, uint32_t who);

/* width characters and a NUL. */
void timeline_text(const struct timeline *t, char ret_text[TIMELINE_WIDTH_MAX + 1]);
