/* SPDX-License-Identifier: Apache-2.0 */

/*
 * PTX as an application may hand it to the driver. What is accepted must stay
 * PTX: the result parses again, with the same kernels in it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/ptx_inject.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct grid_layout layout = {90, "%envreg6", -8};
static const struct probe_program programs[] = {
        {.where = AGENT_PROGRAM_ENTRY,
         .text = "{ .reg .b32 t; activemask.b32 t; mov.u32 t, @K@; @Q0@ t, @Q1@; L@U@: }"},
        {.where = AGENT_PROGRAM_EXIT,
         .text = "{ .reg .b32 u; @p bra L@U@; mov.u32 u, @K@; @C0@ u, @C1@; L@U@: }"},
        {.where = AGENT_PROGRAM_EXIT, .text = "{ .reg .b32 v; activemask.b32 v; }"},
        {.where = AGENT_PROGRAM_MEM,
         .text = "{ .reg .b64 a; mov.u64 a, @A@; @p bra L@U@; mov.u32 u, @S@; L@U@: }"}};
static const struct ptx_probes probes = {.list = {.programs = programs, .count = 4},
                                         .layout = &layout};

static void check_again(const struct ptx_result *first)
{
        struct ptx_result *second = NULL;

        if (ptx_inject(first->text, first->bytes, &probes, 1, &second, NULL) != 0)
                abort();
        if (second->kernel_count != first->kernel_count)
                abort();
        for (size_t i = 0; i < first->kernel_count; i++)
                if (strcmp(first->kernels[i].name, second->kernels[i].name) != 0)
                        abort();
        ptx_result_free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct ptx_result *result = NULL;
        const char *reason = NULL;
        int r = ptx_inject((const char *)data, size, &probes, 1, &result, &reason);

        if (r < 0) {
                if (!reason || !*reason || result)
                        abort();
                return 0;
        }
        if (result->bytes < size)
                abort();
        check_again(result);
        ptx_result_free(result);
        return 0;
}
