/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The start/end program, from its object: loaded (the kernel verifies it),
 * compiled, put around an empty kernel, run by the PTX interpreter into a real
 * start/end map, and read back by the daemon's reader.
 */
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent_abi.h"
#include "bpf/device_tools.h"
#include "device/device_abi.h"
#include "device/program.h"
#include "device/record_ring.h"
#include "ptx_interp.h"
#include "unit/test.h"

#define KERNEL_ID  77
#define CONTEXT    0xfedc
#define QUEUE_TEXT "0xfabcd5ff" /* the lowest byte is not kept */
#define QUEUE      0xfabcd5

/* A process with its map, its counters and one probed kernel. */
struct world {
        struct device_object *object;
        struct record_ring *ring;
        struct device_record *slots;
        struct device_counters *counters;
        struct ptx_module *module;
        struct ptx_machine *machine;
        uint64_t clock_ns;
};

static const char *object_path;

static const char *fragment(const struct device_object *o, enum device_where where)
{
        for (size_t i = 0; i < device_object_program_count(o); i++)
                if (device_object_program(o, i)->where == where)
                        return device_object_program(o, i)->ptx;
        CHECK(!"no such program");
}

/* Both fragments in one kernel, as the agent's PTX injector would have it. */
static struct ptx_module *make_module(const struct world *w)
{
        uint64_t maps[8] = {};
        const struct device_values values = {
                .kernel_id = "77", .context = "%envreg6", .queue = QUEUE_TEXT, .maps = maps};
        char *both, *text, log[256] = "", *exit_text;
        struct ptx_module *module;

        for (size_t m = 0; m < device_object_map_count(w->object); m++)
                maps[m] = (uint64_t)(uintptr_t)(device_object_map(w->object, m)->placement ==
                                                                GPUOBS_PLACE_HOST
                                                        ? (void *)w->slots
                                                        : (void *)w->counters);
        exit_text = strdup(fragment(w->object, DEVICE_EXIT));
        CHECK(exit_text);
        /* Two fragments in one kernel need two names. */
        for (char *p = exit_text; (p = strstr(p, "@U@"));)
                memcpy(p, "_x_", 3);
        CHECK(asprintf(&both, "%s%s", fragment(w->object, DEVICE_ENTRY), exit_text) > 0);
        text = device_make_kernel(both, "kernel", &values, 1);
        if (ptx_module_load(text, strlen(text), 0, log, sizeof(log), &module))
                fprintf(stderr, "%s\n%s\n", log, text);
        CHECK_STR(log, "");
        free(exit_text);
        free(both);
        free(text);
        return module;
}

static struct world world_new(void)
{
        struct world w = {.object = device_test_load(object_path)};

        CHECK_EQ(record_ring_new(&w.ring), 0);
        w.slots = mmap(NULL, DEVICE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                       record_ring_fd(w.ring), 0);
        CHECK(w.slots != MAP_FAILED);
        w.counters = aligned_alloc(256, (sizeof(*w.counters) + 255) / 256 * 256);
        CHECK(w.counters);
        memset(w.counters, 0, sizeof(*w.counters));
        w.module = make_module(&w);
        w.machine = ptx_machine_new();
        CHECK(w.machine);
        return w;
}

static void world_done(struct world *w)
{
        ptx_machine_free(w->machine);
        ptx_module_free(w->module);
        free(w->counters);
        munmap(w->slots, DEVICE_RING_BYTES);
        record_ring_free(w->ring);
        device_object_free(w->object);
}

static uint64_t tick(void *data)
{
        struct world *w = data;

        return w->clock_ns += 32;
}

static void launch(struct world *w, struct ptx_launch l)
{
        struct ptx_env env = {.userdata = w, .globaltimer = tick, .sm_count = 132};
        enum ptx_fault fault;

        CHECK_EQ(ptx_run(w->machine, ptx_module_entry(w->module, 0), &l, NULL, &env, &fault), 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
}

struct taken {
        struct device_record records[64];
        size_t count;
};

static void on_record(void *data, const struct device_record *rec)
{
        struct taken *t = data;

        CHECK(t->count < 64);
        t->records[t->count++] = *rec;
}

static void on_gap(void *data, uint64_t lost)
{
        CHECK(!"nothing may be lost");
}

static struct taken take(struct world *w)
{
        struct taken t = {};

        record_ring_read(w->ring, 0, 64, on_record, on_gap, &t);
        return t;
}

static uint32_t place_of(uint64_t gridid)
{
        return DEVICE_PLACE(gridid, CONTEXT) % DEVICE_GRIDS;
}

/* What is left in the counters of a grid: none of the tail, so many in the banks. */
static void check_counters(const struct world *w, uint64_t gridid, uint32_t in_banks)
{
        uint32_t place = place_of(gridid);

        CHECK_EQ(w->counters->tail_done[place], 0);
        for (size_t b = 0; b < DEVICE_BANKS; b++)
                in_banks -= w->counters->early_done[b][place];
        CHECK_EQ(in_banks, 0);
}

/* As if blocks had counted that did not, or had not that did. */
static void add_to_banks(struct world *w, uint64_t gridid, uint32_t more)
{
        w->counters->early_done[gridid % DEVICE_BANKS][place_of(gridid)] += more;
}

/* One launch leaves one START and one END record, whatever its shape. */
static void check_launch(struct world *w, struct ptx_launch l)
{
        uint64_t before_ns = w->clock_ns;
        struct taken t;

        l.context = CONTEXT;
        launch(w, l);
        t = take(w);
        CHECK_EQ(t.count, 2);
        CHECK_EQ(DEVICE_RECORD_TYPE(&t.records[0]), DEVICE_RECORD_START);
        CHECK_EQ(DEVICE_RECORD_TYPE(&t.records[1]), DEVICE_RECORD_END);
        for (unsigned i = 0; i < 2; i++) {
                CHECK_EQ(DEVICE_RECORD_GRIDID(&t.records[i]), l.gridid);
                CHECK_EQ(DEVICE_RECORD_KERNEL(&t.records[i]), KERNEL_ID);
                CHECK_EQ(DEVICE_RECORD_CONTEXT(&t.records[i]), CONTEXT);
                CHECK_EQ(DEVICE_RECORD_QUEUE(&t.records[i]), QUEUE);
                CHECK(t.records[i].time_ns > before_ns);
                CHECK(t.records[i].time_ns <= w->clock_ns);
                CHECK(DEVICE_RECORD_SMID(&t.records[i]) < 132);
        }
        CHECK_EQ(DEVICE_RECORD_SMID(&t.records[0]), l.first_sm);
        CHECK(t.records[0].time_ns < t.records[1].time_ns);
        check_counters(w, l.gridid, 0);
}

static void test_every_shape_gives_start_and_end(void)
{
        static const uint32_t shapes[][6] = {
                {1, 1, 1, 1, 1, 1},   {1, 1, 1, 32, 1, 1}, {1, 1, 1, 256, 1, 1},
                {1, 1, 1, 7, 5, 3},   {2, 1, 1, 64, 1, 1}, {1, 2, 1, 1, 32, 1},
                {1, 1, 2, 1, 1, 64},  {5, 4, 3, 33, 2, 2}, {100, 1, 1, 1, 1, 1},
                {1, 97, 1, 16, 4, 1}, {3, 3, 3, 1, 1, 33},
        };
        struct world w = world_new();
        uint64_t gridid = 1;

        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
                const uint32_t *s = shapes[i];

                check_launch(&w, (struct ptx_launch){.grid = {s[0], s[1], s[2]},
                                                     .block = {s[3], s[4], s[5]},
                                                     .gridid = gridid++,
                                                     .first_sm = (unsigned)(i % 132)});
        }
        CHECK_EQ(w.counters->head, 2 * (gridid - 1));
        world_done(&w);
}

static void test_large_grid_ids(void)
{
        struct world w = world_new();

        check_launch(&w, (struct ptx_launch){.grid = {3, 1, 1},
                                             .block = {32, 1, 1},
                                             .gridid = UINT64_C(0x9abcdef012)});
        check_launch(&w, (struct ptx_launch){
                                 .grid = {3, 1, 1}, .block = {32, 1, 1}, .gridid = DEVICE_GRIDS});
        world_done(&w);
}

/* So large that only blocks at the end of the grid ask for the count. */
static void test_grids_with_a_tail(void)
{
        static const uint32_t shapes[][4] = {
                {5000, 1, 1, 32}, {4609, 1, 1, 1},   {4608, 1, 1, 64}, {70, 9, 8, 1},
                {1, 1, 5000, 32}, {300, 1, 1, 1024}, {2, 2000, 2, 96},
        };
        struct world w = world_new();

        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
                check_launch(&w,
                             (struct ptx_launch){.grid = {shapes[i][0], shapes[i][1], shapes[i][2]},
                                                 .block = {shapes[i][3], 1, 1},
                                                 .gridid = i + 1});
        world_done(&w);
}

/*
 * Blocks of the grid's start that end behind its tail: said so, and whatever still
 * comes brings the banks' sum to 0, ready for the next grid.
 */
static void test_tail_that_is_not_last(void)
{
        struct ptx_launch l = {
                .grid = {5000, 1, 1}, .block = {32, 1, 1}, .gridid = 5, .context = CONTEXT};
        struct world w = world_new();
        struct taken t;

        add_to_banks(&w, l.gridid, -3u); /* three of the 5,000 count later */
        launch(&w, l);
        t = take(&w);
        CHECK_EQ(t.count, 2);
        CHECK_EQ(DEVICE_RECORD_TYPE(&t.records[1]), DEVICE_RECORD_TAIL);
        CHECK_EQ(DEVICE_RECORD_GRIDID(&t.records[1]), l.gridid);
        check_counters(&w, l.gridid, -3u);
        add_to_banks(&w, l.gridid, 3);
        l.gridid += DEVICE_GRIDS;
        check_launch(&w, l);
        world_done(&w);
}

/* Each device of a process counts its grids from 1. */
static void test_two_contexts_with_one_id(void)
{
        struct ptx_launch l = {.grid = {5, 1, 1}, .block = {32, 1, 1}, .gridid = 5};
        struct world w = world_new();
        struct taken t;

        /* Three blocks of the first context's grid have ended, the other two run. */
        w.counters->tail_done[DEVICE_PLACE(5, 1) % DEVICE_GRIDS] = 3;
        l.context = 2;
        launch(&w, l);
        t = take(&w);
        CHECK_EQ(t.count, 2);
        CHECK_EQ(DEVICE_RECORD_CONTEXT(&t.records[1]), 2);
        CHECK_EQ(DEVICE_RECORD_TYPE(&t.records[1]), DEVICE_RECORD_END);
        CHECK_EQ(w.counters->tail_done[DEVICE_PLACE(5, 1) % DEVICE_GRIDS], 3);
        CHECK_EQ(w.counters->tail_done[DEVICE_PLACE(5, 2) % DEVICE_GRIDS], 0);
        world_done(&w);
}

/* The ring wraps: record n goes to slot n % entries, sealed with n. */
static void test_ring_wraps(void)
{
        struct world w = world_new();

        w.counters->head = DEVICE_RING_ENTRIES - 1;
        launch(&w, (struct ptx_launch){.grid = {1, 1, 1}, .block = {32, 1, 1}, .gridid = 9});
        CHECK_EQ(device_record_index(&w.slots[DEVICE_RING_ENTRIES - 1]), DEVICE_RING_ENTRIES - 1);
        CHECK_EQ(device_record_index(&w.slots[0]), DEVICE_RING_ENTRIES);
        CHECK_EQ(w.counters->head, DEVICE_RING_ENTRIES + 1);
        world_done(&w);
}

static void test_object_says_what_it_is(void)
{
        struct device_object *o = device_test_load(object_path);
        const struct device_map_info *records = device_object_map(o, 0);
        const struct device_map_info *counters = device_object_map(o, 1);

        CHECK_EQ(device_object_program_count(o), 2);
        CHECK_EQ(device_object_map_count(o), 2);
        CHECK_STR(records->name, "launch_records");
        CHECK_EQ(records->placement, GPUOBS_PLACE_HOST);
        CHECK_EQ(records->bytes, DEVICE_RING_BYTES);
        CHECK_STR(counters->name, "launch_counters");
        CHECK_EQ(counters->placement, GPUOBS_PLACE_DEVICE);
        CHECK_EQ(counters->bytes, sizeof(struct device_counters));
        for (size_t i = 0; i < 2; i++) {
                const struct device_program_info *p = device_object_program(o, i);

                CHECK_EQ(strlen(p->ptx), p->ptx_bytes);
                CHECK_EQ(p->scope,
                         p->where == DEVICE_ENTRY ? DEVICE_SCOPE_GRID : DEVICE_SCOPE_BLOCK);
        }
        device_object_free(o);
}

static void check_once(const char *ptx, const char *token)
{
        const char *at = strstr(ptx, token);

        CHECK(at && !strstr(at + 1, token));
}

/* Properties of the text that cost or correctness depend on. */
static void test_fragments_are_lean(void)
{
        struct device_object *o = device_test_load(object_path);

        for (size_t i = 0; i < 2; i++) {
                const char *ptx = device_object_program(o, i)->ptx;
                const char *v2 = strstr(ptx, "st.global.v2.u64");

                CHECK_EQ(strncmp(ptx, "{\n", 2), 0);
                CHECK_STR(ptx + strlen(ptx) - 2, "}\n");
                CHECK(!strstr(ptx, ".local")); /* no stack memory */
                CHECK(!strstr(ptx, "\tret"));
                CHECK(!strstr(ptx, "\tcall"));
                CHECK(!strstr(ptx, "\tbar"));
                CHECK(!strstr(ptx, "atom.global.sys"));
                /* the record is two stores of 16 bytes, nothing is checked for NULL */
                CHECK(v2 && strstr(v2 + 1, "st.global.v2.u64"));
                CHECK(!strstr(ptx, "selp"));
                /* what the agent puts in is there once, and read by the leader only */
                check_once(ptx, "@K@");
                check_once(ptx, "@Q0@");
                CHECK(strstr(ptx, "bra G@U@_end") < strstr(ptx, "@C0@"));
                CHECK(strstr(ptx, "bra G@U@_end") < strstr(ptx, "@Q0@"));
                /* the leader test comes before anything else is read */
                CHECK(strstr(ptx, "bra G@U@_end") < strstr(ptx, "%globaltimer"));
                CHECK(strstr(ptx, "// launch.bpf.c:"));
        }
        CHECK(strstr(fragment(o, DEVICE_ENTRY), "%ctaid.x"));
        /* most blocks of a large grid do not wait for the count */
        CHECK(strstr(fragment(o, DEVICE_EXIT), "red.global.gpu.add.u32"));
        CHECK(strstr(fragment(o, DEVICE_EXIT), "bra G@U@_end") <
              strstr(fragment(o, DEVICE_EXIT), "%ctaid"));
        device_object_free(o);
}

static void test_blob(void)
{
        struct device_object *o = device_test_load(object_path);
        const struct agent_program *programs;
        const struct agent_blob *blob;
        uint64_t bytes;
        int fd;

        CHECK_EQ(device_object_blob(o, &fd, &bytes), 0);
        CHECK_EQ(fcntl(fd, F_GET_SEALS) & (F_SEAL_WRITE | F_SEAL_SHRINK),
                 F_SEAL_WRITE | F_SEAL_SHRINK);
        blob = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(blob != MAP_FAILED);
        programs = (const struct agent_program *)(blob + 1);
        CHECK_EQ(blob->magic, AGENT_BLOB_MAGIC);
        CHECK_EQ(blob->count, 2);
        CHECK_EQ(blob->maps[0].placement, GPUOBS_PLACE_HOST);
        CHECK_EQ(blob->maps[0].bytes, DEVICE_RING_BYTES);
        CHECK_EQ(blob->maps[1].placement, GPUOBS_PLACE_DEVICE);
        CHECK_EQ(blob->maps[1].bytes, sizeof(struct device_counters));
        CHECK_EQ(blob->maps[2].placement, 0);
        for (uint32_t i = 0; i < 2; i++) {
                const struct device_program_info *p = device_object_program(o, i);

                CHECK_EQ(programs[i].where, p->where);
                CHECK_STR(programs[i].name, p->name);
                CHECK_EQ(programs[i].text_bytes, p->ptx_bytes);
                CHECK(programs[i].text_offset + programs[i].text_bytes <= bytes);
                CHECK(!memcmp((const char *)blob + programs[i].text_offset, p->ptx, p->ptx_bytes));
        }
        close(fd);
        device_object_free(o);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        object_path = argv[1];
        libbpf_set_print(NULL);
        TEST(test_object_says_what_it_is);
        TEST(test_fragments_are_lean);
        TEST(test_blob);
        TEST(test_every_shape_gives_start_and_end);
        TEST(test_large_grid_ids);
        TEST(test_grids_with_a_tail);
        TEST(test_tail_that_is_not_last);
        TEST(test_two_contexts_with_one_id);
        TEST(test_ring_wraps);
        return 0;
}
