/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One program for entries and one for exits, in this order, as a list. */
#include "agent/splice.h"

enum {
        PAIR_ENTRY,
        PAIR_EXIT,
};

struct splice_pair {
        struct probe_program programs[2];
};

/* A NULL is a program without machine code: refused at every kernel. */
static inline struct splice_pair splice_pair(const struct probe_code *entry,
                                             const struct probe_code *exit)
{
        return (struct splice_pair){
                {{.where = AGENT_PROGRAM_ENTRY, .times = true, .label = "entry", .code = entry},
                 {.where = AGENT_PROGRAM_EXIT, .times = true, .label = "exit", .code = exit}}};
}

static inline int splice_pair_image(const void *image, size_t size, const struct splice_pair *pair,
                                    uint32_t first_id, struct splice_result **ret_result,
                                    const char **ret_reason)
{
        const struct probe_list list = {.programs = pair->programs, .count = 2};

        return splice_image(image, size, &list, first_id, ret_result, ret_reason);
}

/* At how many kernels the program is in. */
static inline size_t splice_count(const struct splice_result *r, int program)
{
        size_t n = 0;

        for (size_t k = 0; k < r->kernel_count; k++)
                n += r->kernels[k].outcomes[program].in;
        return n;
}

static inline const char *splice_refusal(const struct splice_kernel *k, int program)
{
        return k->outcomes[program].refusal;
}
