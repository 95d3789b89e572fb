/* SPDX-License-Identifier: Apache-2.0 */
#include "util/gpu_uuid.h"

#include <stdio.h>

void gpu_uuid_format(const uint8_t uuid[16], char ret_text[GPU_UUID_TEXT])
{
        int n = snprintf(ret_text, GPU_UUID_TEXT, "GPU-");

        for (int i = 0; i < 16; i++)
                n += snprintf(ret_text + n, (size_t)(GPU_UUID_TEXT - n), "%s%02x",
                              i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}
