/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/bpf.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/map_view.h"

static bool is_hash(const struct map_view *v)
{
        return v->map->type == BPF_MAP_TYPE_HASH;
}

static uint64_t slots(const struct map_view *v)
{
        return UINT64_C(1) << device_hash_bits(v->map->max_entries);
}

static uint32_t word_bytes(const struct map_view *v)
{
        return v->map->value_size % 8 == 0 ? 8 : 4;
}

const char *map_view_refusal(const struct map_view *v)
{
        if (v->map->type != BPF_MAP_TYPE_ARRAY && !is_hash(v))
                return "it has no elements that could be listed";
        if (v->size < device_map_bytes(v->map))
                return "less of it was read than it has";
        if (v->merge && v->map->spread != DEVICE_SHARED && v->map->value_size % 4)
                return "its values are no words that could be added up: list each copy";
        return NULL;
}

static const uint8_t *array_value(const struct map_view *v, uint64_t copy, uint64_t index)
{
        return v->bytes + (copy * v->map->max_entries + index) * device_map_stride(v->map);
}

static void add_up(const struct map_view *v, const uint8_t *value, uint8_t *sum)
{
        uint32_t step = word_bytes(v);

        for (uint32_t i = 0; i < v->map->value_size; i += step) {
                uint64_t a = 0, b = 0;

                memcpy(&a, sum + i, step);
                memcpy(&b, value + i, step);
                a += b;
                memcpy(sum + i, &a, step); /* little-endian, as the GPU is */
        }
}

/* Elements first, so that the copies of one stand together. */
static bool next_of_array(const struct map_view *v, uint64_t *at, uint8_t *buffer,
                          struct map_view_element *e)
{
        uint64_t copies = device_spread_copies(v->map->spread);
        uint64_t each = v->merge ? 1 : copies, index = *at / each;
        uint32_t key = (uint32_t)index;

        if (index >= v->map->max_entries)
                return false;
        e->key_size = sizeof(key);
        memcpy(e->key, &key, sizeof(key));
        e->copy = (uint32_t)(*at % each);
        e->value = array_value(v, e->copy, index);
        if (v->merge && copies > 1) {
                memcpy(buffer, e->value, v->map->value_size);
                for (uint64_t c = 1; c < copies; c++)
                        add_up(v, array_value(v, c, index), buffer);
                e->value = buffer;
        }
        ++*at;
        return true;
}

static const uint8_t *hash_slot(const struct map_view *v, uint64_t slot,
                                struct device_hash_slot *ret_slot)
{
        const uint8_t *at =
                v->bytes + sizeof(struct device_hash_head) + slot * device_map_stride(v->map);

        memcpy(ret_slot, at, sizeof(*ret_slot));
        return at + sizeof(*ret_slot);
}

static bool next_of_hash(const struct map_view *v, uint64_t *at, struct map_view_element *e)
{
        for (; *at < slots(v); ++*at) {
                struct device_hash_slot slot;
                uint64_t key;

                e->value = hash_slot(v, *at, &slot);
                if (!slot.tag || !slot.live)
                        continue;
                key = slot.tag ^ DEVICE_HASH_TAG;
                if (v->map->key_size < sizeof(key) && key >> 8 * v->map->key_size)
                        continue; /* no program makes such a slot */
                e->key_size = v->map->key_size;
                memcpy(e->key, &key, sizeof(key));
                ++*at;
                return true;
        }
        return false;
}

bool map_view_next(const struct map_view *v, uint64_t *at, uint8_t *buffer,
                   struct map_view_element *ret_element)
{
        struct map_view_element e = {.copy = 0};
        bool found = is_hash(v) ? next_of_hash(v, at, &e) : next_of_array(v, at, buffer, &e);

        if (found)
                *ret_element = e;
        return found;
}

static int find_in_hash(const struct map_view *v, uint64_t key, uint64_t *ret_offset)
{
        for (uint64_t i = 0; i < slots(v); i++) {
                struct device_hash_slot slot;
                const uint8_t *value = hash_slot(v, i, &slot);

                if (slot.live && slot.tag == (key ^ DEVICE_HASH_TAG)) {
                        *ret_offset = (uint64_t)(value - v->bytes);
                        return 0;
                }
        }
        return -ENOENT;
}

int map_view_find(const struct map_view *v, const void *key, size_t key_size, uint64_t *ret_offset)
{
        uint64_t number = 0;

        if (key_size != v->map->key_size || key_size > sizeof(number))
                return -EINVAL;
        memcpy(&number, key, key_size);
        if (is_hash(v))
                return find_in_hash(v, number, ret_offset);
        if (number >= v->map->max_entries)
                return -EINVAL;
        *ret_offset = number * device_map_stride(v->map);
        return 0;
}

uint64_t map_view_lost(const struct map_view *v)
{
        struct device_hash_head head = {0};

        if (is_hash(v) && v->size >= sizeof(head))
                memcpy(&head, v->bytes, sizeof(head));
        return head.lost;
}
