/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What views print, against files that were looked at: ctl_view_test DIRECTORY. With
 * --print NAME behind it, what one prints, to make such a file.
 */
#include <locale.h>
#include <unistd.h>

#include "ctl/view.h"
#include "unit/test.h"
#include "util/macro.h"

static const char *directory;

static const char *kernel_name(void *data, uint32_t kernel_id)
{
        static const char *const names[] = {NULL, "_Z4spinPfi", "copy", "name\x1bwith\"quotes"};

        return kernel_id < ARRAY_SIZE(names) ? names[kernel_id] : NULL;
}

static struct view_options options(bool json)
{
        return (struct view_options){.json = json, .limit = 3, .kernel_name = kernel_name};
}

/* An H200 with a few multiprocessors that have less to do, two of them nothing. */
static void print_sm(bool json)
{
        struct view_options o = options(json);
        struct sm_balance sms[256] = {};

        for (unsigned i = 0; i < 132; i++) {
                uint64_t busy_ns = i % 13 == 5 ? 400000000 : 1000000000 - i * 100000;

                if (i == 77 || i == 78)
                        continue;
                sms[i] = (struct sm_balance){
                        .blocks = busy_ns / 2000000, .block_ns = 3 * busy_ns, .busy_ns = busy_ns};
        }
        view_sm(&o, sms, json ? 3 : ARRAY_SIZE(sms));
}

/* Blocks are there: what is known of their times counts. */
static void print_sm_open(bool json)
{
        struct view_options o = options(json);
        struct sm_balance sms[256] = {
                {.blocks = 10,
                 .resident = 2,
                 .block_ns = 5000 - 2 * 1000000ULL,
                 .busy_ns = 4000 - 1000000ULL,
                 .last_ns = 1003000},
                {.blocks = 1, .block_ns = 3500, .busy_ns = 3500},
        };

        view_sm(&o, sms, ARRAY_SIZE(sms));
}

static void print_sm_empty(bool json)
{
        struct view_options o = options(json);
        struct sm_balance sms[256] = {};

        view_sm(&o, sms, ARRAY_SIZE(sms));
}

static void print_blocks(bool json)
{
        struct view_options o = options(json);
        static struct block_time kernels[8] = {
                {.owner.id = 3, .sum_ns = 7000, .buckets[12] = 2},
                {.owner.id = 1,
                 .sum_ns = 1100000000,
                 .buckets = {[14] = 800, [15] = 1000, [16] = 1, [18] = 23, [20] = 1}},
                {.owner.id = 9, .sum_ns = 64, .buckets[6] = 1},
                {.owner.id = 2, .sum_ns = UINT64_C(1) << 42, .buckets[BLOCK_TIME_BUCKETS - 1] = 3},
                {.owner.id = 4},
        };

        view_blocks(&o, kernels, ARRAY_SIZE(kernels), 17);
}

static void print_lanes(bool json)
{
        struct view_options o = options(json);
        static struct warp_lanes lanes[2] = {
                {.warps = {{[32] = 700, [8] = 300}, {[5] = 12, [27] = 12, [32] = 600}}},
                {.warps = {{[32] = 60}, {[32] = 70, [1] = 1}}},
        };

        view_lanes(&o, lanes, ARRAY_SIZE(lanes));
}

static void print_bytes(bool json)
{
        struct view_options o = options(json);
        static struct mem_bytes kernels[6] = {
                {.owner.id = 2, .loaded = 4 << 20, .stored = 4 << 20, .sectors = 1 << 18},
                {.owner.id = 1, .loaded = 4096, .sectors = 1024},
                {},
                {.owner.id = 2, .loaded = 1 << 20, .sectors = 1 << 15},
                {.owner.id = 3, .atomic = 1280, .generic = 1280, .sectors = 10},
                {.owner.id = 5, .stored = 1, .sectors = 1},
        };

        view_bytes(&o, kernels, ARRAY_SIZE(kernels), 0);
}

#define HEAT_BASE 0x7f1234000000

static const struct view_allocations *heat_allocations(void)
{
        static struct view_allocation list[] = {
                {HEAT_BASE, 70 << 20, "device"},
                {HEAT_BASE + (200 << 21), 7 << 20, "managed"}, /* its last page is shared */
                {HEAT_BASE + (200 << 21) + (7 << 20), 1 << 19, "pool"},
                {HEAT_BASE + (200 << 21) + (15 << 19), 1 << 19, "pool"},
                {HEAT_BASE + (204 << 21), 100, "mapped"},
        };
        static const struct view_allocations allocations = {list, ARRAY_SIZE(list)};

        return &allocations;
}

static void print_heat(bool json)
{
        struct view_options o = options(json);
        static struct mem_heat pages[64];
        uint32_t first = HEAT_BASE >> MEM_HEAT_PAGE_SHIFT;

        for (uint32_t i = 0; i < 40; i++)
                pages[i] = (struct mem_heat){
                        .owner.id = first + i, .loads = 1000 + i * 50, .sectors = 4000 + i * 200};
        pages[50] = (struct mem_heat){
                .owner.id = first + 100, .loads = 1, .writes = 5000, .sectors = 160032};
        pages[51] = pages[50];
        pages[52] = (struct mem_heat){.owner.id = first + 101, .writes = 100, .sectors = 100};
        pages[53] = (struct mem_heat){.owner.id = first + 102};
        view_heat(&o, pages, ARRAY_SIZE(pages), heat_allocations(), 3);
}

static void print_heat_shared(bool json)
{
        struct view_options o = options(json);
        uint32_t first = (HEAT_BASE >> MEM_HEAT_PAGE_SHIFT) + 200;
        static struct mem_heat pages[4];

        pages[0] = (struct mem_heat){.owner.id = first, .loads = 40, .sectors = 160};
        pages[1] = (struct mem_heat){.owner.id = first + 2, .loads = 20, .sectors = 80};
        pages[2] = (struct mem_heat){.owner.id = first + 3, .loads = 70, .sectors = 240};
        pages[3] = (struct mem_heat){.owner.id = first + 4, .writes = 7, .sectors = 7};
        view_heat(&o, pages, ARRAY_SIZE(pages), heat_allocations(), 0);
}

static const struct {
        const char *name;
        void (*print)(bool json);
        bool json;
} views[] = {
        {"sm", print_sm, false},
        {"sm_json", print_sm, true},
        {"sm_open", print_sm_open, false},
        {"sm_empty", print_sm_empty, false},
        {"blocks", print_blocks, false},
        {"blocks_json", print_blocks, true},
        {"lanes", print_lanes, false},
        {"lanes_json", print_lanes, true},
        {"bytes", print_bytes, false},
        {"bytes_json", print_bytes, true},
        {"heat", print_heat, false},
        {"heat_json", print_heat, true},
        {"heat_shared", print_heat_shared, false},
        {"heat_shared_json", print_heat_shared, true},
};

/* What a file holds, NUL-terminated, to free(). */
static char *read_all(FILE *f)
{
        char *text = calloc(1, 1 << 20);

        CHECK(f && text);
        CHECK(fread(text, 1, (1 << 20) - 1, f) < (1 << 20) - 1);
        return text;
}

/* Whatever fn prints on stdout, to free(). */
static char *capture(size_t view)
{
        FILE *file = tmpfile();
        int saved = dup(STDOUT_FILENO);
        char *text;

        CHECK(file && saved >= 0);
        fflush(stdout);
        CHECK(dup2(fileno(file), STDOUT_FILENO) >= 0);
        views[view].print(views[view].json);
        fflush(stdout);
        CHECK(dup2(saved, STDOUT_FILENO) >= 0);
        close(saved);
        rewind(file);
        text = read_all(file);
        fclose(file);
        return text;
}

static void test_golden(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(views); i++) {
                _cleanup_free_ char *got = capture(i), *want = NULL;
                char path[512];
                FILE *file;

                snprintf(path, sizeof(path), "%s/%s.txt", directory, views[i].name);
                file = fopen(path, "r");
                want = read_all(file);
                fclose(file);
                printf("  %s\n", views[i].name);
                CHECK_STR(got, want);
        }
}

int main(int argc, char **argv)
{
        CHECK(argc >= 2);
        directory = argv[1];
        CHECK(setlocale(LC_ALL, "C.UTF-8"));
        if (argc == 4) {
                for (size_t i = 0; i < ARRAY_SIZE(views); i++)
                        if (!strcmp(views[i].name, argv[3]))
                                views[i].print(views[i].json);
                return 0;
        }
        TEST(test_golden);
        return 0;
}
