/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * PTX as a text's own head allows it. A probe put into a text is read by the
 * rules of that text's .version and .target, and libraries carry texts for PTX 5.0
 * and sm_50 to this day. Neither line is changed: a newer target changes what the
 * application's own code means (from sm_70 on, the threads of a warp go their own
 * ways). Instead the probe says the same in older words where there are any.
 */
#include <stdbool.h>

struct ptx_dialect {
        unsigned version; /* .version, 10 * major + minor; 0: not said */
        unsigned target;  /* .target sm_NN; 0: not said */
};

/* Does a fragment made for PTX 7 and sm_70 have to be said differently there? */
bool ptx_dialect_is_old(const struct ptx_dialect *d);

/*
 * The fragment in this dialect, malloc'd; NULL: out of memory. What cannot be said
 * there stays as it is, for the driver to refuse.
 */
char *ptx_dialect_lower(const struct ptx_dialect *d, const char *fragment);
