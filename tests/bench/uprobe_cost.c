/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a probed launch costs its caller: nanoseconds per call of a function that
 * does nothing, without probes, with the entry program alone, with entry and
 * return, attached both ways. Compare the lines of one run: absolute values
 * depend on the machine, and on its being a virtual one.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/probe_fixture.h"
#include "cuda.skel.h"
#include "probe/elf_symbols.h"
#include "probe/uprobe.h"
#include "util/macro.h"
#include "util/time.h"

#include <fcntl.h>
#include <unistd.h>

#define CALLS  200 /* short, to fall between interrupts and other tasks */
#define ROUNDS 2000

static struct fake fake;
static const char *library;
static struct uprobe_place place;

static int discard(void *data, void *event, size_t size)
{
        return 0;
}

/* The least of several rounds: what disturbs only adds. */
static double measure(struct ring_buffer *ring)
{
        double best = 1e12, each;
        uint64_t start;
        int round, i;

        for (round = 0; round < ROUNDS; round++) {
                start = now_ns();
                for (i = 0; i < CALLS; i++)
                        fake.cuLaunchKernel(1, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
                each = (double)(now_ns() - start) / CALLS;
                if (each < best)
                        best = each;
                if (ring)
                        ring_buffer__consume(ring);
        }
        return best;
}

static void measure_probes(bool multi, bool at_return, double bare, const char *name)
{
        struct cuda_bpf *bpf = cuda_bpf__open();
        struct uprobe_links links = {0};
        struct bpf_program *program;
        struct ring_buffer *ring;
        uint32_t index = 1;
        double cost;
        size_t n;

        CHECK(bpf);
        bpf_object__for_each_program(program, bpf->obj)
        {
                if (bpf_program__type(program) == BPF_PROG_TYPE_KPROBE)
                        uprobe_prepare(program, multi);
        }
        CHECK_EQ(cuda_bpf__load(bpf), 0);
        CHECK_EQ(bpf_map_update_elem(bpf_map__fd(bpf->maps.free_contexts), NULL, &index, 0), 0);
        ring = ring_buffer__new(bpf_map__fd(bpf->maps.events), discard, NULL, NULL);
        CHECK(ring);
        if (at_return)
                CHECK_EQ(uprobe_attach(&links, bpf->progs.launch_return, multi, true, library,
                                       &place, 1, &n),
                         0);
        CHECK_EQ(uprobe_attach(&links, bpf->progs.launch_kernel, multi, false, library, &place, 1,
                               &n),
                 0);
        cost = measure(ring);
        printf("%-32s %7.0f ns  +%.0f\n", name, cost, cost - bare);
        uprobe_links_done(&links);
        ring_buffer__free(ring);
        cuda_bpf__destroy(bpf);
}

int main(int argc, char **argv)
{
        const char *name = "cuLaunchKernel";
        double bare;
        int fd;

        CHECK(argc == 2);
        skip_without_bpf();
        library = argv[1];
        fd = open(library, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(elf_find_functions(fd, &name, 1, &place.offset), 1);
        close(fd);
        fake_load(library, &fake);
        bare = measure(NULL);
        printf("%-32s %7.0f ns\n", "no probe", bare);
        if (uprobe_multi_supported()) {
                measure_probes(true, false, bare, "entry, uprobe_multi");
                measure_probes(true, true, bare, "entry and return, uprobe_multi");
        }
        measure_probes(false, false, bare, "entry, perf event");
        measure_probes(false, true, bare, "entry and return, perf events");
        return 0;
}
