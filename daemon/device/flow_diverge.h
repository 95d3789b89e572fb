/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where the lanes of a warp may have gone different ways. */
#include "device/flow.h"

/*
 * Mark in code->divergent what may run while the lanes of a warp are apart, as far as
 * `flow` knows which branches part them. ret_changed: something was marked that was
 * not before, so what depends on it must be followed again. 0 or -ENOMEM.
 */
int flow_find_divergent(const struct code *code, const struct flow *flow, bool *ret_changed);
