/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Each case is a kernel with programs in it, captured in a graph of many launches. All
 * take turns in every round, so that whatever disturbs the machine meets all alike; the
 * least of the rounds is shown, since what disturbs only adds.
 */
#include <stdbool.h>
#include <string.h>

#include "gpu_world.h"
#include "shipped_cost.h"
#include "util/macro.h"

#define ROUNDS 9
#define WORDS  (4096u * 256)

/* Which kernels are measured. */
static const struct shape {
        const char *name, *kernel;
        unsigned blocks, threads, value, launches;
} shapes[] = {
        {"1 block of 32", "copy", 1, 32, 0, 200},
        {"4,096 of 256, memory", "copy", 4096, 256, 0, 50},
        {"4,096 of 256, 1 us", "spin", 4096, 256, 1000, 20},
};

/* Programs: of an object, those whose names begin so. */
static const struct {
        const char *object, *program;
} cases[] = {
        {NULL, ""},
        {"scope_cost", "entry_grid"},
        {"scope_cost", "entry_block"},
        {"scope_cost", "entry_warp"},
        {"scope_cost", "entry_thread"},
        {"scope_cost", "exit_grid"},
        {"scope_cost", "exit_block"},
        {"scope_cost", "exit_warp"},
        {"scope_cost", "exit_thread"},
        {"sm_balance", ""},
        {"block_time", ""},
        {"warp_lanes", ""},
        {"mem_bytes", ""},
        {"mem_heat", ""},
};

struct measured {
        struct gpu_world world;
        struct gpu_kernels kernels;
        bool left_out;
        void *graphs[ARRAY_SIZE(shapes)];
        float us[ARRAY_SIZE(shapes)]; /* a launch, the least */
};

struct coster {
        const char *ptx;
        const void *cubin;
        size_t cubin_size;
        const char *directory;
        bool machine;
        void *stream, *start, *stop;
        device_address in, out;
        struct measured cases[ARRAY_SIZE(cases)];
};

static void launch(const struct coster *c, void *function, const struct shape *s)
{
        device_address in = c->in, out = c->out;
        unsigned value = s->value;
        void *parameters[] = {&in, &out, &value};

        splice_must(cuLaunchKernel(function, s->blocks, 1, 1, s->threads, 1, 1, 0, c->stream,
                                   parameters, NULL),
                    s->name);
}

static void *capture(const struct coster *c, const struct gpu_kernels *k, const struct shape *s)
{
        void *graph, *executable, *function = gpu_kernel_function(k, s->kernel);

        splice_must(cuStreamBeginCapture_v2(c->stream, 0), "cuStreamBeginCapture");
        for (unsigned i = 0; i < s->launches; i++)
                launch(c, function, s);
        splice_must(cuStreamEndCapture(c->stream, &graph), "cuStreamEndCapture");
        splice_must(cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
        splice_must(cuGraphDestroy(graph), "cuGraphDestroy");
        return executable;
}

static void open_case(struct coster *c, size_t n)
{
        struct measured *m = &c->cases[n];
        char path[512];

        if (cases[n].object) {
                snprintf(path, sizeof(path), "%s/%s.bpf.o", c->directory, cases[n].object);
                gpu_world_init(&m->world, path, cases[n].object, c->machine);
        }
        gpu_kernels_load(c->ptx, c->cubin, c->cubin_size, c->machine,
                         cases[n].object ? &m->world : NULL, cases[n].program, &m->kernels);
        m->left_out = m->kernels.in < m->kernels.wanted;
        for (size_t s = 0; s < ARRAY_SIZE(shapes); s++)
                m->graphs[s] = capture(c, &m->kernels, &shapes[s]);
}

static void close_case(struct coster *c, size_t n)
{
        struct measured *m = &c->cases[n];

        for (size_t s = 0; s < ARRAY_SIZE(shapes); s++)
                splice_must(cuGraphExecDestroy(m->graphs[s]), "cuGraphExecDestroy");
        gpu_kernels_unload(&m->kernels);
        if (cases[n].object)
                gpu_world_done(&m->world);
}

static void measure(struct coster *c, struct measured *m, size_t s)
{
        float milliseconds, us;

        splice_must(cuGraphLaunch(m->graphs[s], c->stream), "cuGraphLaunch");
        splice_must(cuEventRecord(c->start, c->stream), "cuEventRecord");
        splice_must(cuGraphLaunch(m->graphs[s], c->stream), "cuGraphLaunch");
        splice_must(cuEventRecord(c->stop, c->stream), "cuEventRecord");
        splice_must(cuEventSynchronize(c->stop), shapes[s].name);
        splice_must(cuEventElapsedTime(&milliseconds, c->start, c->stop), "cuEventElapsedTime");
        us = milliseconds * 1e3f / (float)shapes[s].launches;
        if (m->us[s] == 0 || us < m->us[s])
                m->us[s] = us;
}

static void print(const struct coster *c)
{
        printf("\ncost as %s, us a launch and ratio\n%-28s", c->machine ? "machine code" : "PTX",
               "");
        for (size_t s = 0; s < ARRAY_SIZE(shapes); s++)
                printf("%24s", shapes[s].name);
        printf("\n");
        for (size_t n = 0; n < ARRAY_SIZE(cases); n++) {
                const struct measured *m = &c->cases[n];

                printf("%-12s%-16s", cases[n].object ?: "as it is", cases[n].program);
                for (size_t s = 0; s < ARRAY_SIZE(shapes) && !m->left_out; s++)
                        printf("%16.3f %7.3f", (double)m->us[s],
                               (double)(m->us[s] / c->cases[0].us[s]));
                printf("%s\n", m->left_out ? m->kernels.refusal : "");
        }
}

static void cost_of(struct coster *c, bool machine)
{
        c->machine = machine;
        for (size_t n = 0; n < ARRAY_SIZE(cases); n++) {
                c->cases[n] = (struct measured){};
                open_case(c, n);
        }
        for (int round = 0; round < ROUNDS; round++)
                for (size_t s = 0; s < ARRAY_SIZE(shapes); s++)
                        for (size_t n = 0; n < ARRAY_SIZE(cases); n++)
                                measure(c, &c->cases[n], s);
        print(c);
        for (size_t n = 0; n < ARRAY_SIZE(cases); n++)
                close_case(c, n);
}

void shipped_cost(const char *ptx, const void *cubin, size_t cubin_size, const char *directory)
{
        static struct coster c;

        c = (struct coster){
                .ptx = ptx, .cubin = cubin, .cubin_size = cubin_size, .directory = directory};
        splice_must(cuMemAlloc_v2(&c.in, WORDS * 4), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&c.out, WORDS * 4), "cuMemAlloc");
        splice_must(cuStreamCreate(&c.stream, 1 /* not with the null stream */), "cuStreamCreate");
        splice_must(cuEventCreate(&c.start, 0), "cuEventCreate");
        splice_must(cuEventCreate(&c.stop, 0), "cuEventCreate");
        cost_of(&c, false);
        if (cubin)
                cost_of(&c, true);
        splice_must(cuMemFree_v2(c.in), "cuMemFree");
        splice_must(cuMemFree_v2(c.out), "cuMemFree");
}
