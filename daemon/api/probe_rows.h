/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Rows about device programs, made in a call's arena. */
#include <stdbool.h>

#include "api/backend.h"

struct api_call;
struct device_map_info;

void probe_map_row(const struct device_map_info *map, struct gpuobs_probe_map *ret_row);

/*
 * The object of this name; false: there is none. What it points to lives until the
 * backend changes objects.
 */
bool probe_find(struct api_call *call, const char *name, struct api_probe *ret_probe);

/* ptx: the texts of its programs, too. False: out of memory. */
bool probe_row(struct api_call *call, const struct api_probe *p, bool ptx,
               struct gpuobs_probe *ret_row);
