/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Global variables of a policy by name and type, as its BTF has them: read and
 * changed while it runs. Those declared with POLICY_PARAM and its kin have
 * bounds and a meaning; others are the policy's state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct policy_object;

struct policy_variable {
        const char *name;
        const char *doc; /* "" none */
        char type[32];   /* "u32", "text[8]" */
        char value[256]; /* as it would be set; elements of an array with commas */
        bool declared;   /* a parameter; else state */
        bool bounded;
        int64_t low, high;
};

/* Call row() for each variable, parameters first, until it returns nonzero. */
void policy_variables(const struct policy_object *o,
                      int (*row)(void *data, const struct policy_variable *v), void *data);

/*
 * Set "name" or "name[index]" from text. 0, or -errno with a sentence in
 * error[]: -ENOENT no such variable, -EINVAL not a value of its type, -ERANGE out
 * of bounds. The program sees either the old or the new number; a text is
 * written while the policy does not run.
 */
int policy_variable_set(struct policy_object *o, const char *name, const char *value, char *error,
                        size_t error_size);
