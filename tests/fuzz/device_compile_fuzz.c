/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The compiler, from any instructions, verified or not: it refuses them with a
 * reason or writes a fragment. Map references are spread over maps of every
 * kind.
 */
#include <string.h>

#include "device/compile.h"
#include "device/device_abi.h"
#include "device/message.h"
#include "unit/test.h"
#include "util/macro.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char constants[] = "block %u of %llu\0%5d %c %x\0a string %s\0%%";

static const struct device_map_info maps[] = {
        {.name = "records",
         .placement = GPUOBS_PLACE_HOST,
         .type = BPF_MAP_TYPE_ARRAY,
         .key_size = 4,
         .value_size = 32,
         .max_entries = 65536,
         .bytes = DEVICE_RING_BYTES},
        {.name = "counters",
         .placement = GPUOBS_PLACE_DEVICE,
         .type = BPF_MAP_TYPE_ARRAY,
         .key_size = 4,
         .value_size = 20,
         .max_entries = 3,
         .bytes = 72},
        {.name = "table",
         .placement = GPUOBS_PLACE_DEVICE,
         .type = BPF_MAP_TYPE_HASH,
         .key_size = 8,
         .value_size = 15,
         .max_entries = 40,
         .bytes = 129 * 32 + 64},
        {.name = "pairs",
         .placement = GPUOBS_PLACE_DEVICE,
         .type = BPF_MAP_TYPE_HASH,
         .key_size = 20,
         .value_size = 8,
         .max_entries = 40,
         .bytes = 128 * 48 + 64},
        {.name = "own",
         .placement = GPUOBS_PLACE_DEVICE,
         .spread = DEVICE_PER_THREAD,
         .type = BPF_MAP_TYPE_ARRAY,
         .key_size = 4,
         .value_size = 8,
         .max_entries = 3,
         .bytes = 24ULL * DEVICE_SMS_MAX * DEVICE_WARPS_MAX * 32},
        {.name = "ring",
         .placement = GPUOBS_PLACE_DEVICE,
         .type = BPF_MAP_TYPE_RINGBUF,
         .max_entries = 4096,
         .record_bytes = 100,
         .head_map = 5,
         .bytes = 128 + 32 * 128},
        {.name = "constants",
         .placement = GPUOBS_PLACE_DEVICE,
         .type = BPF_MAP_TYPE_ARRAY,
         .key_size = 4,
         .value_size = sizeof(constants),
         .max_entries = 1,
         .bytes = sizeof(constants),
         .constant = (const uint8_t *)constants},
};

#define RING 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct device_cost budget = {500, 50, 5};
        size_t count = size / sizeof(struct bpf_insn);
        struct bpf_insn *insns = malloc(count * sizeof(*insns) + 1);
        struct compile_job job = {.insns = insns,
                                  .count = count,
                                  .maps = maps,
                                  .map_count = ARRAY_SIZE(maps),
                                  .messages = size & 256 ? NULL : messages_new(),
                                  .print_map = RING,
                                  .alone = size & 32,
                                  .verified = size & 64 ? 1000 : 0,
                                  .budget = size & 128 ? &budget : NULL,
                                  .where = size & 1 ? DEVICE_EXIT : DEVICE_ENTRY,
                                  .scope = (enum device_scope)(1 + size / 2 % 4)};
        struct device_cost cost = {};
        struct refusal refusal = {};
        struct text text = {};
        int error;

        if (size & 256 && job.scope >= DEVICE_SCOPE_WARP)
                job.where = DEVICE_MEM;
        CHECK(insns);
        memcpy(insns, data, count * sizeof(*insns));
        for (size_t i = 0; i < count; i++)
                if (insns[i].code == (BPF_LD | BPF_IMM | BPF_DW) &&
                    insns[i].src_reg == BPF_PSEUDO_MAP_FD && insns[i].imm == 0)
                        insns[i].imm = (int32_t)(i % ARRAY_SIZE(maps));
        error = device_compile(&job, &refusal, &text, &cost);
        if (error)
                CHECK(refusal.reason[0] && (refusal.insn < count || count == 0));
        else
                CHECK(!strncmp(text.data, "{\n", 2) && !strcmp(text.data + text.size - 2, "}\n"));
        text_done(&text);
        messages_free(job.messages);
        free(insns);
        return 0;
}
