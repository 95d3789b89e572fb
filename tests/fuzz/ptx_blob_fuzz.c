/* SPDX-License-Identifier: Apache-2.0 */

/* The programs an agent gets from the daemon: trusted no more than they must be. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fragment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const char *text)
{
        static const uint64_t addresses[AGENT_MAP_MAX] = {0x6f0000000000, 0x7000000000};
        static const struct fragment_values values = {.label = "12",
                                                      .kernel = "%kernel",
                                                      .context = FRAGMENT_LOAD_ZERO,
                                                      .queue = {"ld.param.u32", "[p+-8]"},
                                                      .address = "%address",
                                                      .access = "66052",
                                                      .lanes = "%lanes",
                                                      .loosen = true};
        struct text out = {0};
        char *bound = NULL;

        if (!text || fragment_bind(text, addresses, &bound) < 0)
                return;
        fragment_expand(&out, bound, &values);
        if (out.failed || strstr(out.bytes, "@U@") || strstr(out.bytes, "@M0@") ||
            strstr(out.bytes, "@Q1@"))
                abort();
        text_done(&out);
        free(bound);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        /* As the agent has it: in memory that malloc aligned. */
        uint8_t *copy = malloc(size ? size : 1);
        struct programs p;

        if (!copy)
                return 0;
        memcpy(copy, data, size);
        if (programs_parse(copy, size, &p) == 0) {
                for (size_t i = 0; i < p.count; i++)
                        use(p.at[i].text);
                programs_done(&p);
        }
        free(copy);
        return 0;
}
