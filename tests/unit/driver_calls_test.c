/* SPDX-License-Identifier: Apache-2.0 */

/* What is made of the driver calls of one process: statistics, and the tree of its objects. */
#include <errno.h>

#include "driver/call_names.h"
#include "driver/calls.h"
#include "unit/test.h"

#define CLIENT 0xc1d00001
#define ALLOC  0xc030462b
#define FREE   0xc0104629

static struct calls *calls;
static struct call_group groups[8];
static size_t group_count;

static struct driver_call_event event(uint32_t request, uint32_t what)
{
        return (struct driver_call_event){
                .enter_ns = 1000,
                .duration_ns = 100,
                .request = request,
                .client = CLIENT,
                .what = what,
                .fd = 7,
                .minor = DRIVER_RM_CONTROL_MINOR,
                .device = DRIVER_DEVICE_RM,
                .has = DRIVER_HAS_ARGUMENT | DRIVER_HAS_STATUS,
        };
}

static bool alloc(uint32_t class, uint32_t parent, uint32_t object, uint32_t detail)
{
        struct driver_call_event e = event(ALLOC, class);

        e.client = class == 0x41 ? 0 : CLIENT;
        e.parent = parent;
        e.object = object;
        e.detail = detail;
        e.has |= DRIVER_HAS_DETAIL;
        return calls_add(calls, &e);
}

static void release(uint32_t object)
{
        struct driver_call_event e = event(FREE, 0);

        e.object = object;
        CHECK(calls_add(calls, &e));
}

static int keep_group(void *data, const struct call_group *g)
{
        CHECK(group_count < 8);
        groups[group_count++] = *g;
        return 0;
}

static void read_groups(void)
{
        group_count = 0;
        calls_groups(calls, keep_group, NULL);
        CHECK_EQ(group_count, calls_group_count(calls));
}

/* As CUDA does: client, device, groups of compute and of copies, channels in them. */
static void build_tree(void)
{
        calls = calls_new();
        CHECK(alloc(0x41, 0, CLIENT, 0));
        CHECK(alloc(0x80, CLIENT, 0x10, 3));
        CHECK(alloc(0x2080, 0x10, 0x11, 0));
        CHECK(alloc(0xa06c, 0x10, 0x20, 1));
        CHECK(alloc(0xa06c, 0x10, 0x30, 9));
        CHECK(alloc(0xc86f, 0x20, 0x21, 1));
        CHECK(alloc(0xc86f, 0x20, 0x22, 1));
        CHECK(alloc(0xc86f, 0x30, 0x31, 9));
        CHECK(alloc(0xcbc0, 0x21, 0x23, 0));
}

static void channel_groups_are_found(void)
{
        build_tree();
        read_groups();
        CHECK_EQ(group_count, 2);
        CHECK_EQ(groups[0].client, CLIENT);
        CHECK_EQ(groups[0].object, 0x20);
        CHECK_EQ(groups[0].fd, 7);
        CHECK(groups[0].has_instance);
        CHECK_EQ(groups[0].instance, 3);
        CHECK(groups[0].has_engine);
        CHECK_EQ(groups[0].engine, 1);
        CHECK_EQ(groups[0].channels, 2);
        CHECK_EQ(groups[1].object, 0x30);
        CHECK_EQ(groups[1].engine, 9);
        CHECK_EQ(groups[1].channels, 1);
        calls_free(calls);
}

static void what_lies_under_goes_with_it(void)
{
        build_tree();
        release(0x21);
        read_groups();
        CHECK_EQ(groups[0].channels, 1);
        release(0x20);
        read_groups();
        CHECK_EQ(group_count, 1);
        CHECK_EQ(groups[0].object, 0x30);
        release(0x10); /* the device */
        read_groups();
        CHECK_EQ(group_count, 0);
        calls_free(calls);

        build_tree();
        release(CLIENT);
        CHECK_EQ(calls_group_count(calls), 0);
        CHECK(alloc(0xc86f, 0x20, 0x21, 1)); /* an orphan does no harm */
        CHECK(alloc(0xa06c, 0x10, 0x20, 1));
        release(0x21);
        read_groups();
        CHECK_EQ(groups[0].channels, 0);
        calls_free(calls);
}

static void a_reused_handle_is_a_new_object(void)
{
        build_tree();
        CHECK(alloc(0xa06c, 0x10, 0x20, 1));
        read_groups();
        CHECK_EQ(group_count, 2);
        CHECK_EQ(groups[1].object, 0x20);
        CHECK_EQ(groups[1].channels, 0);
        calls_free(calls);
}

static void failed_calls_make_nothing(void)
{
        struct driver_call_event e = event(ALLOC, 0xa06c);

        build_tree();
        e.parent = 0x10;
        e.object = 0x50;
        e.status = 0x1a;
        CHECK(calls_add(calls, &e));
        e.status = 0;
        e.result = -ENOMEM;
        CHECK(calls_add(calls, &e));
        e.result = 0;
        e.has = 0; /* its argument could not be read */
        CHECK(calls_add(calls, &e));
        e = event(FREE, 0);
        e.object = 0x20;
        e.status = 0x57;
        CHECK(calls_add(calls, &e));
        CHECK_EQ(calls_group_count(calls), 2);
        calls_free(calls);
}

/* The descriptor may have been closed and another be in use. */
static void the_descriptor_is_the_one_last_used(void)
{
        struct driver_call_event e = event(0xc020462a, 0x2080014a);

        build_tree();
        e.fd = 12;
        CHECK(calls_add(calls, &e));
        e.fd = 13;
        e.minor = 0; /* of a GPU: clients are not reached through it */
        CHECK(calls_add(calls, &e));
        read_groups();
        CHECK_EQ(groups[0].fd, 12);
        calls_free(calls);
}

static void channels_are_found_by_the_traces_id(void)
{
        struct driver_call_event e = event(ALLOC, 0xc86f);
        struct call_group g;

        build_tree();
        e.parent = 0x20;
        e.object = 0x24;
        e.has |= DRIVER_HAS_CONTEXT_ID;
        e.context_id = 4711;
        CHECK(calls_add(calls, &e));
        CHECK(calls_find_context(calls, 4711, &g));
        CHECK_EQ(g.object, 0x20);
        CHECK(!calls_find_context(calls, 4712, &g));
        CHECK(!calls_find_context(calls, 0, &g));
        calls_free(calls);
}

static void time_slices_and_new_groups_are_told(void)
{
        struct driver_call_event e = event(0xc020462a, 0xa06c0103);
        struct call_group g;

        build_tree();
        e.object = 0x20;
        e.detail = 2048;
        e.has |= DRIVER_HAS_DETAIL;
        CHECK(calls_add(calls, &e));
        CHECK(calls_group_of(calls, &e, &g));
        CHECK_EQ(g.object, 0x20);
        CHECK_EQ(g.slice_us, 2048);
        e.detail = 500;
        e.status = 0x1f;
        CHECK(calls_add(calls, &e));
        CHECK(!calls_group_of(calls, &e, &g)); /* refused */
        e.status = 0;
        e.object = 0x99;
        CHECK(calls_add(calls, &e));
        CHECK(!calls_group_of(calls, &e, &g)); /* not known */
        e.object = 0x21;
        CHECK(calls_add(calls, &e));
        CHECK(!calls_group_of(calls, &e, &g)); /* a channel */
        e.object = 0x20;
        e.what = 0xa06c0104;
        CHECK(calls_add(calls, &e));
        CHECK(!calls_group_of(calls, &e, &g)); /* only read */
        read_groups();
        CHECK_EQ(groups[0].slice_us, 2048);
        CHECK_EQ(groups[1].slice_us, 0);

        e = event(ALLOC, 0xa06c);
        e.parent = 0x10;
        e.object = 0x40;
        CHECK(calls_add(calls, &e));
        CHECK(calls_group_of(calls, &e, &g));
        CHECK_EQ(g.object, 0x40);
        CHECK_EQ(g.slice_us, 0);
        e.what = 0xc86f;
        e.object = 0x41;
        CHECK(calls_add(calls, &e));
        CHECK(!calls_group_of(calls, &e, &g));
        calls_free(calls);
}

static void objects_are_bounded(void)
{
        uint32_t i;

        calls = calls_new();
        for (i = 0; alloc(0xa06c, 0x10, 0x1000 + i, 0); i++)
                CHECK(i <= CALLS_OBJECTS_MAX);
        CHECK_EQ(i, CALLS_OBJECTS_MAX);
        release(0x1000);
        CHECK(alloc(0xa06c, 0x10, 0x1000, 0));
        calls_free(calls);
}

static void calls_are_counted(void)
{
        struct driver_call_event e = event(0xc020462a, 0x2080014a);

        calls = calls_new();
        CHECK(calls_add(calls, &e));
        e.request = 0xc030462a; /* the same number with another size */
        e.duration_ns = 300;
        e.status = 0x56;
        CHECK(calls_add(calls, &e));
        e.status = 0;
        e.result = -EFAULT;
        CHECK(calls_add(calls, &e));
        CHECK_EQ(calls_stat_count(calls), 1);
        CHECK_EQ(calls_stat(calls, 0)->request, 0x2a);
        CHECK_EQ(calls_stat(calls, 0)->what, 0x2080014a);
        CHECK_EQ(calls_stat(calls, 0)->count, 3);
        CHECK_EQ(calls_stat(calls, 0)->errors, 2);
        CHECK_EQ(calls_stat(calls, 0)->total_ns, 700);
        CHECK_EQ(calls_stat(calls, 0)->max_ns, 300);
        CHECK_EQ(calls_stat(calls, 0)->last_status, 0);
        CHECK_EQ(calls_stat(calls, 0)->last_errno, EFAULT);
        e = event(51, 0);
        e.device = DRIVER_DEVICE_UVM;
        CHECK(calls_add(calls, &e));
        CHECK_EQ(calls_stat_count(calls), 2);
        CHECK_EQ(calls_stat(calls, 1)->request, 51);
        calls_free(calls);
}

static void kinds_of_calls_are_bounded(void)
{
        uint64_t sum = 0;

        calls = calls_new();
        for (uint32_t i = 0; i < 3 * CALLS_STATS_MAX; i++) {
                struct driver_call_event e = event(0xc020462a, i);

                CHECK(calls_add(calls, &e));
        }
        CHECK_EQ(calls_stat_count(calls), CALLS_STATS_MAX);
        for (size_t i = 0; i < CALLS_STATS_MAX; i++)
                sum += calls_stat(calls, i)->count;
        CHECK_EQ(sum, 3 * CALLS_STATS_MAX);
        CHECK_EQ(calls_stat(calls, CALLS_STATS_MAX - 1)->device, DRIVER_DEVICE_NONE);
        calls_free(calls);
}

/* Whatever a process does, its tree stays a tree. */
static void any_order_of_calls_does_no_harm(void)
{
        static const uint32_t classes[] = {0x41, 0x80, 0xa06c, 0xc86f, 0xcbc0};
        uint64_t seed = 1;

        calls = calls_new();
        for (int i = 0; i < 20000; i++) {
                struct driver_call_event e = event(test_random(&seed) % 3 ? ALLOC : FREE,
                                                   classes[test_random(&seed) % 5]);

                e.client = (uint32_t)(test_random(&seed) % 4);
                e.parent = (uint32_t)(test_random(&seed) % 16);
                e.object = (uint32_t)(test_random(&seed) % 16);
                calls_add(calls, &e);
                CHECK(calls_group_count(calls) <= 64);
        }
        for (uint32_t client = 0; client < 16; client++) {
                struct driver_call_event e = event(FREE, 0);

                e.client = e.object = client;
                calls_add(calls, &e);
        }
        for (uint32_t client = 0; client < 4; client++)
                for (uint32_t object = 0; object < 16; object++) {
                        struct driver_call_event e = event(FREE, 0);

                        e.client = client;
                        e.object = object;
                        calls_add(calls, &e);
                }
        CHECK_EQ(calls_group_count(calls), 0);
        calls_free(calls);
}

static void known_numbers_have_names(void)
{
        CHECK_STR(call_request_name(DRIVER_DEVICE_RM, 0x2a), "control");
        CHECK_STR(call_request_name(DRIVER_DEVICE_UVM, 51), "migrate");
        CHECK_STR(call_request_name(DRIVER_DEVICE_UVM, 0x2a), "set preferred location");
        CHECK(!call_request_name(DRIVER_DEVICE_RM, 0xee));
        CHECK(!call_request_name(DRIVER_DEVICE_NONE, 0x2a));
        CHECK_STR(call_what_name(0xa06c0103), "set time slice");
        CHECK(!call_what_name(0xdeadbeef));
        CHECK_STR(call_device_name(DRIVER_DEVICE_UVM_TOOLS), "uvm-tools");
        CHECK_STR(call_device_name(77), "other");
}

int main(void)
{
        TEST(channel_groups_are_found);
        TEST(what_lies_under_goes_with_it);
        TEST(a_reused_handle_is_a_new_object);
        TEST(failed_calls_make_nothing);
        TEST(the_descriptor_is_the_one_last_used);
        TEST(channels_are_found_by_the_traces_id);
        TEST(time_slices_and_new_groups_are_told);
        TEST(objects_are_bounded);
        TEST(calls_are_counted);
        TEST(kinds_of_calls_are_bounded);
        TEST(any_order_of_calls_does_no_harm);
        TEST(known_numbers_have_names);
        return 0;
}
