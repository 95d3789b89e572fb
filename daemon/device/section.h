/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Section names of device programs: gpu/<where>[.<scope>]. */
#include <stdbool.h>
#include <stddef.h>

#include "device/program.h"

struct section {
        enum device_where where;
        enum device_scope scope;
};

/* 0; -EINVAL: not such a name, `error` then holds a phrase that says what is wrong. */
int section_parse(const char *name, char *error, size_t error_size, struct section *ret_section);
