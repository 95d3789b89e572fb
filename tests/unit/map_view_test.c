/* SPDX-License-Identifier: Apache-2.0 */

/* Elements of device maps in a copy of their memory. */
#include <errno.h>
#include <linux/bpf.h>

#include "device/device_abi.h"
#include "device/map_view.h"
#include "unit/test.h"

static uint8_t *bytes;

static struct map_view view_of(const struct device_map_info *map, bool merge)
{
        uint64_t size = device_map_bytes(map);

        free(bytes);
        bytes = calloc(1, size);
        CHECK(bytes);
        return (struct map_view){.map = map, .bytes = bytes, .size = size, .merge = merge};
}

static void put(uint64_t offset, uint64_t value, size_t size)
{
        memcpy(bytes + offset, &value, size);
}

static uint64_t number(const void *at, size_t size)
{
        uint64_t n = 0;

        memcpy(&n, at, size);
        return n;
}

static const struct device_map_info array = {.type = BPF_MAP_TYPE_ARRAY,
                                             .spread = DEVICE_SHARED,
                                             .key_size = 4,
                                             .value_size = 12,
                                             .max_entries = 3};
static const struct device_map_info per_sm = {.type = BPF_MAP_TYPE_ARRAY,
                                              .spread = DEVICE_PER_SM,
                                              .key_size = 4,
                                              .value_size = 8,
                                              .max_entries = 2};
static const struct device_map_info hash = {
        .type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = 8, .max_entries = 4};

/* Values are as large as declared, elements 8-byte multiples apart. */
static void arrays(void)
{
        struct map_view v = view_of(&array, true);
        struct map_view_element e;
        uint64_t at = 0, offset;
        uint32_t key = 2;
        uint8_t buffer[16];

        put(16 + 8, 77, 4);
        for (uint32_t i = 0; i < 3; i++) {
                CHECK(map_view_next(&v, &at, buffer, &e));
                CHECK_EQ(number(e.key, e.key_size), i);
                CHECK_EQ(number(e.value + 8, 4), i == 1 ? 77 : 0);
        }
        CHECK(!map_view_next(&v, &at, buffer, &e));
        CHECK_EQ(map_view_find(&v, &key, sizeof(key), &offset), 0);
        CHECK_EQ(offset, 32);
        key = 3;
        CHECK_EQ(map_view_find(&v, &key, sizeof(key), &offset), -EINVAL);
        CHECK_EQ(map_view_find(&v, &key, 2, &offset), -EINVAL);
}

/* The copy of a multiprocessor is a set of all elements. */
static void copies(void)
{
        struct map_view v = view_of(&per_sm, true);
        struct map_view_element e;
        uint64_t at = 0, sum = 0;
        uint8_t buffer[8];

        put(0, 1, 8);                                 /* element 0 of the first */
        put(2 * 8 * (DEVICE_SMS_MAX - 1) + 8, 40, 8); /* element 1 of the last */
        put(2 * 8 * 3 + 8, 2, 8);                     /* ... and of number 3 */
        CHECK(!map_view_refusal(&v));
        CHECK(map_view_next(&v, &at, buffer, &e));
        CHECK_EQ(number(e.value, 8), 1);
        CHECK(map_view_next(&v, &at, buffer, &e));
        CHECK_EQ(number(e.value, 8), 42);
        CHECK(!map_view_next(&v, &at, buffer, &e));

        v.merge = false;
        at = DEVICE_SMS_MAX; /* where element 1 begins */
        for (uint32_t i = 0; i < DEVICE_SMS_MAX; i++) {
                CHECK(map_view_next(&v, &at, buffer, &e));
                CHECK_EQ(number(e.key, 4), 1);
                CHECK_EQ(e.copy, i);
                sum += number(e.value, 8);
        }
        CHECK_EQ(sum, 42);
        CHECK(!map_view_next(&v, &at, buffer, &e));
}

static uint64_t slot_offset(uint64_t slot)
{
        return sizeof(struct device_hash_head) + slot * device_map_stride(&hash);
}

static void hashes(void)
{
        struct map_view v = view_of(&hash, true);
        struct map_view_element e;
        uint32_t key = 9;
        uint64_t at = 0, offset;
        uint8_t buffer[8];

        put(0, 3, 8);
        put(slot_offset(5), 9 ^ DEVICE_HASH_TAG, 8);
        put(slot_offset(5) + 8, 1, 8);
        put(slot_offset(5) + 16, 1234, 8);
        put(slot_offset(6), 10 ^ DEVICE_HASH_TAG, 8); /* was deleted */
        CHECK_EQ(map_view_lost(&v), 3);
        CHECK(map_view_next(&v, &at, buffer, &e));
        CHECK_EQ(e.key_size, 4);
        CHECK_EQ(number(e.key, 4), 9);
        CHECK_EQ(number(e.value, 8), 1234);
        CHECK(!map_view_next(&v, &at, buffer, &e));
        CHECK_EQ(map_view_find(&v, &key, sizeof(key), &offset), 0);
        CHECK_EQ(offset, slot_offset(5) + 16);
        key = 10;
        CHECK_EQ(map_view_find(&v, &key, sizeof(key), &offset), -ENOENT);
}

static void refusals(void)
{
        static const struct device_map_info odd = {.type = BPF_MAP_TYPE_ARRAY,
                                                   .spread = DEVICE_PER_SM,
                                                   .key_size = 4,
                                                   .value_size = 3,
                                                   .max_entries = 1};
        struct map_view v = view_of(&array, true);

        v.size--;
        CHECK_STR(map_view_refusal(&v), "less of it was read than it has");
        v = view_of(&odd, true);
        CHECK_STR(map_view_refusal(&v),
                  "its values are no words that could be added up: list each copy");
        v.merge = false;
        CHECK(!map_view_refusal(&v));
}

int main(void)
{
        TEST(arrays);
        TEST(copies);
        TEST(hashes);
        TEST(refusals);
        free(bytes);
        return 0;
}
