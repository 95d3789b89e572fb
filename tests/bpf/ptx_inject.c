/* SPDX-License-Identifier: Apache-2.0 */

/*
 * ptx_inject FRAGMENT TEXT: print a PTX text with a fragment at the entry and at
 * every exit of its kernels, as the agent would (the maps at example addresses).
 * Exits with 3 when the text is refused.
 */
#include <stdio.h>
#include <stdlib.h>

#include "agent/fragment.h"
#include "agent/ptx_inject.h"

#define FILE_MAX (4u << 20)

static char *read_text(const char *path, size_t *ret_size)
{
        char *text = malloc(FILE_MAX);
        FILE *f = fopen(path, "re");

        if (!text || !f) {
                perror(path);
                exit(2);
        }
        *ret_size = fread(text, 1, FILE_MAX - 1, f);
        text[*ret_size] = '\0';
        fclose(f);
        return text;
}

int main(int argc, char **argv)
{
        static const uint64_t maps[AGENT_MAP_MAX] = {0x6f0000000000, 0x7f1234000000, 0x7f1235000000,
                                                     0x7f1236000000};
        struct probe_program programs[] = {{.where = AGENT_PROGRAM_ENTRY},
                                           {.where = AGENT_PROGRAM_EXIT}};
        struct ptx_result *result = NULL;
        const char *why = "out of memory";
        struct ptx_probes probes;
        char *fragment, *text, *bound;
        size_t size;

        if (argc != 3) {
                fprintf(stderr, "usage: %s FRAGMENT TEXT\n", argv[0]);
                return 2;
        }
        fragment = read_text(argv[1], &size);
        text = read_text(argv[2], &size);
        if (fragment_bind(fragment, maps, &bound) < 0) {
                fprintf(stderr, "%s: not a fragment\n", argv[1]);
                return 2;
        }
        programs[0].text = programs[1].text = bound;
        probes = (struct ptx_probes){.list = {.programs = programs, .count = 2},
                                     .layout = grid_layout_find(90)};
        if (ptx_inject(text, size, &probes, 7, &result, &why) < 0) {
                fprintf(stderr, "%s: %s\n", argv[2], why);
                return 3;
        }
        fputs(result->text, stdout);
        ptx_result_free(result);
        free(bound);
        free(text);
        free(fragment);
        return 0;
}
