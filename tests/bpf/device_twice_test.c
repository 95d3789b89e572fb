/* SPDX-License-Identifier: Apache-2.0 */

/* Maps that are there twice: settings reach programs whole, counters reach the master once. */
#include "bpf/device_twice.h"
#include "bpf/device_world.h"
#include "device/device_abi.h"
#include "device/duplicate.h"
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
        world_done(&world);
        return 0;
}
