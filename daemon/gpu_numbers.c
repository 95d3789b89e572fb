/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_numbers.h"

#include <stdbool.h>
#include <string.h>

#include "gpu_clocks.h"

static bool is_minor(const struct gpu_clocks *clocks, uint32_t number)
{
        uint32_t gpu, instance;

        for (size_t i = 0; i < gpu_clocks_count(clocks); i++) {
                (void)gpu_clocks_at(clocks, i, &gpu, &instance);
                if (gpu == number)
                        return true;
        }
        return false;
}

/* GPU_NUMBERS_MAX when there is none left. */
static uint32_t choose(const struct gpu_numbers *n, const struct gpu_clocks *clocks,
                       const uint8_t *uuid)
{
        uint32_t number;

        if (gpu_clocks_find(clocks, uuid, &number) && number < GPU_NUMBERS_MAX &&
            !gpu_numbers_find(n, number))
                return number;
        for (number = 0; number < GPU_NUMBERS_MAX; number++)
                if (!gpu_numbers_find(n, number) && !is_minor(clocks, number))
                        break;
        return number;
}

const struct numbered_gpu *gpu_numbers_add(struct gpu_numbers *n, const struct gpu_clocks *clocks,
                                           const uint8_t uuid[GPU_NUMBERS_BYTES])
{
        static const uint8_t none[GPU_NUMBERS_BYTES];
        struct numbered_gpu *g;
        uint32_t number;

        if (memcmp(uuid, none, sizeof(none)) == 0)
                return NULL;
        for (size_t i = 0; i < n->count; i++)
                if (memcmp(n->list[i].uuid, uuid, sizeof(none)) == 0)
                        return &n->list[i];
        number = choose(n, clocks, uuid);
        if (number == GPU_NUMBERS_MAX)
                return NULL;
        g = &n->list[n->count++];
        g->number = number;
        memcpy(g->uuid, uuid, sizeof(g->uuid));
        return g;
}

const struct numbered_gpu *gpu_numbers_find(const struct gpu_numbers *n, uint32_t number)
{
        for (size_t i = 0; i < n->count; i++)
                if (n->list[i].number == number)
                        return &n->list[i];
        return NULL;
}
