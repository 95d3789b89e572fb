/* SPDX-License-Identifier: Apache-2.0 */

/* The numbers policies know GPUs by: minor numbers where they are known, and never two the same. */
#include <stdbool.h>
#include <string.h>

#include "gpu_clocks.h"
#include "gpu_numbers.h"
#include "unit/test.h"

/* GPUs whose clocks the daemon reads: those with UUIDs of bytes 3 and 8, minor numbers 3 and 0. */

size_t gpu_clocks_count(const struct gpu_clocks *c)
{
        return 2;
}

const struct clock_model *gpu_clocks_at(const struct gpu_clocks *c, size_t index, uint32_t *ret_gpu,
                                        uint32_t *ret_instance)
{
        *ret_gpu = index ? 0 : 3;
        *ret_instance = 0;
        return NULL;
}

const struct clock_model *gpu_clocks_find(const struct gpu_clocks *c, const uint8_t uuid[16],
                                          uint32_t *ret_gpu)
{
        if (uuid[0] != 3 && uuid[0] != 8)
                return NULL;
        *ret_gpu = uuid[0] == 3 ? 3 : 0;
        return (const struct clock_model *)(uintptr_t)1;
}

static struct gpu_numbers numbers;

static uint32_t number_of(uint8_t byte)
{
        uint8_t uuid[GPU_NUMBERS_BYTES];
        const struct numbered_gpu *g;

        memset(uuid, byte, sizeof(uuid));
        g = gpu_numbers_add(&numbers, NULL, uuid);
        return g ? g->number : GPU_NUMBERS_MAX;
}

int main(void)
{
        CHECK_EQ(number_of(0), GPU_NUMBERS_MAX); /* no UUID */
        CHECK_EQ(number_of(3), 3);
        CHECK_EQ(number_of(9), 1); /* 0 is another's minor number */
        CHECK_EQ(number_of(10), 2);
        CHECK_EQ(number_of(11), 4);
        CHECK_EQ(number_of(8), 0);
        CHECK_EQ(number_of(9), 1); /* and stays */
        CHECK_EQ(numbers.count, 5);
        CHECK_EQ(gpu_numbers_find(&numbers, 4)->uuid[5], 11);
        CHECK(!gpu_numbers_find(&numbers, 5));
        for (uint8_t i = 100; i < 100 + GPU_NUMBERS_MAX - 5; i++)
                CHECK(number_of(i) < GPU_NUMBERS_MAX);
        CHECK_EQ(number_of(250), GPU_NUMBERS_MAX); /* too many */
        CHECK_EQ(number_of(10), 2);
        return 0;
}
