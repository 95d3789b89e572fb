/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* /proc/devices: the major numbers that the kernel gave to drivers. */
#include <stdint.h>

/* The major number of a character device in such a text; 0 when it is not there. */
uint32_t proc_devices_parse(const char *text, const char *name);

/* The same of a file; 0 also when it cannot be read. */
uint32_t proc_devices_find(const char *path, const char *name);
