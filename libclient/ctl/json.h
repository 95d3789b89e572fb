/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "schema_tables.h"

/* One object of the API as one line of JSON on stdout. Absent members are left out. */
void json_print(const struct schema_struct *s, const void *object);

/* The same with a text before its members: whose it is. */
void json_print_of(const char *name, const char *text, const struct schema_struct *s,
                   const void *object);

/* A text as a JSON string, with its quotes, on stdout. */
void json_put_text(const char *text);
