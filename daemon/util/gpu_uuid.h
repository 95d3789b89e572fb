/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#define GPU_UUID_TEXT 41 /* "GPU-" and 36 characters, and a NUL */

/* "GPU-01234567-89ab-...", as the driver's own tools write it. */
void gpu_uuid_format(const uint8_t uuid[16], char ret_text[GPU_UUID_TEXT]);
