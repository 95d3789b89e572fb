/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What launches are given: pointers found among parameters of any layout, handed
 * over in a map that either side may fill with anything.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/argument_walk.h"
#include "agent/arguments.h"
#include "agent/graph_arguments.h"
#include "agent/handles.h"
#include "agent/launch_abi.h"
#include "agent/launches.h"
#include "agent/wire.h"
#include "probe/argument_ring.h"
#include "unit/test.h"
#include "unit/test_clock.h" /* no hole is waited for in vain because a thread stopped */
#include "util/macro.h"
#include "util/time.h"

#define THREADS 4
#define PUSHES  100000

static struct agent_launch_map *launches;
static struct agent_argument_map *map;
static struct argument_ring ring;

static void open_map(void)
{
        launches = mmap(NULL, sizeof(*launches), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(launches != MAP_FAILED);
        map = &launches->arguments;
        argument_ring_init(&ring, map);
}

static void close_map(void)
{
        munmap(launches, sizeof(*launches));
}

static void set_ranges(void)
{
        static const struct agent_argument_range ranges[] = {
                {0x10000, 0x20000}, {0x20000, 0x21000}, {0x700000, 0x800000}};

        argument_ring_set_table(&ring, ranges, ARRAY_SIZE(ranges));
}

/* ---- looking at bytes ---- */

static void check_words(void)
{
        const uint64_t words[] = {0x0ffff,  0x20000, 0x7fffff, 0x10008, 0x800000,
                                  0x700010, 0x21000, 0x10000,  ~0ull,   0x20fff};
        struct argument_found f;

        CHECK(!argument_walk_begin(map, &f)); /* no memory */
        set_ranges();
        CHECK(argument_walk_begin(map, &f));
        argument_walk_bytes(map, &f, words, sizeof(words));
        CHECK(argument_walk_end(map, &f));
        CHECK(f.count == 3 && f.words == ARRAY_SIZE(words) && !f.cut);
        CHECK(f.list[0].start == 0x20000 && f.list[0].address == 0x20000);
        CHECK(f.list[1].start == 0x700000 && f.list[1].address == 0x700010);
        CHECK(f.list[2].start == 0x10000 && f.list[2].address == 0x10000);
        /* Whole words from the beginning alone; what is left at the end is none. */
        CHECK(argument_walk_begin(map, &f));
        argument_walk_bytes(map, &f, (const char *)words + 4, 8);
        argument_walk_bytes(map, &f, &words[1], 7);
        argument_walk_bytes(map, &f, &words[1], 0);
        CHECK(f.count == 0 && f.words == 1);
}

static void check_limits(void)
{
        struct agent_argument_range many[ARGUMENT_FOUND_MAX + 1];
        uint64_t words[ARGUMENT_FOUND_MAX + 1];
        static const uint64_t nothing[ARGUMENT_WORDS_MAX + 1];
        struct argument_found f;

        for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
                many[i] = (struct agent_argument_range){0x1000 * (2 * i + 1), 0x1000 * (2 * i + 2)};
                words[i] = many[i].start + i;
        }
        argument_ring_set_table(&ring, many, ARRAY_SIZE(many));
        CHECK(argument_walk_begin(map, &f));
        argument_walk_bytes(map, &f, words, sizeof(words) - 8);
        CHECK(f.count == ARGUMENT_FOUND_MAX && !f.cut);
        argument_walk_bytes(map, &f, &words[ARGUMENT_FOUND_MAX], 8);
        CHECK(f.count == ARGUMENT_FOUND_MAX && f.cut);
        CHECK(argument_walk_begin(map, &f));
        argument_walk_bytes(map, &f, nothing, ARGUMENT_WORDS_MAX * 8);
        CHECK(!f.cut);
        argument_walk_bytes(map, &f, nothing, 8);
        CHECK(f.cut && f.words == ARGUMENT_WORDS_MAX);
}

/* The table is nobody's promise: wrong counts, wrong order, a change meanwhile. */
static void check_tables(void)
{
        const uint64_t word = 0x700010;
        struct argument_found f;

        set_ranges();
        CHECK(argument_walk_begin(map, &f));
        set_ranges();
        CHECK(!argument_walk_end(map, &f));
        map->table.version |= 1;
        CHECK(!argument_walk_begin(map, &f));
        set_ranges();
        CHECK(!(map->table.version & 1));

        map->table.count = UINT32_MAX;
        CHECK(argument_walk_begin(map, &f));
        argument_walk_bytes(map, &f, &word, 8);
        CHECK_EQ(f.count, 0);
        map->table.count = AGENT_ARGUMENT_RANGES;
        for (size_t i = 0; i < AGENT_ARGUMENT_RANGES; i++)
                map->ranges[i] = (struct agent_argument_range){~(uint64_t)i * 77, i * 31};
        argument_walk_bytes(map, &f, &word, 8);
        set_ranges();
        argument_ring_set_table(&ring, NULL, 0);
        CHECK(!argument_walk_begin(map, &f));
}

/* ---- the ring ---- */

static struct argument_found found_of(unsigned count, uint64_t address)
{
        struct argument_found f = {.count = count};

        for (unsigned i = 0; i < count; i++)
                f.list[i].address = address + i;
        return f;
}

static void check_ring(void)
{
        struct argument_found f = found_of(6, 0x5000);
        struct argument_ring_losses l;
        struct agent_argument a;
        uint64_t at = now_ns();

        CHECK(argument_push(map, &f, at, 0xf00, 3));
        CHECK(argument_ring_take(&ring, now_ns(), &a));
        CHECK(a.at_ns == at && a.func == 0xf00 && a.device == 3 && a.count == 4);
        CHECK(a.addresses[0] == 0x5000 && a.addresses[3] == 0x5003);
        CHECK(argument_ring_take(&ring, now_ns(), &a));
        CHECK(a.count == 2 && a.addresses[1] == 0x5005);
        CHECK(!argument_ring_take(&ring, now_ns(), &a));

        /* Full: what did not fit is counted, what did comes out in order. */
        f = found_of(1, 1);
        for (unsigned i = 0; i < AGENT_ARGUMENT_ENTRIES; i++)
                CHECK(argument_push(map, &f, at, i, 0));
        f = found_of(6, 1);
        CHECK(!argument_push(map, &f, at, 0, 0));
        argument_unread(map);
        argument_ring_get_losses(&ring, &l);
        CHECK(l.overrun == 2 && l.unread == 1 && l.torn == 0);
        for (unsigned i = 0; i < AGENT_ARGUMENT_ENTRIES; i++) {
                CHECK(argument_ring_take(&ring, now_ns(), &a));
                CHECK_EQ(a.func, i);
        }
        CHECK(!argument_ring_take(&ring, now_ns(), &a));
}

static void check_nonsense(void)
{
        struct argument_found f = found_of(1, 1);
        struct argument_ring_losses l;
        struct agent_argument a;
        uint64_t now = now_ns();

        for (int i = 0; i < 5; i++)
                CHECK(argument_push(map, &f, now, 7, 0));
        map->records[0].count = 0;
        map->records[1].count = AGENT_ARGUMENT_ADDRESSES + 1;
        map->records[2].at_ns = now + NSEC_PER_SEC + 1;
        map->records[3].at_ns = 1;
        CHECK(argument_ring_take(&ring, now, &a) && a.func == 7);
        CHECK(!argument_ring_take(&ring, now, &a));
        argument_ring_get_losses(&ring, &l);
        CHECK_EQ(l.torn, 4);

        /* A hole is waited for, not for ever; a head that is made up says nothing. */
        map->producer.head++;
        CHECK(argument_push(map, &f, now, 8, 0));
        CHECK(!argument_ring_take(&ring, now, &a));
        CHECK(!argument_ring_take(&ring, now + 499 * NSEC_PER_MSEC, &a));
        CHECK(argument_ring_take(&ring, now + 500 * NSEC_PER_MSEC, &a) && a.func == 8);
        map->producer.head = ~0ull;
        CHECK(!argument_ring_take(&ring, now + NSEC_PER_SEC, &a));
        CHECK(!argument_ring_take(&ring, now + 2 * NSEC_PER_SEC, &a));
        map->producer.dropped = ~0ull;
        map->producer.unread = 1ull << 50;
        argument_ring_get_losses(&ring, &l);
        CHECK(l.overrun == 0 && l.unread == 0);
}

static void check_sleep(void)
{
        struct argument_found f = found_of(1, 1);
        struct agent_argument a;

        CHECK(!argument_wakes(map)); /* the daemon has not gone to sleep yet */
        CHECK(argument_ring_sleep(&ring));
        CHECK(argument_push(map, &f, now_ns(), 1, 0));
        CHECK(argument_wakes(map) && !argument_wakes(map));
        CHECK(!argument_ring_sleep(&ring)); /* there is something */
        CHECK(argument_ring_take(&ring, now_ns(), &a));
        CHECK(argument_ring_sleep(&ring));
}

/* ---- threads ---- */

static int nudge[2];

static void *push_many(void *data)
{
        uint64_t thread = (uintptr_t)data;

        for (uint64_t i = 0; i < PUSHES; i++) {
                struct argument_found f = found_of(1 + i % 6, i);

                argument_push(map, &f, now_ns(), thread << 32 | i, 0);
                if (argument_wakes(map))
                        CHECK_EQ(write(nudge[1], "", 1), 1);
        }
        return NULL;
}

/* Takes what there is; the number of addresses. A thread's launches come in order. */
static uint64_t drain(uint64_t last[THREADS])
{
        struct agent_argument a;
        uint64_t n = 0;

        do {
                while (argument_ring_take(&ring, now_ns(), &a)) {
                        uint64_t i = a.func & 0xffffffff, thread = a.func >> 32;

                        CHECK(thread < THREADS && i + 1 >= last[thread] && i < PUSHES);
                        CHECK(a.addresses[0] == i || a.addresses[0] == i + 4);
                        last[thread] = i + 1;
                        n++;
                }
        } while (!argument_ring_sleep(&ring));
        return n;
}

/* Nobody sleeps while there is something: the reader looks only when it is woken. */
static void check_threads(void)
{
        uint64_t last[THREADS] = {0}, taken = 0, records = 0;
        struct argument_ring_losses l;
        pthread_t threads[THREADS];
        char byte;

        for (uint64_t i = 0; i < PUSHES; i++)
                records += i % 6 < 4 ? 1 : 2;
        CHECK_EQ(pipe(nudge), 0);
        CHECK(argument_ring_sleep(&ring));
        for (uintptr_t i = 0; i < THREADS; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, push_many, (void *)i), 0);
        do {
                CHECK_EQ(read(nudge[0], &byte, 1), 1);
                taken += drain(last);
                argument_ring_get_losses(&ring, &l);
        } while (taken + l.overrun < THREADS * records);
        for (size_t i = 0; i < THREADS; i++)
                CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK(taken + l.overrun == THREADS * records && l.torn == 0 && taken > 0);
        close(nudge[0]);
        close(nudge[1]);
}

/* ---- handles ---- */

static void check_handles(void)
{
        char *base = (char *)0x100000;
        unsigned known = 0;

        CHECK_EQ(handles_find(base).kind, HANDLE_UNKNOWN);
        handles_note(NULL, HANDLE_KERNEL);
        handles_note((void *)~0ull, HANDLE_KERNEL);
        CHECK_EQ(handles_find((void *)~0ull).kind, HANDLE_UNKNOWN);
        handles_note(base, HANDLE_KERNEL);
        CHECK(handles_find(base).kind == HANDLE_KERNEL &&
              handles_find(base).parameters == HANDLE_PARAMETERS_UNKNOWN);
        handles_set_parameters(base, HANDLE_FUNCTION, 3); /* it is none */
        CHECK_EQ(handles_find(base).parameters, HANDLE_PARAMETERS_UNKNOWN);
        handles_set_parameters(base, HANDLE_KERNEL, 0);
        CHECK_EQ(handles_find(base).parameters, 0);
        /* Given out anew: another kernel, and of the other kind. */
        handles_note(base, HANDLE_FUNCTION);
        CHECK(handles_find(base).kind == HANDLE_FUNCTION &&
              handles_find(base).parameters == HANDLE_PARAMETERS_UNKNOWN);
        handles_set_parameters(base, HANDLE_FUNCTION, 0x7fff); /* no room for so many */
        CHECK_EQ(handles_find(base).parameters, HANDLE_PARAMETERS_UNKNOWN);
        handles_set_parameters(base, HANDLE_FUNCTION, 0x7ffe);
        CHECK_EQ(handles_find(base).parameters, 0x7ffe);

        for (unsigned i = 0; i < 2 * HANDLES_MAX; i++)
                handles_note(base + 16 * i, HANDLE_KERNEL);
        for (unsigned i = 0; i < 2 * HANDLES_MAX; i++)
                known += handles_find(base + 16 * i).kind == HANDLE_KERNEL;
        CHECK(known > HANDLES_MAX / 2 && known <= HANDLES_MAX);
}

/* ---- the whole way of a launch ---- */

struct agent_launch_map *launches_map(void)
{
        return launches;
}

/* The driver, as it says of each handle. */
enum answers { PLAIN = 0x200010, ENDLESS = 0x200020, BROKEN = 0x200030, UNASKED = 0x200040 };

static unsigned asked;

static int param_info(cuda_handle f, size_t index, size_t *offset, size_t *size)
{
        asked++;
        *offset = 8 * index;
        switch ((uintptr_t)f) {
        case PLAIN: /* a pointer, a byte, a struct of three words */
                *size = index == 0 ? 8 : index == 1 ? 1 : 24;
                return index < 3 ? CUDA_OK : CUDA_INVALID_VALUE;
        case ENDLESS:
                *size = 0;
                return CUDA_OK;
        default:
                return 999;
        }
}

static int no_device(int *device)
{
        return CUDA_INVALID_VALUE;
}

static void take_exactly(unsigned count, uint64_t first)
{
        struct agent_argument a;

        CHECK(argument_ring_take(&ring, now_ns(), &a));
        CHECK(a.count == count && a.addresses[0] == first && a.device == 0);
        CHECK(!argument_ring_take(&ring, now_ns(), &a));
}

static uint64_t unread(void)
{
        struct argument_ring_losses l;
        struct agent_argument a;

        CHECK(!argument_ring_take(&ring, now_ns(), &a));
        argument_ring_get_losses(&ring, &l);
        return l.unread;
}

static void check_parameters(void)
{
        uint64_t pointer = 0x10008, structure[3] = {1, 0x700000, 0x10000};
        uint8_t byte = 9;
        void *parameters[] = {&pointer, &byte, structure};

        handles_note((void *)PLAIN, HANDLE_FUNCTION);
        asked = 0;
        arguments_tell((void *)PLAIN, parameters, NULL, now_ns());
        CHECK_EQ(asked, 4);
        take_exactly(2, 0x10000);
        /* How many there are is known now: the driver is not asked for one too many. */
        arguments_tell((void *)PLAIN, parameters, NULL, now_ns());
        CHECK_EQ(asked, 7);
        take_exactly(2, 0x10000);

        parameters[2] = NULL;
        arguments_tell((void *)PLAIN, parameters, NULL, now_ns());
        CHECK_EQ(unread(), 1);
        handles_note((void *)ENDLESS, HANDLE_FUNCTION);
        handles_note((void *)BROKEN, HANDLE_FUNCTION);
        arguments_tell((void *)BROKEN, parameters, NULL, now_ns());
        CHECK_EQ(unread(), 2);
        asked = 0;
        arguments_tell((void *)UNASKED, parameters, NULL, now_ns());
        CHECK(unread() == 3 && asked == 0);
        arguments_tell(NULL, NULL, NULL,
                       now_ns()); /* without parameters there is nothing to read */
        CHECK_EQ(unread(), 3);
        map->table.version |= 1;
        arguments_tell((void *)PLAIN, parameters, NULL, now_ns());
        CHECK_EQ(unread(), 4);
        set_ranges();
}

/* A kernel whose parameters have no end, each without size. */
static void check_endless(void)
{
        static void *parameters[8192];
        static uint64_t word;

        for (size_t i = 0; i < ARRAY_SIZE(parameters); i++)
                parameters[i] = &word;
        asked = 0;
        arguments_tell((void *)ENDLESS, parameters, NULL, now_ns());
        CHECK(unread() == 5 && asked <= ARGUMENT_WORDS_MAX);
}

static void check_extra(void)
{
        uint64_t buffer[] = {0x20010, 5, 0x10010};
        size_t size = sizeof(buffer);
        void *extra[] = {(void *)1, buffer, (void *)2, &size, NULL};
        void *swapped[] = {(void *)2, &size, (void *)1, buffer, NULL};
        void *foreign[] = {(void *)1, buffer, (void *)77, &size, NULL};
        void *endless[] = {(void *)1, buffer, (void *)1, buffer, (void *)1, buffer,
                           (void *)1, buffer, (void *)1, buffer, (void *)1, buffer,
                           (void *)1, buffer, (void *)1, buffer};
        void *half[] = {(void *)1, buffer, NULL};

        arguments_tell((void *)UNASKED, NULL, extra, now_ns());
        take_exactly(2, 0x20010);
        arguments_tell((void *)UNASKED, NULL, swapped, now_ns());
        take_exactly(2, 0x20010);
        size = 9;
        arguments_tell((void *)UNASKED, NULL, extra, now_ns());
        take_exactly(1, 0x20010);
        arguments_tell((void *)UNASKED, NULL, foreign, now_ns());
        arguments_tell((void *)UNASKED, NULL, endless, now_ns());
        arguments_tell((void *)UNASKED, NULL, half, now_ns());
        CHECK_EQ(unread(), 8);
}

/* ---- graphs: nodes are numbers, 1 a kernel, 2 a child graph, 3 a copy, 4 a kernel unknown ---- */

static uint64_t node_list[8], node_pointer;
static size_t node_count;

static int get_nodes(cuda_handle graph, cuda_handle *nodes, size_t *count)
{
        if (graph != (cuda_handle)1)
                return 999;
        for (size_t i = 0; nodes && i < node_count; i++)
                nodes[i] = (cuda_handle)(uintptr_t)node_list[i];
        *count = node_count;
        return CUDA_OK;
}

static int get_type(cuda_handle node, int *type)
{
        static const int types[] = {0, 0, 4, 1, 0};

        if ((uintptr_t)node > 4)
                return 999;
        *type = types[(uintptr_t)node];
        return CUDA_OK;
}

static int get_params(cuda_handle node, void *params)
{
        static void *parameters[] = {&node_pointer};
        void **words = params; /* function; seven numbers; parameters, extra; kernel */

        words[0] = (uintptr_t)node == 1 ? (void *)PLAIN : (void *)UNASKED;
        words[5] = parameters;
        return CUDA_OK;
}

static bool graph_of(size_t n, const uint64_t *nodes, struct graph_arguments *ret_arguments)
{
        memcpy(node_list, nodes, n * sizeof(*nodes));
        node_count = n;
        graph_arguments_made((cuda_handle)0x77, (cuda_handle)1);
        return graph_arguments_find((cuda_handle)0x77, ret_arguments);
}

static void check_graphs(void)
{
        const uint64_t kernels[] = {1, 3, 1}, child[] = {1, 2}, unknown[] = {4}, broken[] = {1, 5};
        struct graph_arguments a;

        handles_note((void *)PLAIN, HANDLE_FUNCTION);
        handles_set_parameters((void *)PLAIN, HANDLE_FUNCTION, 1);
        node_pointer = 0x10040;
        CHECK(!graph_of(3, kernels, &a)); /* nobody wants to know */
        launches->wishes.arguments = 1;
        CHECK(graph_of(3, kernels, &a) && a.count == 1 && a.addresses[0] == 0x10040 && !a.cut);
        CHECK(graph_of(2, child, &a) && a.count == 1 && a.cut);
        CHECK(graph_of(1, unknown, &a) && a.count == 0 && a.cut);
        CHECK(graph_of(2, broken, &a) && a.count == 1 && a.cut);
        CHECK(!graph_of(0, kernels, &a));
        CHECK(graph_of(3, kernels, &a));
        arguments_tell_graph((cuda_handle)0x77, now_ns());
        take_exactly(1, 0x10040);
        graph_arguments_forget((cuda_handle)0x77);
        arguments_tell_graph((cuda_handle)0x77, now_ns());
        CHECK_EQ(unread(), 9);
        graph_arguments_made((cuda_handle)0x77, (cuda_handle)2); /* its nodes are not to be had */
        CHECK(!graph_arguments_find((cuda_handle)0x77, &a));

        CHECK(graph_of(3, kernels, &a));
        for (uintptr_t i = 0; i < GRAPHS_MAX; i++)
                graph_arguments_made((cuda_handle)(0x1000 + i), (cuda_handle)1);
        CHECK(!graph_arguments_find((cuda_handle)0x77, &a)); /* the oldest */
        CHECK(graph_arguments_find((cuda_handle)0x1000, &a));
        launches->wishes.arguments = 0;
}

/* The daemon slept and is gone: the first launch notices, and no other is looked at. */
static void check_gone(void)
{
        uint64_t pointer = 0x10008;
        void *parameters[] = {&pointer, &pointer, &pointer};

        launches->wishes.arguments = 1;
        map->producer.asleep = 1;
        handles_note((void *)PLAIN, HANDLE_FUNCTION);
        handles_set_parameters((void *)PLAIN, HANDLE_FUNCTION, 1);
        arguments_tell((void *)PLAIN, parameters, NULL, now_ns());
        CHECK(launches->wishes.arguments == 0);
}

static void check_launches(void)
{
        const struct cuda_api api = {.function_param_info = param_info,
                                     .context_get_device = no_device,
                                     .graph_get_nodes = get_nodes,
                                     .graph_node_get_type = get_type,
                                     .graph_kernel_get_params = get_params};
        struct wire wire = WIRE_NONE;

        open_map();
        set_ranges();
        arguments_begin(&api, &wire, launches);
        check_parameters();
        check_endless();
        check_extra();
        check_graphs();
        check_gone();
        close_map();
}

int main(void)
{
        static void (*const checks[])(void) = {check_words,  check_limits,   check_tables,
                                               check_ring,   check_nonsense, check_sleep,
                                               check_threads};

        for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
                open_map();
                checks[i]();
                close_map();
        }
        check_launches();
        check_handles(); /* last: it fills the table */
        return 0;
}
