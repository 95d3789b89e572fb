/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "device/context.h"
#include "device/device_abi.h"

#define WORD(field) (offsetof(struct gpuobs_kernel_ctx, field) / 4)

static const struct context_word words[sizeof(struct gpuobs_kernel_ctx) / 4] = {
        [WORD(block_x)] = {CONTEXT_REGISTER, "%ctaid.x"},
        [WORD(block_y)] = {CONTEXT_REGISTER, "%ctaid.y"},
        [WORD(block_z)] = {CONTEXT_REGISTER, "%ctaid.z"},
        [WORD(grid_x)] = {CONTEXT_REGISTER, "%nctaid.x"},
        [WORD(grid_y)] = {CONTEXT_REGISTER, "%nctaid.y"},
        [WORD(grid_z)] = {CONTEXT_REGISTER, "%nctaid.z"},
        [WORD(thread_x)] = {CONTEXT_REGISTER, "%tid.x"},
        [WORD(thread_y)] = {CONTEXT_REGISTER, "%tid.y"},
        [WORD(thread_z)] = {CONTEXT_REGISTER, "%tid.z"},
        [WORD(block_dim_x)] = {CONTEXT_REGISTER, "%ntid.x"},
        [WORD(block_dim_y)] = {CONTEXT_REGISTER, "%ntid.y"},
        [WORD(block_dim_z)] = {CONTEXT_REGISTER, "%ntid.z"},
        [WORD(gridid)] = {CONTEXT_GRIDID_LOW, 0},
        [WORD(gridid) + 1] = {CONTEXT_GRIDID_HIGH, 0},
        [WORD(kernel_id)] = {CONTEXT_KERNEL_ID, 0},
        [WORD(smid)] = {CONTEXT_REGISTER, "%smid"},
        [WORD(warpid)] = {CONTEXT_REGISTER, "%warpid"},
        [WORD(laneid)] = {CONTEXT_REGISTER, "%laneid"},
        [WORD(active_mask)] = {CONTEXT_ACTIVE_MASK, 0},
        [WORD(context)] = {CONTEXT_NUMBER, 0},
        [WORD(queue)] = {CONTEXT_QUEUE, 0},
        [WORD(pad)] = {CONTEXT_ZERO, 0},
};

const struct context_word *context_word(uint32_t offset)
{
        return &words[offset / 4];
}

static bool word_varies(uint32_t offset)
{
        switch (offset) {
        case offsetof(struct gpuobs_kernel_ctx, thread_x):
        case offsetof(struct gpuobs_kernel_ctx, thread_y):
        case offsetof(struct gpuobs_kernel_ctx, thread_z):
        case offsetof(struct gpuobs_kernel_ctx, laneid):
                return true;
        }
        return false;
}

bool context_varies(uint32_t offset, unsigned bytes)
{
        for (uint32_t word = offset & ~3u; word < offset + bytes; word += 4)
                if (word_varies(word))
                        return true;
        return false;
}
