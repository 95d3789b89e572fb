/* SPDX-License-Identifier: Apache-2.0 */

/* Ring buffers and messages of device programs, run by the interpreter and read back. */
#include "bpf/device_rings.h"
#include "bpf/device_world.h"
#include "device/device_abi.h"
#include "device/event_ring.h"
#include "device/message.h"
#include "unit/test.h"
#include "util/macro.h"

#define RECORDS_MAX 8192

static struct world world;

struct record {
        size_t size;
        union {
                uint8_t bytes[GPUOBS_RECORD_MAX];
                struct rings_event event;
                struct device_print print;
                uint64_t word;
                uint32_t number;
        };
};

static struct record records[RECORDS_MAX];
static size_t record_count;

static void keep(void *data, const void *bytes, size_t size)
{
        CHECK(record_count < RECORDS_MAX && size <= GPUOBS_RECORD_MAX);
        records[record_count].size = size;
        memcpy(records[record_count++].bytes, bytes, size);
}

/* All records of a ring from its beginning on; returns how many were lost. */
static uint64_t read_ring(const char *name)
{
        struct event_ring_losses losses;
        struct event_ring *ring;

        record_count = 0;
        CHECK_EQ(event_ring_new(world_map_info(&world, name), 0, &ring), 0);
        event_ring_read(ring, world_map(&world, name), 1, RECORDS_MAX, keep, NULL);
        event_ring_get_losses(ring, &losses);
        CHECK_EQ(losses.torn, 0);
        event_ring_free(ring);
        return losses.overrun;
}

static void run(const char *program, struct world_launch launch)
{
        world_run(&world, world_fragment(&world, program), &launch);
}

static void check_event(const struct record *r, uint32_t block, uint32_t thread, uint8_t kind)
{
        CHECK_EQ(r->size, sizeof(struct rings_event));
        CHECK_EQ(r->event.block, block);
        CHECK_EQ(r->event.odd, ~block);
        CHECK_EQ(r->event.thread, thread);
        CHECK_EQ(r->event.lane, thread % 32);
        CHECK_EQ(r->event.kind, kind);
}

static void test_reserve(void)
{
        world_clear(&world);
        run("reserve", (struct world_launch){.blocks = 3, .threads = 40});
        CHECK_EQ(read_ring("events"), 0);
        CHECK_EQ(record_count, 60);
        for (size_t i = 0; i < record_count; i++) {
                check_event(&records[i], (uint32_t)i / 20, 2 * (uint32_t)(i % 20), 1);
                CHECK(i == 0 || records[i].event.time_ns >= records[i - 1].event.time_ns);
        }
}

static void test_reserve_two(void)
{
        world_clear(&world);
        run("reserve_two", (struct world_launch){.blocks = 5});
        CHECK_EQ(read_ring("events"), 0);
        CHECK_EQ(record_count, 5);
        for (uint32_t i = 0; i < 5; i++)
                check_event(&records[i], i, 0, 2);
        CHECK_EQ(read_ring("shared"), 0);
        CHECK_EQ(record_count, 20);
        for (size_t i = 0; i < record_count; i++) {
                CHECK_EQ(records[i].size, i % 4 ? 4 : 8);
                CHECK_EQ(i % 4 ? records[i].number : records[i].word,
                         i % 4 ? i % 4 - 1 : 1000 + i / 4);
        }
}

/* The ring in host memory has its slots there and its head elsewhere. */
static void test_output(void)
{
        const struct device_event_head *head;

        world_clear(&world);
        run("output", (struct world_launch){.blocks = 2, .threads = 96});
        CHECK_EQ(read_ring("shared"), 0);
        CHECK_EQ(record_count, 6);
        for (size_t i = 0; i < record_count; i++) {
                CHECK_EQ(records[i].size, RINGS_WIDE);
                CHECK_EQ(records[i].number, 32 * (i % 3));
                CHECK_EQ(records[i].bytes[RINGS_WIDE - 1], 0xab);
                for (unsigned n = 4; n < RINGS_WIDE - 1; n++)
                        CHECK_EQ(records[i].bytes[n], 0);
        }
        head = world_map(&world, ".heads");
        CHECK_EQ(head->head, 6);
        CHECK_EQ(device_ring_first(world_map_info(&world, "shared")), 0);
}

static void test_indexed(void)
{
        CHECK(!strstr(world_fragment(&world, "indexed"), ".local"));
        world_clear(&world);
        run("indexed", (struct world_launch){.threads = 32});
        CHECK_EQ(read_ring("events"), 0);
        CHECK_EQ(record_count, 32);
        for (size_t i = 0; i < record_count; i++)
                for (unsigned n = 0; n < 40; n++)
                        CHECK_EQ(records[i].bytes[n], n == i ? 0x5a : 0);
}

static void test_filled(void)
{
        CHECK(!strstr(world_fragment(&world, "filled"), ".local"));
        world_clear(&world);
        run("filled", (struct world_launch){.threads = 32});
        CHECK_EQ(read_ring("events"), 0);
        CHECK_EQ(record_count, 32);
        for (size_t i = 0; i < record_count; i++) {
                uint32_t words[10];

                memcpy(words, records[i].bytes, sizeof(words));
                for (unsigned n = 0; n < 10; n++)
                        CHECK_EQ(words[n], n * i);
        }
}

/* More records than slots: the newest are there, the others are counted. */
static void test_overrun(void)
{
        uint32_t slots = device_ring_slots(world_map_info(&world, "events"));

        CHECK_EQ(slots, 256);
        world_clear(&world);
        run("reserve", (struct world_launch){.blocks = 1, .threads = 800});
        CHECK_EQ(read_ring("events"), 400 - slots);
        CHECK_EQ(record_count, slots);
        check_event(&records[0], 0, 2 * (400 - slots), 1);
        check_event(&records[slots - 1], 0, 798, 1);
}

/* Records that do not come, or not whole, are passed when later ones have been there for long. */
static void test_holes(void)
{
        const struct device_map_info *info = world_map_info(&world, "events");
        uint32_t first = device_ring_first(info), size = device_ring_slot_bytes(info);
        uint64_t now_ns = 1000000000;
        struct event_ring_losses losses;
        struct event_ring *ring;
        uint8_t *memory;

        world_clear(&world);
        memory = world_map(&world, "events");
        run("reserve", (struct world_launch){.threads = 40});
        memset(memory + first + 5 * size, 0, size);
        memory[first + 8 * size + 20] ^= 1;
        memory[first + 12 * size] ^= 1;
        record_count = 0;
        CHECK_EQ(event_ring_new(info, 0, &ring), 0);
        CHECK_EQ(event_ring_read(ring, memory, now_ns, 100, keep, NULL), 5);
        CHECK_EQ(event_ring_read(ring, memory, now_ns + 10000000, 100, keep, NULL), 0);
        CHECK_EQ(event_ring_read(ring, memory, now_ns + 21000000, 100, keep, NULL), 12);
        CHECK_EQ(event_ring_read(ring, memory, now_ns + 900000000, 100, keep, NULL), 0);
        event_ring_get_losses(ring, &losses);
        CHECK_EQ(losses.torn, 3);
        CHECK_EQ(losses.overrun, 0);
        CHECK_EQ(event_ring_position(ring), 20);
        event_ring_free(ring);
}

static void check_text(size_t i, const char *expected)
{
        const struct device_print *p = &records[i].print;
        char text[256];

        CHECK(records[i].size >= offsetof(struct device_print, arguments));
        CHECK_EQ(messages_print(device_object_messages(world.object), p->message, p->arguments,
                                (records[i].size - offsetof(struct device_print, arguments)) / 8,
                                text, sizeof(text)),
                 0);
        CHECK_STR(text, expected);
}

static void test_print(void)
{
        CHECK_EQ(device_object_print_map(world.object),
                 (int)(world_map_info(&world, ".printk") - device_object_map(world.object, 0)));
        world_clear(&world);
        run("print", (struct world_launch){
                             .blocks = 3, .kernel_id = 77, .gridid = 1ULL << 40, .context = 9});
        CHECK_EQ(read_ring(".printk"), 0);
        CHECK_EQ(record_count, 4);
        check_text(0, "block 0 of grid 1099511627776");
        check_text(1, "block 1 of grid 1099511627776");
        check_text(2, "-1 abcdef12     7|3   |% -2");
        check_text(3, "block 2 of grid 1099511627776");
        for (size_t i = 0; i < record_count; i++) {
                CHECK_EQ(records[i].print.kernel_id, 77);
                CHECK_EQ(DEVICE_PRINT_GRIDID(&records[i].print), UINT64_C(1) << 40);
                CHECK_EQ(DEVICE_PRINT_CONTEXT(&records[i].print), 9);
        }
}

/* A program that prints all the time is held to its limit, and again in the next window. */
static void test_print_limit(void)
{
        const struct device_event_head *head = NULL;

        world_clear(&world);
        world.now_ns = UINT64_C(10) << DEVICE_PRINT_WINDOW;
        world.tick_ns = 0;
        run("print_all", (struct world_launch){.blocks = 3, .threads = 1000});
        head = world_map(&world, ".printk");
        CHECK_EQ(head->head, DEVICE_PRINT_LIMIT);
        CHECK_EQ(head->suppressed, 3000 - DEVICE_PRINT_LIMIT);
        world.now_ns += UINT64_C(1) << DEVICE_PRINT_WINDOW;
        run("print_all", (struct world_launch){.threads = 10});
        CHECK_EQ(head->head, DEVICE_PRINT_LIMIT + 10);
        CHECK_EQ(head->suppressed, 3000 - DEVICE_PRINT_LIMIT);
        CHECK_EQ(read_ring(".printk"), 0);
        CHECK_EQ(record_count, DEVICE_PRINT_LIMIT + 10);
        check_text(999, "thread 999");
        check_text(DEVICE_PRINT_LIMIT, "thread 0");
        world.tick_ns = 100;
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        world_init(&world, argv[1]);
        TEST(test_reserve);
        TEST(test_reserve_two);
        TEST(test_output);
        TEST(test_indexed);
        TEST(test_filled);
        TEST(test_overrun);
        TEST(test_holes);
        TEST(test_print);
        TEST(test_print_limit);
        world_done(&world);
        return 0;
}
