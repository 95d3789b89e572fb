/* SPDX-License-Identifier: Apache-2.0 */
#include "api/filter.h"

#include <string.h>

bool filter_check_glob(struct api_call *call, const char *glob)
{
        if (!glob || strlen(glob) <= GPUOBS_GLOB_MAX)
                return true;
        api_call_fail_param(call, "kernel", "is longer than 256 bytes");
        return false;
}
