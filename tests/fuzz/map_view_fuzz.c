/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The memory of a map, as an agent hands it in: any bytes. The first four say what map it
 * is meant to be.
 */
#include <linux/bpf.h>

#include "device/map_view.h"
#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long sum; /* reads every byte that is handed out */

static void look_at(const struct map_view *v)
{
        struct map_view_element e;
        uint8_t buffer[64];
        uint64_t at = 0, offset;

        if (map_view_refusal(v))
                return;
        while (map_view_next(v, &at, buffer, &e)) {
                for (uint32_t i = 0; i < v->map->value_size; i++)
                        sum += e.value[i];
                /* Only a hash may hold a key twice; whatever is found lies inside. */
                if (map_view_find(v, e.key, e.key_size, &offset) < 0 ||
                    offset + v->map->value_size > v->size)
                        abort();
        }
        sum += map_view_lost(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct device_map_info map = {.key_size = 4};
        struct map_view v = {.map = &map};
        uint8_t *copy;

        if (size < 4)
                return 0;
        map.type = data[0] & 1 ? BPF_MAP_TYPE_HASH : BPF_MAP_TYPE_ARRAY;
        if (map.type == BPF_MAP_TYPE_HASH)
                map.key_size = 4 + data[3] % 16 * 4;
        map.spread =
                map.type == BPF_MAP_TYPE_HASH || !(data[0] & 4) ? DEVICE_SHARED : DEVICE_PER_SM;
        v.merge = data[0] & 8;
        map.value_size = 1 + data[1] % 32;
        map.max_entries = 1 + data[2] % 16;
        copy = malloc(size);
        if (!copy)
                return 0;
        memcpy(copy, data + 4, size - 4);
        v.bytes = copy;
        v.size = size - 4;
        look_at(&v);
        free(copy);
        return 0;
}
