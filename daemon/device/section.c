/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "device/section.h"
#include "util/macro.h"

struct word {
        const char *text;
        int value;
};

static const struct word places[] = {
        {"entry", DEVICE_ENTRY},
        {"exit", DEVICE_EXIT},
        {"mem", DEVICE_MEM},
};

static const struct word scopes[] = {
        {"grid", DEVICE_SCOPE_GRID},
        {"block", DEVICE_SCOPE_BLOCK},
        {"warp", DEVICE_SCOPE_WARP},
        {"thread", DEVICE_SCOPE_THREAD},
};

static int find_word(const struct word *words, size_t count, const char *text, size_t length)
{
        for (size_t i = 0; i < count; i++)
                if (strlen(words[i].text) == length && !memcmp(words[i].text, text, length))
                        return words[i].value;
        return 0;
}

int section_parse(const char *name, char *error, size_t error_size, enum device_where *ret_where,
                  enum device_scope *ret_scope)
{
        const char *place, *dot;
        int where, scope;

        if (strncmp(name, "gpu/", 4) != 0) {
                snprintf(error, error_size,
                         "section \"%s\" does not hold a device program: its name does not start "
                         "with \"gpu/\"",
                         name);
                return -EINVAL;
        }
        place = name + 4;
        dot = strchrnul(place, '.');
        where = find_word(places, ARRAY_SIZE(places), place, (size_t)(dot - place));
        if (!where) {
                snprintf(error, error_size,
                         "section \"%s\": a device program runs at gpu/entry, gpu/exit or "
                         "gpu/mem",
                         name);
                return -EINVAL;
        }
        scope = where == DEVICE_MEM ? DEVICE_SCOPE_WARP : DEVICE_SCOPE_BLOCK;
        if (*dot)
                scope = find_word(scopes, ARRAY_SIZE(scopes), dot + 1, strlen(dot + 1));
        if (!scope) {
                snprintf(error, error_size,
                         "section \"%s\": the scope is one of .grid, .block, .warp, .thread", name);
                return -EINVAL;
        }
        if (where == DEVICE_MEM && scope != DEVICE_SCOPE_WARP && scope != DEVICE_SCOPE_THREAD) {
                snprintf(error, error_size,
                         "section \"%s\": at gpu/mem the scope is .warp or .thread", name);
                return -EINVAL;
        }
        *ret_where = (enum device_where)where;
        *ret_scope = (enum device_scope)scope;
        return 0;
}
