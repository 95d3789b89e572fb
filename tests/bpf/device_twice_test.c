/* SPDX-License-Identifier: Apache-2.0 */

/* Maps that are there twice: settings reach programs whole, counters reach the master once. */
#include <errno.h>
#include <linux/bpf.h>

#include "bpf/device_twice.h"
#include "bpf/device_world.h"
#include "device/device_abi.h"
#include "device/duplicate.h"
#include "device/map_view.h"
#include "unit/test.h"
#include "util/macro.h"

static struct world world;

static void run_blocks(unsigned blocks)
{
        world_run(&world, world_fragment(&world, "within"),
                  &(struct world_launch){.blocks = blocks, .threads = 40, .sms = 3});
}

/* Write the master's settings into the replica, as an agent does it. */
static void bring(const struct duplicate *limits, uint64_t epoch)
{
        size_t bytes = world_map_info(&world, "limits")->bytes;
        _cleanup_free_ char *image = calloc(1, bytes);
        char *replica = world_map(&world, "limits");
        struct duplicate_write writes[2];

        CHECK(image);
        duplicate_settings(limits, epoch, image, writes);
        for (unsigned i = 0; i < 2; i++) {
                CHECK(writes[i].offset + writes[i].bytes <= bytes);
                memcpy(replica + writes[i].offset, image + writes[i].offset, writes[i].bytes);
        }
}

static void set_limits(struct duplicate *limits, uint32_t least, uint32_t most)
{
        for (uint32_t key = 0; key < TWICE_LIMITS; key++)
                *(struct twice_limits *)duplicate_element(limits, key) =
                        (struct twice_limits){.least = least, .most = most};
}

static void test_settings_and_sums(void)
{
        struct duplicate *limits, *totals;
        _cleanup_free_ uint64_t *seen =
                calloc(1, duplicate_seen_bytes(world_map_info(&world, "totals")));

        CHECK(seen);
        CHECK_EQ(duplicate_new(world_map_info(&world, "limits"), &limits), 0);
        CHECK_EQ(duplicate_new(world_map_info(&world, "totals"), &totals), 0);
        set_limits(limits, 3, 8);
        run_blocks(20); /* before the settings come all limits are 0: block 0 is within */
        duplicate_merge(totals, world_map(&world, "totals"), seen);
        CHECK_EQ(*(uint64_t *)duplicate_element(totals, 0), 1);
        CHECK_EQ(*(uint64_t *)duplicate_element(totals, 1), 19);
        bring(limits, 1);
        run_blocks(20);
        duplicate_merge(totals, world_map(&world, "totals"), seen);
        CHECK_EQ(*(uint64_t *)duplicate_element(totals, 0), 1 + 6);
        set_limits(limits, 0, 99);
        bring(limits, 2);
        run_blocks(20);
        duplicate_merge(totals, world_map(&world, "totals"), seen);
        duplicate_merge(totals, world_map(&world, "totals"), seen); /* nothing is new */
        CHECK_EQ(*(uint64_t *)duplicate_element(totals, 0), 1 + 6 + 20);
        CHECK_EQ(*(uint64_t *)duplicate_element(totals, 1), 19 + 14);
        duplicate_free(limits);
        duplicate_free(totals);
}

/* What is written and not announced yet is not seen; the other copy is not touched. */
static void test_epochs(void)
{
        const struct device_map_info *info = world_map_info(&world, "limits");
        struct device_settings_head *head;
        struct duplicate *limits;
        char *replica;

        world_clear(&world);
        replica = world_map(&world, "limits");
        head = (struct device_settings_head *)replica;
        CHECK_EQ(duplicate_new(info, &limits), 0);
        set_limits(limits, 1, 1);
        bring(limits, 1);
        set_limits(limits, 2, 3);
        bring(limits, 2);
        head->epoch = 1;
        run_blocks(8);
        CHECK_EQ(*(uint64_t *)world_map(&world, "totals") +
                         ((uint64_t *)world_map(&world, "totals"))[2] +
                         ((uint64_t *)world_map(&world, "totals"))[4],
                 1);
        duplicate_free(limits);
}

static void run_program(const char *name, unsigned blocks, unsigned threads)
{
        world_run(&world, world_fragment(&world, name),
                  &(struct world_launch){.blocks = blocks, .threads = threads, .sms = 3});
}

/* The master's sums of a column; zeros when it is not there. */
static struct twice_sums sums_of(const struct duplicate *d, uint32_t column, uint32_t threads)
{
        const struct twice_column key = {.column = column, .threads = threads};
        const struct device_map_info *info = world_map_info(&world, "columns");
        _cleanup_free_ uint8_t *bytes = NULL;
        struct map_view v = {.map = info, .size = info->bytes};
        struct twice_sums sums = {};
        uint64_t offset;

        CHECK_EQ(duplicate_read_hash(d, &bytes), 0);
        v.bytes = bytes;
        CHECK(!map_view_refusal(&v));
        if (map_view_find(&v, &key, sizeof(key), &offset) == 0)
                memcpy(&sums, bytes + offset, sizeof(sums));
        return sums;
}

static uint64_t lost_of(const struct duplicate *d)
{
        const struct device_map_info *info = world_map_info(&world, "columns");
        _cleanup_free_ uint8_t *bytes = NULL;

        CHECK_EQ(duplicate_read_hash(d, &bytes), 0);
        return map_view_lost(&(struct map_view){.map = info, .bytes = bytes, .size = info->bytes});
}

/* Two replicas count under keys of their own and common ones. */
static void test_hash(void)
{
        const struct device_map_info *info = world_map_info(&world, "columns");
        _cleanup_free_ void *seen = calloc(1, duplicate_seen_bytes(info));
        _cleanup_free_ void *other = calloc(1, duplicate_seen_bytes(info));
        const struct twice_column absent = {.column = 9};
        const struct twice_sums zero = {};
        struct duplicate *d;

        CHECK(seen && other);
        CHECK_EQ(duplicate_new(info, &d), 0);
        world_clear(&world);
        run_program("add_up", 6, 32);
        duplicate_merge(d, world_map(&world, "columns"), seen);
        duplicate_merge(d, world_map(&world, "columns"), seen); /* nothing is new */
        CHECK_EQ(sums_of(d, 1, 32).blocks, 2);
        CHECK_EQ(sums_of(d, 1, 32).numbers, 1 + 5);
        CHECK_EQ(sums_of(d, 3, 32).blocks, 1);
        run_program("drop", 1, 32); /* what it had stays in the master */
        duplicate_merge(d, world_map(&world, "columns"), seen);
        run_program("add_up", 6, 32);
        duplicate_merge(d, world_map(&world, "columns"), seen);
        CHECK_EQ(sums_of(d, 0, 32).blocks, 4);
        CHECK_EQ(sums_of(d, 1, 32).numbers, 12);
        world_clear(&world);
        run_program("add_up", 4, 32);
        run_program("add_up", 4, 64);
        duplicate_merge(d, world_map(&world, "columns"), other);
        CHECK_EQ(sums_of(d, 1, 32).blocks, 5);
        CHECK_EQ(sums_of(d, 1, 64).blocks, 1);
        CHECK_EQ(lost_of(d), 0);
        run_program("add_up", 4, 96); /* as many again as the master has room for */
        duplicate_merge(d, world_map(&world, "columns"), other);
        CHECK_EQ(sums_of(d, 1, 96).blocks, 0);
        CHECK_EQ(lost_of(d), 4);
        CHECK_EQ(duplicate_update_hash(d, &(struct twice_column){1, 32, 0}, &zero), 0);
        CHECK_EQ(sums_of(d, 1, 32).blocks, 0);
        CHECK_EQ(duplicate_update_hash(d, &absent, &zero), -ENOENT);
        duplicate_free(d);
}

/* The keys that need care on their way back into the form of a replica. */
static void test_keys_of_masters(void)
{
        static const uint64_t keys[] = {DEVICE_HASH_TAG, DEVICE_HASH_TAG ^ 1, 0, 1, UINT64_MAX};

        for (uint32_t size = 4; size <= DEVICE_HASH_KEY_MAX; size += 4)
                for (size_t n = 0; n < ARRAY_SIZE(keys); n++) {
                        const struct device_map_info info = {.type = BPF_MAP_TYPE_HASH,
                                                             .key_size = size,
                                                             .value_size = 8,
                                                             .max_entries = ARRAY_SIZE(keys)};
                        _cleanup_free_ uint8_t *bytes = calloc(1, device_map_bytes(&info));
                        struct map_view v = {
                                .map = &info, .bytes = bytes, .size = device_map_bytes(&info)};
                        uint64_t key[8], value = n + 1, at = 0;
                        struct map_view_element e;

                        CHECK(bytes);
                        for (unsigned w = 0; w < 8; w++)
                                key[w] = keys[(n + w) % ARRAY_SIZE(keys)];
                        map_view_put(&info, bytes, n, (const uint8_t *)key,
                                     (const uint8_t *)&value);
                        CHECK(map_view_next(&v, &at, NULL, &e));
                        CHECK(!memcmp(e.key, key, size));
                        CHECK(!memcmp(e.value, &value, sizeof(value)));
                        CHECK(!map_view_next(&v, &at, NULL, &e));
                }
}

static uint64_t merge_one(enum device_rule rule, uint64_t before, uint64_t seen, uint64_t now)
{
        const struct device_map_info info = {.rule = rule,
                                             .type = 2,
                                             .key_size = 4,
                                             .value_size = 8,
                                             .max_entries = 1,
                                             .bytes = 8};
        struct duplicate *d;
        uint64_t result;

        CHECK_EQ(duplicate_new(&info, &d), 0);
        *(uint64_t *)duplicate_element(d, 0) = before;
        duplicate_merge(d, &now, &seen);
        CHECK_EQ(seen, now);
        result = *(uint64_t *)duplicate_element(d, 0);
        duplicate_free(d);
        return result;
}

static void test_rules(void)
{
        CHECK_EQ(merge_one(DEVICE_RULE_SUM, 100, 5, 7), 102);
        CHECK_EQ(merge_one(DEVICE_RULE_SUM, 100, 7, 5), 105); /* began anew */
        CHECK_EQ(merge_one(DEVICE_RULE_MAX, 100, 5, 99), 100);
        CHECK_EQ(merge_one(DEVICE_RULE_MAX, 100, 5, 101), 101);
        CHECK_EQ(merge_one(DEVICE_RULE_OR, 5, 0, 10), 15);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        world_init(&world, argv[1]);
        TEST(test_settings_and_sums);
        TEST(test_epochs);
        TEST(test_rules);
        TEST(test_hash);
        TEST(test_keys_of_masters);
        world_done(&world);
        return 0;
}
