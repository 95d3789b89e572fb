/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernels that are to be left alone, as the setting probe_rules says: words
 * -image:GLOB, -kernel:GLOB, +image:GLOB, +kernel:GLOB. The first that matches a
 * kernel decides; without one it is probed. An image is the file that holds it.
 */
#include <fnmatch.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "agent_abi.h"

#define PROBE_RULES_MAX 64

struct probe_rule {
        bool exclude;
        bool of_image; /* the glob is matched with the image's path, else the kernel's name */
        const char *glob;
};

struct probe_rules {
        struct probe_rule rules[PROBE_RULES_MAX];
        size_t count;
        char text[AGENT_RULES_MAX]; /* the globs are in here */
};

/* Words that are no rules, and those beyond PROBE_RULES_MAX, are left out. */
void probe_rules_parse(const char *text, struct probe_rules *ret_rules);

/* rules may be NULL. path: of the file that holds the image, "" when there is none. */
static inline bool probe_rules_exclude(const struct probe_rules *rules, const char *path,
                                       const char *kernel)
{
        for (size_t i = 0; rules && i < rules->count; i++) {
                const struct probe_rule *r = &rules->rules[i];

                if (fnmatch(r->glob, r->of_image ? path : kernel, 0) == 0)
                        return r->exclude;
        }
        return false;
}

/* Whether no kernel of the file can be meant, whatever its name: it need not be looked into. */
static inline bool probe_rules_exclude_image(const struct probe_rules *rules, const char *path)
{
        for (size_t i = 0; rules && i < rules->count; i++) {
                const struct probe_rule *r = &rules->rules[i];

                if (r->of_image ? fnmatch(r->glob, path, 0) == 0 : strcmp(r->glob, "*") == 0)
                        return r->exclude;
                if (!r->of_image && !r->exclude)
                        return false; /* it may be of a kernel in there */
        }
        return false;
}
