/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/internal.h"

/* Whether a kernel glob (NULL: none) is short enough; else the call has been failed. */
bool filter_check_glob(struct api_call *call, const char *glob);
