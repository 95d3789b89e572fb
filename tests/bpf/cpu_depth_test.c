/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel program that reads the start/end map: records are written into an
 * mmapable array as a GPU would write them, launches come from real uprobes.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/cpu_state_abi.h"
#include "device/device_abi.h"
#include "probe_fixture.h"
#include "util/time.h"

static char *library;
static struct cpu_probes *probes;
static struct recorder seen;
static struct fake fake;

struct ring {
        int fd;
        volatile struct device_record *records;
        uint64_t head;
};

static struct ring ring;

static void ring_open(void)
{
        LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
        void *records;

        ring.fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "ring", sizeof(uint32_t),
                                 sizeof(struct device_record), DEVICE_RING_ENTRIES, &opts);
        CHECK(ring.fd >= 0);
        records = mmap(NULL, DEVICE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, 0);
        CHECK(records != MAP_FAILED);
        ring.records = records;
        ring.head = 0;
}

static void ring_close(void)
{
        munmap((void *)ring.records, DEVICE_RING_BYTES);
        close(ring.fd);
}

static void write_at(uint64_t n, enum device_record_type type, uint64_t gridid)
{
        volatile struct device_record *r = &ring.records[n % DEVICE_RING_ENTRIES];

        r->time_ns = 1000 + n;
        r->grid = gridid | (uint64_t)type << 40;
        r->who = 7;
        r->check = (n + 1) ^ r->time_ns ^ (r->grid * DEVICE_SEAL_GRID) ^ (r->who * DEVICE_SEAL_WHO);
}

static void gpu_writes(enum device_record_type type, unsigned count)
{
        while (count-- > 0) {
                write_at(ring.head, type, ring.head);
                ring.head++;
        }
}

/* ---- a process that launches when it is told to ---- */

static int orders[2], replies[2];

static void obey(void *data)
{
        char order;

        fake_load(library, &fake);
        while (read(orders[0], &order, 1) == 1 && order != 'q') {
                if (order == 'l')
                        fake.cuLaunchKernel(1, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
                else if (order == 'g')
                        fake.cuGraphLaunch(1, 0);
                else if (order == 's')
                        fake.cuCtxSynchronize();
                if (write(replies[1], &order, 1) != 1)
                        _exit(1);
        }
}

static void tell(char order, unsigned times)
{
        char reply;

        while (times-- > 0) {
                CHECK(write(orders[1], &order, 1) == 1);
                CHECK(read(replies[0], &reply, 1) == 1);
        }
}

static struct child worker;

static void worker_start(void)
{
        CHECK(pipe(orders) == 0 && pipe(replies) == 0);
        worker = child_start(obey, NULL);
        recorder_reset(&seen, (uint32_t)worker.pid);
        child_go(&worker);
}

static void worker_finish(void)
{
        CHECK(write(orders[1], "q", 1) == 1);
        child_finish(&worker, probes);
        cpu_probes_process_gone(probes, seen.tgid);
        close(orders[0]);
        close(orders[1]);
        close(replies[0]);
        close(replies[1]);
}

static struct cpu_probes_depth depth(void)
{
        struct cpu_probes_depth d;

        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), 0);
        return d;
}

/* The context's own counts, as another eBPF program would find them in the map. */
static void check_context(uint32_t launched, uint32_t started)
{
        int fd = cpu_probes_map_fd(probes, "contexts");
        struct cpu_context c;

        while (cpu_probes_poll(probes, 1000) == 1000)
                ;
        CHECK(seen.launch_count > 0);
        CHECK_EQ(bpf_map_lookup_elem(fd, &seen.launches[0].context, &c), 0);
        CHECK_EQ(c.tgid, seen.tgid);
        CHECK_EQ(c.launched, launched);
        CHECK_EQ(c.started, started);
        CHECK_EQ(c.depth, launched - started);
}

static void test_depth(void)
{
        struct cpu_probes_depth d;

        worker_start();
        ring_open();
        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), -ENOENT);
        CHECK_EQ(cpu_probes_set_agent_ring(probes, seen.tgid, ring.fd), 0);
        tell('l', 5);
        d = depth();
        CHECK_EQ(d.launched, 5);
        CHECK_EQ(d.depth, 5);
        CHECK_EQ(d.contexts, 1);

        gpu_writes(DEVICE_RECORD_START, 3);
        gpu_writes(DEVICE_RECORD_END, 2);
        d = depth();
        CHECK_EQ(d.started, 3);
        CHECK_EQ(d.depth, 2);
        CHECK_EQ(d.records, 3);
        check_context(5, 3);

        /* Kernels without a probe leave no record: a synchronise settles it. */
        tell('s', 1);
        CHECK_EQ(depth().depth, 0);
        tell('l', 4);
        CHECK_EQ(depth().depth, 4);
        gpu_writes(DEVICE_RECORD_START, 1);
        CHECK_EQ(depth().depth, 3);

        /* A graph starts kernels that were not launched one by one. */
        tell('g', 1);
        gpu_writes(DEVICE_RECORD_START, 50);
        d = depth();
        CHECK_EQ(d.depth, 0);
        CHECK_EQ(d.launched, 9);
        tell('l', 2);
        CHECK_EQ(depth().depth, 2);

        cpu_probes_remove_agent_ring(probes, seen.tgid);
        CHECK_EQ(cpu_probes_depth(probes, seen.tgid, &d), -ENOENT);
        ring_close();
        worker_finish();
}

static void test_overwritten_records(void)
{
        struct cpu_probes_depth d;
        uint64_t extra = 1000;
        int i;

        worker_start();
        ring_open();
        CHECK_EQ(cpu_probes_set_agent_ring(probes, seen.tgid, ring.fd), 0);
        tell('l', 1);
        gpu_writes(DEVICE_RECORD_END, DEVICE_RING_ENTRIES + (unsigned)extra);
        for (i = 0; i < 20; i++)
                d = depth();
        CHECK_EQ(d.lost, extra);
        CHECK_EQ(d.records, 0);
        gpu_writes(DEVICE_RECORD_START, 1);
        d = depth();
        CHECK_EQ(d.records, 1);
        CHECK_EQ(d.depth, 0);
        ring_close();
        worker_finish();
}

#define HOLE_PATIENCE_NS (20 * NSEC_PER_MSEC) /* depth.bpf.h */

/* Returns whether both looks were made while the record may still come. */
static bool hole_holds_up(void)
{
        uint64_t began_ns, first, second;
        bool in_time;

        worker_start();
        ring_open();
        CHECK_EQ(cpu_probes_set_agent_ring(probes, seen.tgid, ring.fd), 0);
        tell('l', 3);
        gpu_writes(DEVICE_RECORD_START, 1);
        write_at(2, DEVICE_RECORD_START, 2);
        began_ns = now_ns();
        first = depth().records;
        second = depth().records;
        in_time = now_ns() - began_ns < HOLE_PATIENCE_NS;
        CHECK_EQ(first, 1);
        if (in_time)
                CHECK_EQ(second, 1);
        usleep(30000);
        depth();
        CHECK_EQ(depth().records, 2);
        CHECK_EQ(depth().lost, 1);
        ring_close();
        worker_finish();
        return in_time;
}

/* A record that is claimed but never completed holds the reader up for a while only. */
static void test_hole(void)
{
        for (int tries = 0; !hole_holds_up(); tries++)
                CHECK(tries < 100);
}

/* The process owns the map and can write anything: it must only harm itself. */
static void test_garbage(void)
{
        struct cpu_probes_depth d;
        uint64_t state = 1, i, *words;

        worker_start();
        ring_open();
        CHECK_EQ(cpu_probes_set_agent_ring(probes, seen.tgid, ring.fd), 0);
        tell('l', 2);
        words = (uint64_t *)ring.records;
        for (i = 0; i < DEVICE_RING_BYTES / 8; i++)
                words[i] = test_random(&state);
        for (i = 0; i < 100; i++) {
                d = depth();
                CHECK(d.depth <= 2);
        }
        /* Positions far ahead, some absurdly so. */
        for (i = 0; i < 48; i++) {
                write_at(0, DEVICE_RECORD_START, 0);
                ring.records[0].check ^= 1 ^ (((uint64_t)DEVICE_RING_ENTRIES << i) + 1);
                d = depth();
                CHECK(d.depth <= 2);
        }
        ring_close();
        worker_finish();
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        skip_without_bpf();
        recorder_init(&seen);
        library = library_copy(argv[1]);
        probes = probes_on(library, CPU_PROBES_AUTO, 0, &seen);
        TEST(test_depth);
        TEST(test_overwritten_records);
        TEST(test_hole);
        TEST(test_garbage);
        cpu_probes_free(probes);
        library_remove(library);
        recorder_done(&seen);
        return 0;
}
