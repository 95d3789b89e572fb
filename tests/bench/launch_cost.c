/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What watching a launch costs its caller, in both ways: nanoseconds per call of
 * a function that does nothing, bare; with the agent's hook calling on; with the
 * kernel's entry and return probe; recorded by the agent with the breakpoint
 * out of the way. The least of many rounds: compare the lines of one run.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent/hooked.h"
#include "agent/launch_abi.h"
#include "agent/launches.h"
#include "bpf/probe_fixture.h"
#include "cuda.skel.h"
#include "probe/elf_symbols.h"
#include "probe/launch_ring.h"
#include "probe/uprobe.h"
#include "util/macro.h"
#include "util/time.h"

#define CALLS  200 /* short, to fall between interrupts and other tasks */
#define ROUNDS 2000

static struct fake fake;
static const char *library;
static struct uprobe_place place;
static double bare;

static int discard(void *data, void *event, size_t size)
{
        return 0;
}

static int current_context(cuda_handle *ret_context)
{
        *ret_context = (cuda_handle)0x1000;
        return 0;
}

static size_t drain(struct launch_ring *ring)
{
        struct agent_launch launch;
        uint64_t context;
        size_t n = 0;

        while (launch_ring_take(ring, now_ns(), false, &launch, &context))
                n++;
        launch_ring_release(ring);
        return n;
}

static void measure(const char *name, struct ring_buffer *events, struct launch_ring *launches)
{
        double best = 1e12, each;
        size_t taken = 0;
        uint64_t start;

        for (int round = 0; round < ROUNDS; round++) {
                start = now_ns();
                for (int i = 0; i < CALLS; i++)
                        fake.cuLaunchKernel(1, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
                each = (double)(now_ns() - start) / CALLS;
                if (each < best)
                        best = each;
                if (events)
                        ring_buffer__consume(events);
                if (launches)
                        taken += drain(launches);
        }
        if (launches)
                CHECK_EQ(taken, (size_t)CALLS * ROUNDS);
        if (!bare)
                bare = best;
        printf("%-40s %7.1f ns  +%.1f\n", name, best, best - bare);
}

static void hook(void)
{
        void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
        struct hook hooks[HOOK_MAX] = {0};
        const char *reason = NULL;
        size_t count = launches_hooks(hooks);

        CHECK(handle);
        for (size_t i = 0; i < count; i++) {
                hooks[i].target = dlsym(handle, hooks[i].name);
                *hooks[i].original = hooks[i].target;
        }
        if (hooks_install(hooks, count, &reason) <= 0)
                test_skip(reason ?: "launches cannot be hooked here");
        for (size_t i = 0; i < count; i++)
                if (hooks[i].target && hooks[i].refusal)
                        printf("%s: %s\n", hooks[i].name, hooks[i].refusal);
        launches_hooked(hooks, count);
}

static struct cuda_bpf *load(struct uprobe_links *links, bool multi)
{
        struct cuda_bpf *bpf = cuda_bpf__open();
        struct bpf_program *program;
        uint32_t index = 1;
        size_t n;

        CHECK(bpf);
        bpf_object__for_each_program(program, bpf->obj)
        {
                if (bpf_program__type(program) == BPF_PROG_TYPE_KPROBE)
                        uprobe_prepare(program, multi);
        }
        CHECK_EQ(cuda_bpf__load(bpf), 0);
        CHECK_EQ(bpf_map_update_elem(bpf_map__fd(bpf->maps.free_contexts), NULL, &index, 0), 0);
        CHECK_EQ(
                uprobe_attach(links, bpf->progs.launch_return, multi, true, library, &place, 1, &n),
                0);
        CHECK_EQ(uprobe_attach(links, bpf->progs.launch_kernel, multi, false, library, &place, 1,
                               &n),
                 0);
        return bpf;
}

int main(int argc, char **argv)
{
        struct cuda_api api = {.context_get_current = current_context};
        const char *name = "cuLaunchKernel", *refusal;
        struct uprobe_links links = {0};
        struct launch_ring *launches;
        struct ring_buffer *events;
        struct cuda_bpf *bpf;
        int fd;

        CHECK(argc == 2);
        skip_without_bpf();
        library = argv[1];
        fd = open(library, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(elf_find_functions(fd, &name, 1, &place.offset), 1);
        close(fd);
        fake_load(library, &fake);
        measure("nobody looks", NULL, NULL);
        hook();
        measure("hook that calls on", NULL, NULL);
        bpf = load(&links, uprobe_multi_supported());
        events = ring_buffer__new(bpf_map__fd(bpf->maps.events), discard, NULL, NULL);
        CHECK(events);
        measure("kernel's entry and return probe", events, NULL);
        CHECK_EQ(launch_ring_new(&launches), 0);
        refusal = launches_begin(&api, NULL, launch_ring_fd(launches));
        if (refusal)
                test_skip(refusal);
        measure("recorded by the agent", events, launches);
        launch_ring_free(launches);
        ring_buffer__free(events);
        uprobe_links_done(&links);
        cuda_bpf__destroy(bpf);
        return 0;
}
