/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/map_view.h"

static bool is_hash(const struct map_view *v)
{
        return v->map->type == BPF_MAP_TYPE_HASH;
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

static uint64_t load(const uint8_t *at)
{
        uint64_t v;

        memcpy(&v, at, sizeof(v));
        return v;
}

/* The words of a long key; false: not all are written yet. */
static bool read_words(const struct map_view *v, uint64_t tag, const uint8_t *words, uint8_t *key)
{
        for (unsigned n = 0; n < device_hash_words(v->map); n++) {
                uint64_t word = load(words + 8 * n);

                if (!word)
                        return false;
                word = tag >> n & 1 ? DEVICE_HASH_TAG : word ^ DEVICE_HASH_TAG;
                memcpy(key + 8 * n, &word, sizeof(word));
        }
        return true;
}

/* The key of a slot that is taken; false: no program makes such a slot, or it is not whole yet. */
static bool slot_key(const struct map_view *v, uint64_t slot, const struct device_hash_slot *head,
                     const uint8_t *words, uint8_t key[DEVICE_HASH_KEY_MAX])
{
        uint64_t number = head->tag ^ DEVICE_HASH_TAG;

        if (device_hash_words(v->map))
                return read_words(v, head->tag, words, key);
        if (slot >> device_hash_bits(v->map->max_entries))
                number = DEVICE_HASH_TAG;
        if (v->map->key_size < sizeof(number) && number >> 8 * v->map->key_size)
                return false;
        memcpy(key, &number, sizeof(number));
        return true;
}

/* The element in a slot; false: there is none. */
static bool read_slot(const struct map_view *v, uint64_t slot, struct map_view_element *e)
{
        const uint8_t *at =
                v->bytes + sizeof(struct device_hash_head) + slot * device_map_stride(v->map);
        struct device_hash_slot head;

        memcpy(&head, at, sizeof(head));
        e->value = at + device_hash_value_at(v->map);
        e->key_size = v->map->key_size;
        return head.tag && head.live && slot_key(v, slot, &head, at + sizeof(head), e->key);
}

static bool next_of_hash(const struct map_view *v, uint64_t *at, struct map_view_element *e)
{
        while (*at < device_hash_slots(v->map))
                if (read_slot(v, (*at)++, e))
                        return true;
        return false;
}

/* The words of a long key as they are put down; the flags of those that are marked. */
static uint64_t put_words(const struct device_map_info *map, uint8_t *words, const uint8_t *key)
{
        uint64_t flags = DEVICE_HASH_LONG;

        for (unsigned n = 0; n < device_hash_words(map); n++) {
                size_t left = map->key_size - 8 * n;
                uint64_t word = 0;

                memcpy(&word, key + 8 * n, left < sizeof(word) ? left : sizeof(word));
                word ^= DEVICE_HASH_TAG;
                if (!word) {
                        flags |= UINT64_C(1) << n;
                        word = 1;
                }
                memcpy(words + 8 * n, &word, sizeof(word));
        }
        return flags;
}

void map_view_put(const struct device_map_info *map, uint8_t *bytes, uint64_t slot,
                  const uint8_t *key, const uint8_t *value)
{
        struct device_hash_slot head = {.live = 1};
        uint8_t *at;

        if (!device_hash_words(map)) {
                memcpy(&head.tag, key, map->key_size);
                head.tag ^= DEVICE_HASH_TAG;
        }
        if (!device_hash_words(map) && !head.tag) {
                head.tag = 1;
                slot = device_hash_slots(map) - 1;
        }
        at = bytes + sizeof(struct device_hash_head) + slot * device_map_stride(map);
        if (device_hash_words(map))
                head.tag = put_words(map, at + sizeof(head), key);
        memcpy(at, &head, sizeof(head));
        memcpy(at + device_hash_value_at(map), value, map->value_size);
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

static int find_in_hash(const struct map_view *v, const void *key, uint64_t *ret_offset)
{
        struct map_view_element e;

        for (uint64_t at = 0; next_of_hash(v, &at, &e);) {
                if (memcmp(e.key, key, e.key_size) != 0)
                        continue;
                *ret_offset = (uint64_t)(e.value - v->bytes);
                return 0;
        }
        return -ENOENT;
}

int map_view_find(const struct map_view *v, const void *key, size_t key_size, uint64_t *ret_offset)
{
        uint32_t number;

        if (key_size != v->map->key_size)
                return -EINVAL;
        if (is_hash(v))
                return find_in_hash(v, key, ret_offset);
        if (key_size != sizeof(number))
                return -EINVAL;
        memcpy(&number, key, sizeof(number));
        if (number >= v->map->max_entries)
                return -EINVAL;
        *ret_offset = number * device_map_stride(v->map);
        return 0;
}

int map_view_delete(const struct map_view *v, uint64_t value_offset, uint8_t **ret_bytes,
                    size_t *ret_size, uint64_t *ret_offset)
{
        size_t live = offsetof(struct device_hash_slot, live);
        uint64_t at = value_offset - device_hash_value_at(v->map) + live;
        size_t size = device_map_stride(v->map) - live, words = 8 * device_hash_words(v->map);
        uint8_t *bytes = calloc(1, size);

        if (!bytes)
                return -ENOMEM;
        /* A slot keeps its key; next to it the element is not live, and zeros. */
        memcpy(bytes + 8, v->bytes + at + 8, words);
        *ret_bytes = bytes;
        *ret_size = size;
        *ret_offset = at;
        return 0;
}

uint64_t map_view_lost(const struct map_view *v)
{
        struct device_hash_head head = {0};

        if (is_hash(v) && v->size >= sizeof(head))
                memcpy(&head, v->bytes, sizeof(head));
        return head.lost;
}
