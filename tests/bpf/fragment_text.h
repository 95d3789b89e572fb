/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What device_compile prints of an object, or of several one behind the other: "// maps:" with
 * the names of its maps by their numbers, then "// NAME" and a fragment for each program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fragment.h"

/* Where a map is. */
struct fragment_map {
        const char *name;
        uint64_t address;
};

/* Addresses of the maps in the last line of names that begins before `end`. */
static inline void fragment_text_maps(const char *texts, const char *end,
                                      const struct fragment_map *maps, size_t count,
                                      uint64_t ret_addresses[AGENT_MAP_MAX])
{
        static const char head[] = "// maps:";
        const char *line = NULL;

        for (const char *at = texts; (at = strstr(at, head)) && at < end; at++)
                line = at + sizeof(head) - 1;
        for (size_t n = 0; line && *line == ' ' && n < AGENT_MAP_MAX; n++) {
                size_t bytes = strcspn(++line, " \n");

                for (size_t m = 0; m < count; m++)
                        if (strlen(maps[m].name) == bytes && !strncmp(maps[m].name, line, bytes))
                                ret_addresses[n] = maps[m].address;
                line += bytes;
        }
}

/* A program's fragment with these maps, to free(). NULL: there is none, or it wants others. */
static inline char *fragment_text_find(const char *texts, const char *program,
                                       const struct fragment_map *maps, size_t count)
{
        uint64_t addresses[AGENT_MAP_MAX] = {0};
        const char *start, *end;
        char head[80], *text, *bound = NULL;

        snprintf(head, sizeof(head), "// %s\n{", program);
        start = strstr(texts, head);
        end = start ? strstr(start, "\n}\n") : NULL;
        if (!end)
                return NULL;
        fragment_text_maps(texts, start, maps, count, addresses);
        text = strndup(start, (size_t)(end + 3 - start));
        if (text && fragment_bind(text, addresses, &bound) < 0)
                bound = NULL;
        free(text);
        return bound;
}
