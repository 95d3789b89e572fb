/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launches recorded by the agent's hooks beside the kernel's probes, with the
 * real programs on a library with the driver's names: each launch counts once,
 * in one order, whoever records it, whatever happens to the breakpoints.
 */
#include <bpf/bpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/hooked.h"
#include "agent/launch_abi.h"
#include "agent/launches.h"
#include "agent/memory_map.h"
#include "device/device_abi.h"
#include "probe/elf_symbols.h"
#include "probe/foreign_probes.h"
#include "probe/launch_ring.h"
#include "probe_fixture.h"
#include "util/time.h"

#define CONTEXT 0x1000
#define THREADS 4
#define RACING  8000 /* launches of each thread while the agent begins */

static char *library;
static struct fake fake;
static struct recorder seen;
static struct cpu_probes *probes;
static struct launch_ring *ring;
static int map_fd;

/* ---- in the observed process ---- */

static int current_context(cuda_handle *ret_context)
{
        *ret_context = (cuda_handle)CONTEXT;
        return 0;
}

static void install_hooks(void)
{
        void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        struct hook hooks[HOOK_MAX] = {0};
        size_t count = launches_hooks(hooks), named = 0;
        int installed;

        CHECK(handle);
        for (size_t i = 0; i < count; i++) {
                hooks[i].target = dlsym(handle, hooks[i].name);
                *hooks[i].original = hooks[i].target;
                named += hooks[i].target != NULL;
        }
        installed = hooks_install(hooks, count, NULL);
        for (size_t i = 0; i < count; i++)
                if (hooks[i].target && hooks[i].refusal)
                        fprintf(stderr, "%s: %s\n", hooks[i].name, hooks[i].refusal);
        CHECK_EQ(installed, named);
        launches_hooked(hooks, count);
}

static void begin(void)
{
        const struct cuda_api api = {.context_get_current = current_context};
        const char *refusal = launches_begin(&api, NULL, map_fd);

        if (refusal)
                fprintf(stderr, "%s\n", refusal);
        CHECK(!refusal);
}

static uint8_t first_byte(void)
{
        return *(volatile uint8_t *)(uintptr_t)fake.cuLaunchKernel;
}

static uint8_t original_byte(void)
{
        uint8_t byte = 0;

        CHECK_EQ(memory_file_bytes((uintptr_t)fake.cuLaunchKernel, &byte, 1), 1);
        return byte;
}

static void launch(void)
{
        CHECK_EQ(fake.cuLaunchKernel(0xf00, 1, 2, 3, 4, 5, 6, 7, 8, NULL, NULL), *fake.result);
}

static void fork_and_launch(void)
{
        pid_t child = fork();
        int status;

        CHECK(child >= 0);
        if (child == 0) {
                for (int i = 0; i < 100; i++)
                        launch();
                _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
}

static void each_kind(void)
{
        struct fake_launch_config config = {{11, 12, 13}, {14, 15, 16}, 17, 0, NULL, 0};

        fake.cuLaunchKernel_ptsz(0xf01, 1, 2, 3, 4, 5, 6, 7, 0, NULL, NULL);
        fake.cuLaunchKernelEx(&config, 0xf02, NULL, NULL);
        fake.cuLaunchKernelEx_ptsz(&config, 0xf03, NULL, NULL);
        fake.cuLaunchCooperativeKernel(0xf04, 1, 2, 3, 4, 5, 6, 7, 8, NULL);
        *fake.result = 701;
        CHECK_EQ(fake.cuGraphLaunch(0xf05, 9), 701);
        *fake.result = 0;
        fake.cuGraphLaunch_ptsz(0xf06, 0);
}

static int orders[2], replies[2];

static void obey(void *data)
{
        char order;

        fake_load(library, &fake);
        while (read(orders[0], &order, 1) == 1 && order != 'q') {
                switch (order) {
                case 'h':
                        install_hooks();
                        break;
                case 'b':
                        begin();
                        break;
                case 'c':
                        fake.cuCtxSetCurrent(CONTEXT);
                        break;
                case 'd':
                        fake.cuCtxDestroy_v2(CONTEXT);
                        break;
                case 'l':
                        launch();
                        break;
                case 'k':
                        each_kind();
                        break;
                case 'm':
                        fake.cuStreamSynchronize(3);
                        break;
                case 's':
                        fake.cuCtxSynchronize();
                        break;
                case 'f':
                        fork_and_launch();
                        break;
                case 'o': /* the breakpoint is out */
                        CHECK_EQ(first_byte(), original_byte());
                        break;
                case 'i': /* ... or in */
                        CHECK_EQ(first_byte(), 0xcc);
                        break;
                }
                if (write(replies[1], &order, 1) != 1)
                        _exit(1);
        }
}

/* ---- the test's side ---- */

static struct child worker;

static void tell(char order, unsigned times)
{
        char reply;

        while (times-- > 0) {
                CHECK(write(orders[1], &order, 1) == 1);
                CHECK(read(replies[0], &reply, 1) == 1);
        }
}

static void worker_start(void)
{
        CHECK_EQ(launch_ring_new(&ring), 0);
        map_fd = launch_ring_fd(ring);
        CHECK(pipe(orders) == 0 && pipe(replies) == 0);
        worker = child_start(obey, NULL);
        recorder_reset(&seen, (uint32_t)worker.pid);
        CHECK_EQ(cpu_probes_set_launch_ring(probes, seen.tgid, map_fd), 0);
        child_go(&worker);
}

static void worker_finish(void)
{
        CHECK(write(orders[1], "q", 1) == 1);
        child_finish(&worker, probes);
        if (probes)
                cpu_probes_process_gone(probes, seen.tgid);
        ring = launch_ring_free(ring);
        close(orders[0]);
        close(orders[1]);
        close(replies[0]);
        close(replies[1]);
}

static void drain_kernel(void)
{
        while (cpu_probes_poll(probes, 1000) == 1000)
                ;
}

static bool take(struct agent_launch *ret_launch)
{
        uint64_t context;
        bool r = launch_ring_take(ring, now_ns(), false, ret_launch, &context);

        if (r)
                CHECK_EQ(context, CONTEXT);
        return r;
}

static void take_in_order(uint32_t first, uint32_t count)
{
        struct agent_launch l;

        for (uint32_t i = 0; i < count; i++) {
                CHECK(take(&l));
                CHECK_EQ(l.seq, first + i);
                CHECK_EQ(l.func, 0xf00);
                CHECK_EQ(l.stream, 8);
                CHECK_EQ(l.tid, seen.tgid);
                CHECK_EQ(l.grid_x, 1);
                CHECK_EQ(l.grid_y, 2);
                CHECK_EQ(l.grid_z, 3);
                CHECK_EQ(l.block_x, 4);
                CHECK_EQ(l.block_y, 5);
                CHECK_EQ(l.block_z, 6);
                CHECK_EQ(l.shared_bytes, 7);
                CHECK_EQ(l.type, CPU_EVENT_LAUNCH);
        }
        CHECK(!take(&l));
}

/* From the kernel to the agent and, when another daemon comes, back; operations in between. */
static void test_hand_over(void)
{
        struct recorder other_seen = {0};
        struct cpu_probes *other;
        uint32_t index, before;

        worker_start();
        tell('h', 1);
        tell('c', 1);
        tell('i', 1);
        tell('l', 5);
        tell('b', 1);
        tell('o', 1);
        tell('l', 10);
        tell('m', 1);
        tell('l', 2);
        tell('s', 1);
        drain_kernel();
        CHECK_EQ(seen.launch_count, 5);
        for (uint32_t i = 0; i < 5; i++)
                CHECK_EQ(seen.launches[i].seq, i + 1);
        take_in_order(6, 12);
        CHECK_EQ(cpu_probes_find_context(probes, seen.tgid, CONTEXT, &index, &before), 0);
        CHECK_EQ(index, seen.launches[0].context);
        CHECK_EQ(before, 0);
        CHECK_EQ(cpu_probes_find_context(probes, seen.tgid, 1, &index, &before), -ENOENT);
        CHECK_EQ(seen.operation_count, 2);
        CHECK_EQ(seen.operations[0].launch_seq, 15);
        CHECK_EQ(seen.operations[1].launch_seq, 17);

        /* Somebody else's probes: the kernel puts the breakpoint back, and both count. */
        recorder_init(&other_seen);
        other_seen.tgid = seen.tgid;
        other = probes_on(library, CPU_PROBES_AUTO, 0, &other_seen);
        tell('i', 1);
        tell('l', 3);
        drain_kernel();
        while (cpu_probes_poll(other, 1000) == 1000)
                ;
        CHECK_EQ(other_seen.launch_count, 3);
        cpu_probes_free(other);
        recorder_done(&other_seen);
        CHECK_EQ(seen.launch_count, 8);
        CHECK_EQ(seen.launches[5].seq, 18);
        CHECK_EQ(seen.launches[7].seq, 20);
        take_in_order(0, 0);
        worker_finish();
}

static void test_each_kind(void)
{
        static const struct {
                uint64_t func, stream;
                uint32_t grid_x, shared;
                uint8_t type;
                uint16_t result;
        } want[] = {
                {0xf01, 2, 1, 7, CPU_EVENT_LAUNCH, 0},
                {0xf02, 0, 11, 17, CPU_EVENT_LAUNCH, 0},
                {0xf03, 2, 11, 17, CPU_EVENT_LAUNCH, 0},
                {0xf04, 8, 1, 7, CPU_EVENT_LAUNCH, 0},
                {0xf05, 9, 0, 0, CPU_EVENT_GRAPH_LAUNCH, 701},
                {0xf06, 2, 0, 0, CPU_EVENT_GRAPH_LAUNCH, 0},
        };
        struct agent_launch l;

        worker_start();
        tell('h', 1);
        tell('c', 1);
        tell('k', 1); /* the kernel's */
        tell('b', 1);
        tell('k', 1); /* the agent's */
        drain_kernel();
        CHECK_EQ(seen.launch_count, 6);
        for (size_t i = 0; i < 6; i++) {
                const struct cpu_launch_event *e = &seen.launches[i];

                CHECK(take(&l));
                CHECK_EQ(l.seq, e->seq + 6);
                CHECK_EQ(l.func, want[i].func);
                CHECK_EQ(l.stream, want[i].stream);
                CHECK_EQ(l.grid_x, want[i].grid_x);
                CHECK_EQ(l.shared_bytes, want[i].shared);
                CHECK_EQ(l.type, want[i].type);
                CHECK_EQ(l.result, want[i].result);
                /* And as the kernel has it. */
                CHECK_EQ(l.func, e->func);
                CHECK_EQ(l.stream, e->stream);
                CHECK_EQ(l.tid, e->tid);
                CHECK_EQ(l.grid_x, e->grid_x);
                CHECK_EQ(l.grid_y, e->grid_y);
                CHECK_EQ(l.grid_z, e->grid_z);
                CHECK_EQ(l.block_x, e->block_x);
                CHECK_EQ(l.block_y, e->block_y);
                CHECK_EQ(l.block_z, e->block_z);
                CHECK_EQ(l.shared_bytes, e->shared_bytes);
                CHECK_EQ(l.type, e->type);
                CHECK_EQ(l.result, e->result);
        }
        CHECK(!take(&l));
        worker_finish();
}

/* A context that is destroyed and made again under the same handle; depth counts what is alive. */
static void test_depth(void)
{
        int device_map = bpf_map_create(
                BPF_MAP_TYPE_ARRAY, "device", 4, sizeof(struct device_record), DEVICE_RING_ENTRIES,
                &(struct bpf_map_create_opts){.sz = sizeof(struct bpf_map_create_opts),
                                              .map_flags = BPF_F_MMAPABLE});
        struct cpu_probes_depth d;

        CHECK(device_map >= 0);
        worker_start();
        CHECK_EQ(cpu_probes_set_agent_ring(probes, seen.tgid, device_map), 0);
        tell('h', 1);
        tell('c', 1);
        tell('l', 3);
        tell('b', 1);
        tell('l', 4);
        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), 0);
        CHECK_EQ(d.launched, 4); /* what came before it began, no record tells the start of */
        CHECK_EQ(d.depth, 4);
        tell('s', 1);
        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), 0);
        CHECK_EQ(d.depth, 0);
        tell('l', 2);
        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), 0);
        CHECK_EQ(d.depth, 2);
        tell('d', 1);
        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), 0);
        CHECK_EQ(d.launched, 6);
        CHECK_EQ(d.depth, 0);
        tell('c', 1);
        tell('l', 5);
        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), 0);
        CHECK_EQ(d.launched, 11);
        CHECK_EQ(d.depth, 5);
        tell('s', 1);
        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), 0);
        CHECK_EQ(d.depth, 0);
        close(device_map);
        worker_finish();
}

/* A forked child passes through; a process outlives its observer, with its code as it was. */
static void test_fork_and_orphan(void)
{
        struct agent_launch l;

        worker_start();
        tell('h', 1);
        tell('c', 1);
        tell('b', 1);
        tell('l', 1);
        tell('f', 1);
        tell('l', 1);
        drain_kernel();
        CHECK_EQ(seen.launch_count, 0);
        take_in_order(1, 2);
        probes = cpu_probes_free(probes);
        tell('o', 1);
        tell('l', 20);
        while (take(&l))
                ;
        launch_ring_release(ring);
        tell('l', AGENT_LAUNCH_ENTRIES / 8);
        tell('o', 1);
        worker_finish();
        probes = probes_on(library, CPU_PROBES_AUTO, 0, &seen);
}

/* ---- threads that launch while the agent begins ---- */

static bool has_begun;

static void *launch_many(void *data)
{
        unsigned *done = data;

        fake.cuCtxSetCurrent(CONTEXT);
        for (int i = 0; i < RACING; i++) {
                /* The last quarter is the agent's, however late it gets to it. */
                while (i > 3 * RACING / 4 && !__atomic_load_n(&has_begun, __ATOMIC_RELAXED))
                        usleep(100);
                launch();
                __atomic_add_fetch(done, 1, __ATOMIC_RELAXED);
        }
        return NULL;
}

static void race(void *data)
{
        pthread_t threads[THREADS];
        unsigned done = 0;

        fake_load(library, &fake);
        install_hooks();
        for (int i = 0; i < THREADS; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, launch_many, &done), 0);
        while (__atomic_load_n(&done, __ATOMIC_RELAXED) < THREADS * RACING / 2)
                usleep(100);
        begin();
        __atomic_store_n(&has_begun, true, __ATOMIC_RELAXED);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
}

static void test_race(void)
{
        static uint8_t taken[THREADS * RACING + 1];
        struct agent_launch l;
        size_t by_agent = 0;
        struct child c;

        memset(taken, 0, sizeof(taken));
        CHECK_EQ(launch_ring_new(&ring), 0);
        map_fd = launch_ring_fd(ring);
        c = child_start(race, NULL);
        recorder_reset(&seen, (uint32_t)c.pid);
        CHECK_EQ(cpu_probes_set_launch_ring(probes, seen.tgid, map_fd), 0);
        child_go(&c);
        child_finish(&c, probes);
        for (size_t i = 0; i < seen.launch_count; i++) {
                CHECK(seen.launches[i].seq <= THREADS * RACING);
                CHECK_EQ(taken[seen.launches[i].seq]++, 0);
        }
        while (take(&l)) {
                CHECK(l.seq <= THREADS * RACING);
                CHECK_EQ(taken[l.seq]++, 0);
                by_agent++;
        }
        printf("   %zu by the kernel, %zu by the agent\n", seen.launch_count, by_agent);
        CHECK_EQ(seen.launch_count + by_agent, THREADS * RACING);
        CHECK(by_agent > 0);
        cpu_probes_process_gone(probes, seen.tgid);
        ring = launch_ring_free(ring);
}

/* ---- probes of others ---- */

static void trace_event(const char *line)
{
        int fd = open("/sys/kernel/tracing/uprobe_events", O_WRONLY | O_APPEND | O_CLOEXEC);

        if (fd < 0)
                test_skip("no tracefs");
        CHECK_EQ(write(fd, line, strlen(line)), (ssize_t)strlen(line));
        close(fd);
}

static uint64_t offset_of(const char *name)
{
        int fd = open(library, O_RDONLY | O_CLOEXEC);
        uint64_t offset = 0;

        CHECK_EQ(elf_find_functions(fd, &name, 1, &offset), 1);
        close(fd);
        return offset;
}

/* A program on a perf event without a link, as bcc attaches it. */
static int attach_by_ioctl(uint64_t offset)
{
        static const struct bpf_insn nothing[] = {
                {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
                {.code = BPF_JMP | BPF_EXIT},
        };
        FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
        struct perf_event_attr attr = {
                .size = sizeof(attr),
                .uprobe_path = (uintptr_t)library,
                .probe_offset = offset,
        };
        int fd, program;

        CHECK(f && fscanf(f, "%u", &attr.type) == 1);
        fclose(f);
        program = bpf_prog_load(BPF_PROG_TYPE_KPROBE, NULL, "GPL", nothing, 2, NULL);
        CHECK(program >= 0);
        fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(ioctl(fd, PERF_EVENT_IOC_SET_BPF, program), 0);
        CHECK_EQ(ioctl(fd, PERF_EVENT_IOC_ENABLE, 0), 0);
        close(program);
        return fd;
}

static void test_others(void)
{
        int fd;
        const char *what = NULL;
        struct recorder r = {0};
        char line[300];

        if (cpu_probes_shared(probes, &what)) {
                printf("   not on this kernel: %s\n", what);
                return;
        }
        for (int how = CPU_PROBES_MULTI; how <= CPU_PROBES_PERF_EVENTS; how++) {
                struct cpu_probes *other;
                char *copy;

                if (how == CPU_PROBES_MULTI && !cpu_probes_have_multi())
                        continue;
                other = probes_on(library, how, 0, &r);
                CHECK_EQ(cpu_probes_shared(probes, &what), 1);
                CHECK(strstr(what, "somebody else"));
                cpu_probes_free(other);
                CHECK_EQ(cpu_probes_shared(probes, &what), 0);
                /* The same place of another file is nobody's business. */
                copy = library_copy(library);
                other = probes_on(copy, how, 0, &r);
                /* Its own perf events name it /proc/self/fd/N: that could be any file. */
                CHECK_EQ(cpu_probes_shared(probes, &what), how == CPU_PROBES_PERF_EVENTS);
                cpu_probes_free(other);
                library_remove(copy);
        }
        fd = attach_by_ioctl(offset_of("cuMemcpy"));
        CHECK_EQ(cpu_probes_shared(probes, &what), 0);
        close(fd);
        fd = attach_by_ioctl(offset_of("cuLaunchKernel"));
        CHECK_EQ(cpu_probes_shared(probes, &what), 1);
        close(fd);
        CHECK_EQ(cpu_probes_shared(probes, &what), 0);
        snprintf(line, sizeof(line), "p:gpuobs_test/launch %s:0x%llx\n", library,
                 (unsigned long long)offset_of("cuLaunchKernel"));
        trace_event(line);
        CHECK_EQ(cpu_probes_shared(probes, &what), 1);
        trace_event("-:gpuobs_test/launch\n");
        snprintf(line, sizeof(line), "p:gpuobs_test/launch %s:0x%llx\n", library,
                 (unsigned long long)offset_of("cuMemcpy"));
        trace_event(line);
        CHECK_EQ(cpu_probes_shared(probes, &what), 0);
        trace_event("-:gpuobs_test/launch\n");
}

static void test_parse(void)
{
        static const struct {
                const char *line, *path;
                uint64_t offset;
        } lines[] = {
                {"p:g/e /usr/lib/libcuda.so.1:0x0000000000001234\n", "/usr/lib/libcuda.so.1",
                 0x1234},
                {"r:g/e /a b:0xz/c:0x10 arg1=%di\n", "/a b:0xz/c", 0x10},
                {"p:g/e /x:0x20(0x30)", "/x", 0x20},
                {"r:g/e /x:0x20%return", "/x", 0x20},
                {"p:g/e /x:20\n", NULL, 0},
                {"p:g/e\n", NULL, 0},
                {"w:g/e /x:0x20\n", NULL, 0},
                {"", NULL, 0},
        };
        char line[100];

        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                const char *path = NULL;
                uint64_t offset = 0;

                snprintf(line, sizeof(line), "%s", lines[i].line);
                CHECK_EQ(foreign_probes_parse(line, &path, &offset), lines[i].path != NULL);
                CHECK_EQ(offset, lines[i].offset);
                CHECK(!path || strcmp(path, lines[i].path) == 0);
        }
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        test_parse();
        skip_without_bpf();
        library = library_copy(argv[1]);
        recorder_init(&seen);
        probes = probes_on(library, CPU_PROBES_AUTO, 0, &seen);
        test_hand_over();
        printf("ok hand over\n");
        test_each_kind();
        printf("ok each kind of launch\n");
        test_depth();
        printf("ok depth\n");
        test_fork_and_orphan();
        printf("ok fork and orphan\n");
        test_race();
        printf("ok race\n");
        test_others();
        printf("ok probes of others\n");
        cpu_probes_free(probes);
        recorder_done(&seen);
        library_remove(library);
        return 0;
}
