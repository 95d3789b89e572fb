/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One handler per method of the schema: void api_handle_NAME(call, params). The
 * parameters have been decoded, the caller's privilege checked. A handler ends
 * the call with api_call_reply() or api_call_fail(), or starts a query or
 * stream that will.
 */
#include "libclient/schema_tables.h"

struct api_call;

#define M(name, method, params_, result, privilege, stream, doc)                                   \
        void api_handle_##name(struct api_call *call, const struct gpuobs_##params_ *params);
GPUOBS_METHODS(M)
#undef M
