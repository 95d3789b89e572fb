/* SPDX-License-Identifier: Apache-2.0 */

/* A trace of managed memory: any bytes are refused with a sentence, or replayed to the end. */
#include "policy/sim/replay.h"
#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Blocks the trace touches: replaying many says nothing new and takes long. */
static uint64_t weight(const struct uvm_trace *t)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < t->count; i++)
                if (t->records[i].kind >= UVM_TRACE_FREE)
                        bytes += t->records[i].bytes / POLICY_BLOCK_BYTES + 1;
        return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct replay_options options = {.gpu_bytes = 64 * (uint64_t)POLICY_BLOCK_BYTES,
                                         .costs = uvm_costs_h200};
        struct uvm_trace *t = NULL;
        struct replay_result result;
        char error[200] = "";
        int r = uvm_trace_parse(data, size, error, sizeof(error), &t);

        CHECK(r == 0 || error[0]);
        if (r == 0 && weight(t) < 20000) {
                CHECK_EQ(replay(t, &options, &result), 0);
                options.optimum = true;
                CHECK_EQ(replay(t, &options, &result), 0);
        }
        uvm_trace_free(t);
        return 0;
}
