/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "device/context.h"
#include "device/device_abi.h"

/* A program of gpu/mem has the other context at the start of its own. */
#define WORD(field)        (offsetof(struct gpuobs_kernel_ctx, field) / 4)
#define ACCESS_WORD(field) (offsetof(struct gpuobs_mem_ctx, field) / 4)
_Static_assert(offsetof(struct gpuobs_mem_ctx, kernel) == 0, "one context begins like the other");

static const struct context_word words[sizeof(struct gpuobs_mem_ctx) / 4] = {
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
        [ACCESS_WORD(address)] = {CONTEXT_ADDRESS_LOW, 0},
        [ACCESS_WORD(address) + 1] = {CONTEXT_ADDRESS_HIGH, 0},
        [ACCESS_WORD(size)] = {CONTEXT_SIZE, 0},
        [ACCESS_WORD(kind)] = {CONTEXT_KIND, 0},
        [ACCESS_WORD(space)] = {CONTEXT_SPACE, 0},
        [ACCESS_WORD(lanes)] = {CONTEXT_LANES, 0},
};

uint32_t context_bytes(enum device_where where)
{
        return where == DEVICE_MEM ? sizeof(struct gpuobs_mem_ctx)
                                   : sizeof(struct gpuobs_kernel_ctx);
}

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
        case offsetof(struct gpuobs_mem_ctx, address):
        case offsetof(struct gpuobs_mem_ctx, address) + 4:
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
