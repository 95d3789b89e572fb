/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/proc_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/macro.h"

#define BYTES_MAX 16384

uint32_t proc_devices_parse(const char *text, const char *name)
{
        size_t length = strlen(name);
        const char *line = text, *word;
        unsigned long major;
        char *end;

        /* Block devices, whose numbers are others, come second. */
        while (line && strncmp(line, "Block devices", strlen("Block devices")) != 0) {
                major = strtoul(line, &end, 10);
                word = end + strspn(end, " ");
                if (end != line && major <= UINT32_MAX && strncmp(word, name, length) == 0 &&
                    (word[length] == '\n' || word[length] == '\0'))
                        return (uint32_t)major;
                line = strchr(line, '\n');
                line = line ? line + 1 : NULL;
        }
        return 0;
}

uint32_t proc_devices_find(const char *path, const char *name)
{
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        char text[BYTES_MAX];
        size_t n;

        if (!f)
                return 0;
        n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = '\0';
        return proc_devices_parse(text, name);
}
