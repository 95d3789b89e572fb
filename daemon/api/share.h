/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Slices as rows: what slices.list and slices.subscribe share. */
#include "api/internal.h"

struct kept_slice;

/* What a caller asked for. */
struct share_filter {
        bool has_pid, has_gpu;
        uint32_t pid, gpu;
};

/* Whether a slice passes, and the uid may see it. */
bool share_wants_slice(struct api_server *s, uint32_t uid, const struct kept_slice *k,
                       const struct share_filter *f);

/* Encode a slice at the end of rows. */
void share_add_slice(struct api_server *s, struct wire_buffer *rows, const struct kept_slice *k);
