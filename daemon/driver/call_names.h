/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of driver calls that people meet often; everything else is a number. */
#include <stdint.h>

/* The request: "alloc", "control", "migrate"; NULL when it has no name here. */
const char *call_request_name(uint8_t device, uint32_t request);

/* What is allocated or controlled: "channel group", "set time slice"; NULL when it has none. */
const char *call_what_name(uint32_t what);

/* "rm", "uvm", "uvm-tools"; "other" for anything else. */
const char *call_device_name(uint8_t device);
