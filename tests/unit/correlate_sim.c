/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/correlate_sim.h"

#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "device/device_abi.h"
#include "unit/test.h"
#include "util/time.h"

#define THREADS_MAX  8
#define STREAMS_MAX  64
#define CONTEXTS_MAX 4
#define FIRST_BLOCK  0x1000   /* of streams: address / 16 KiB */
#define GRAPH_QUEUE  0x800000 /* first of graph nodes: address / 256 */
#define GRAPH_STEP   2
#define KERNELS_MAX  256
#define DEPTH_MAX    1024 /* kernels queued in a stream before a launch blocks */
#define TICK_NS      (5 * NSEC_PER_MSEC)
#define RESET_NS     (20 * NSEC_PER_MSEC) /* a context takes that long to be made, or longer */
#define START_NS     (1000 * NSEC_PER_SEC)
#define NODES_MAX    8
#define EXECS_MAX    4
#define DEVICES_MAX  4
#define BLOCKS_MAX   4096
#define GPU_OFFSET   123456789012ULL
#define SLEW_NS      (15 * NSEC_PER_MSEC)
#define GPU_FIRST                                                                                  \
        7 /* numbers of the GPUs: the process's first device has this, they count down             \
           */
#define OWN_FUNC 0xfff0

enum step { STEP_ENTER, STEP_TAKE, STEP_PUSH, STEP_RETURN };

enum call {
        CALL_LAUNCH,
        CALL_MEMSET,
        CALL_COPY,
        CALL_SYNC,
        CALL_OWN,
        CALL_CAPTURE,
        CALL_REPLAY,
        CALL_RESTREAM,
        CALL_RESET
};

struct truth {
        uint64_t gridid; /* 0: none */
        uint64_t start_ns, end_ns;
        uint64_t group; /* calls that overlap, one with the next: into its stream, of the process */
        uint64_t process_group;
        uint32_t device, kernel;
        bool shown; /* its event was delivered */
        bool start_shown, end_shown;
        bool emitted;
        bool matched;
        bool exact;
        bool captured; /* into a graph: it does not run itself */
};

struct sim_kernel {
        uint64_t func;
        bool entry, exit, named, tagged;
};

/* Calls that overlap: a new one begins when none is under way. */
struct sim_group {
        uint64_t number;
        uint32_t open;
};

struct sim_stream {
        uint64_t handle;
        uint32_t block;
        uint32_t slot; /* descriptors taken */
        uint64_t last_start_ns;
        struct sim_group group;
        uint64_t busy_ns; /* end of the last kernel */
        uint64_t ends[DEPTH_MAX];
        uint64_t count;
};

struct sim_exec {
        uint64_t handle;
        uint32_t nodes;
        uint32_t queue; /* of the first node */
        uint64_t gridid;
        uint32_t kernel[NODES_MAX];
        uint64_t idle_ns;
};

struct sim_device {
        struct clock_model *clock;
        bool slewed;
        uint64_t offset_ns;
        int64_t drift_ppb;
        uint32_t gpu;
        uint64_t gridid;
        uint32_t *truth; /* by grid id: index, ~0 none */
        size_t truth_size;
};

struct sim_context {
        uint32_t index;
        uint16_t number; /* on the GPU */
        uint32_t seq;
        struct sim_device *device;
        struct sim_stream streams[STREAMS_MAX];
        struct sim_exec execs[EXECS_MAX];
        uint32_t exec_count;
        uint64_t reset_ns; /* the last reset was over */
};

struct sim_thread {
        enum step step;
        enum call call;
        uint64_t at_ns;
        uint32_t remaining;
        struct sim_context *context;
        struct sim_stream *stream;
        uint32_t stream_own;
        uint32_t launch; /* index of the truth */
        uint32_t kernel;
        struct cpu_launch_event ev;
        struct cpu_operation_event op;
        uint64_t return_ns;
        struct sim_exec *exec;
        struct sim_exec made;
};

struct sim_handle {
        uint64_t handle;
        uint64_t parent;
        uint32_t context;
        uint8_t kind;
        bool destroyed;
};

struct cpu_item {
        uint64_t at_ns;
        uint32_t launch; /* index of the truth, ~0 none */
        bool is_handle;
        union {
                struct cpu_launch_event launch_event;
                struct cpu_operation_event operation;
                struct sim_handle handle;
        } ev;
};

struct device_item {
        uint64_t at_ns; /* CPU time */
        struct device_record record;
        uint32_t launch; /* ~0: a graph's */
};

struct node_truth {
        uint64_t gridid, start_ns, enter_ns;
        uint32_t context, gpu;
        bool seen;
};

struct sim {
        const struct sim_options *o;
        uint64_t random;
        struct correlator *correlator;
        struct correlated_process *process;
        struct intern *names;
        struct ledger ledger;
        struct sim_result r;
        struct sim_thread threads[THREADS_MAX];
        struct sim_context contexts[CONTEXTS_MAX];
        struct sim_device devices[DEVICES_MAX];
        struct mono_map *map;
        uint64_t now_ns; /* while what was seen is delivered */
        struct sim_group group;
        uint64_t groups;
        uint32_t free_blocks[BLOCKS_MAX]; /* of streams that are gone */
        size_t free_count;
        uint32_t next_block;
        uint32_t next_node, next_exec;
        uint16_t last_number; /* of a context */
        uint64_t next_handle;
        struct sim_kernel kernels[KERNELS_MAX];
        struct truth *truth;
        uint32_t truth_count;
        struct cpu_item *cpu;
        size_t cpu_count, cpu_size, cpu_next;
        struct device_item *device;
        size_t device_count, device_size, device_next;
        struct node_truth *nodes;
        size_t node_count, node_size;
        uint64_t cpu_lost, device_lost;
        bool kernels_told;
        bool devices_told;
};

static uint64_t rnd(struct sim *s, uint64_t below)
{
        return below ? test_random(&s->random) % below : 0;
}

static bool chance(struct sim *s, uint32_t thousandths)
{
        return thousandths && rnd(s, 1000) < thousandths;
}

/* Around a mean, with a tail. */
static uint64_t spread(struct sim *s, uint64_t mean)
{
        uint64_t v = mean / 4 + rnd(s, mean + 1);

        return chance(s, 20) ? v * 8 : v;
}

/* CLOCK_MONOTONIC_RAW: what the other gains for 15 ms it loses in the next 15. */
static uint64_t raw_clock(bool slewed, uint64_t cpu_ns)
{
        uint64_t x = (cpu_ns - START_NS) % (2 * SLEW_NS);

        return cpu_ns - (slewed ? (x < SLEW_NS ? x : 2 * SLEW_NS - x) / 2000 : 0);
}

/* In steps of 32 ns. */
static uint64_t gpu_clock(const struct sim_device *d, uint64_t cpu_ns)
{
        uint64_t raw_ns = raw_clock(d->slewed, cpu_ns);
        int64_t since = (int64_t)(raw_ns - START_NS);

        return (raw_ns + d->offset_ns + (uint64_t)(since / 1000 * d->drift_ppb / 1000000)) & ~31ULL;
}

/* ---- what the probes see ---- */

static void *grown(void *array, size_t count, size_t *size, size_t bytes)
{
        if (count < *size)
                return array;
        *size = *size ? 2 * *size : 1024;
        array = realloc(array, *size * bytes);
        CHECK(array);
        return array;
}

static struct cpu_item *cpu_push(struct sim *s, uint64_t at_ns, uint32_t launch)
{
        s->cpu = grown(s->cpu, s->cpu_count, &s->cpu_size, sizeof(*s->cpu));
        s->cpu[s->cpu_count] = (struct cpu_item){.at_ns = at_ns, .launch = launch};
        return &s->cpu[s->cpu_count++];
}

/* What a start or end record of a grid says besides time and type. */
struct sim_grid {
        const struct sim_device *device;
        uint64_t gridid;
        uint32_t kernel, queue, launch;
        uint16_t context;
};

static void device_push(struct sim *s, uint64_t at_ns, uint8_t type, const struct sim_grid *g)
{
        bool tagged = s->kernels[g->kernel].tagged;

        s->device = grown(s->device, s->device_count, &s->device_size, sizeof(*s->device));
        s->device[s->device_count++] = (struct device_item){
                .at_ns = at_ns,
                .record = {.time_ns = gpu_clock(g->device, at_ns),
                           .grid = DEVICE_RECORD_GRID(g->gridid, type, tagged ? g->context : 0),
                           .who = DEVICE_RECORD_WHO(g->kernel + 1, 7, tagged ? g->queue : 0)},
                .launch = g->launch,
        };
}

/* ---- the GPU ---- */

static uint32_t stream_descriptor(struct sim_stream *st)
{
        return st->block << DEVICE_QUEUE_STREAM_SHIFT | st->slot++ % DEVICE_QUEUE_SLOTS
                                                                << DEVICE_QUEUE_SLOT_SHIFT;
}

static uint64_t take_id(struct sim_context *c, uint32_t truth)
{
        struct sim_device *d = c->device;
        uint64_t id = ++d->gridid;

        d->truth = grown(d->truth, id, &d->truth_size, sizeof(*d->truth));
        d->truth[id] = truth;
        return id;
}

static uint64_t kernel_run(struct sim *s, struct sim_stream *st, uint64_t at_ns,
                           const struct sim_grid *g, uint64_t *ret_end_ns)
{
        const struct sim_kernel *k = &s->kernels[g->kernel];
        uint64_t start = at_ns + 1500 + rnd(s, 1500), end;
        uint64_t after = st->busy_ns + 300;

        if (chance(s, s->o->overlaps))
                after = st->last_start_ns + 100;
        if (start < after)
                start = after;
        end = start + 500 + spread(s, s->o->kernel_ns);
        st->last_start_ns = start;
        if (end > st->busy_ns)
                st->busy_ns = end;
        st->ends[st->count++ % DEPTH_MAX] = end;
        if (k->entry)
                device_push(s, start, DEVICE_RECORD_START, g);
        if (k->entry && k->exit)
                device_push(s, end, DEVICE_RECORD_END, g);
        *ret_end_ns = end;
        return start;
}

static void graph_run(struct sim *s, struct sim_thread *t)
{
        struct sim_exec *e = t->exec;
        uint64_t at = t->at_ns > e->idle_ns ? t->at_ns : e->idle_ns, start, end = at;

        for (uint32_t i = 0; i < e->nodes; i++) {
                struct sim_grid g = {
                        .device = t->context->device,
                        .gridid = e->gridid + i,
                        .kernel = e->kernel[i],
                        .queue = e->queue + i * GRAPH_STEP,
                        .launch = ~0u,
                        .context = t->context->number,
                };

                start = kernel_run(s, t->stream, at, &g, &end);
                if (!s->kernels[e->kernel[i]].entry)
                        continue;
                s->nodes = grown(s->nodes, s->node_count, &s->node_size, sizeof(*s->nodes));
                s->nodes[s->node_count++] = (struct node_truth){
                        .gridid = e->gridid + i,
                        .start_ns = start,
                        .enter_ns = t->ev.enter_ns,
                        .context = t->context->index,
                        .gpu = t->context->device->gpu,
                };
        }
        e->idle_ns = end;
}

/* ---- calls ---- */

static uint64_t group_enter(struct sim *s, struct sim_group *g)
{
        if (g->open++ == 0)
                g->number = ++s->groups;
        return g->number;
}

static void operation_begin(struct sim_thread *t, enum cpu_operation what)
{
        t->op = (struct cpu_operation_event){
                .enter_ns = t->at_ns,
                .stream = t->stream->handle,
                .context = t->context->index,
                .launch_seq = t->context->seq,
                .tgid = 1,
                .tid = (uint32_t)(t->stream_own + 100),
                .type = CPU_EVENT_OPERATION,
                .operation = (uint8_t)what,
        };
}

static void launch_begin(struct sim *s, struct sim_thread *t, uint64_t func, uint32_t launch)
{
        t->launch = launch;
        t->ev = (struct cpu_launch_event){
                .enter_ns = t->at_ns,
                .func = func,
                .stream = t->stream->handle,
                .context = t->context->index,
                .seq = ++t->context->seq,
                .tgid = 1,
                .tid = (uint32_t)(t->stream_own + 100),
                .grid_x = 1,
                .grid_y = 1,
                .grid_z = 1,
                .block_x = 1,
                .block_y = 1,
                .block_z = 1,
                .shared_bytes = launch,
                .type = CPU_EVENT_LAUNCH,
                .result = chance(s, s->o->failures) ? 700 : 0,
        };
}

static void capture_launch(struct sim *s, struct sim_thread *t, uint32_t kernel)
{
        t->at_ns += 200;
        launch_begin(s, t, s->kernels[kernel].func, s->truth_count++);
        s->truth[t->launch].captured = true;
        t->ev.result = 0;
        t->ev.duration_ns = 400;
        t->at_ns += 400;
        cpu_push(s, t->at_ns, t->launch)->ev.launch_event = t->ev;
}

/* Captured at once; then it is instantiated, which takes a while and ids. */
static void capture(struct sim *s, struct sim_thread *t)
{
        struct sim_exec *e = &t->made;
        uint64_t graph = 0x9000 + 16 * s->next_exec;

        *e = (struct sim_exec){.handle = 0xa0000 + 16 * s->next_exec++,
                               .nodes = 1 + (uint32_t)rnd(s, NODES_MAX),
                               .queue = s->next_node};
        s->next_node += e->nodes * GRAPH_STEP;
        operation_begin(t, CPU_OP_CAPTURE_BEGIN);
        t->op.duration_ns = 300;
        if (!s->o->graphs_unseen)
                cpu_push(s, t->at_ns += 300, ~0u)->ev.operation = t->op;
        for (uint32_t i = 0; i < e->nodes; i++) {
                e->kernel[i] = (uint32_t)rnd(s, s->o->kernels);
                /* Unseen: made of nodes that were added by hand. */
                if (!s->o->graphs_unseen)
                        capture_launch(s, t, e->kernel[i]);
                t->remaining -= t->remaining > 0;
        }
        operation_begin(t, CPU_OP_CAPTURE_END);
        t->op.duration_ns = 300;
        t->op.handle = graph;
        if (!s->o->graphs_unseen)
                cpu_push(s, t->at_ns += 300, ~0u)->ev.operation = t->op;
        operation_begin(t, CPU_OP_GRAPH_INSTANTIATE);
        t->op.handle = e->handle;
        t->op.address = graph; /* for the handle event that comes before it */
        t->at_ns += 2500;
        t->return_ns = t->at_ns + 2500;
}

static void instantiate(struct sim *s, struct sim_thread *t)
{
        struct sim_exec *e = &t->made;

        if (chance(s, 300))
                take_id(t->context, ~0u);
        e->gridid = t->context->device->gridid + 1;
        for (uint32_t i = 0; i < e->nodes; i++)
                take_id(t->context, ~0u);
}

/* It can be launched now, in place of an older one that nobody launches at the moment. */
static void instantiated(struct sim *s, struct sim_thread *t)
{
        struct sim_exec *e = &t->context->execs[t->context->exec_count % EXECS_MAX];

        for (uint32_t i = 0; i < s->o->threads; i++)
                if (s->threads[i].call == CALL_REPLAY && s->threads[i].step != STEP_ENTER &&
                    s->threads[i].exec == e)
                        return;
        t->made.idle_ns = t->at_ns;
        *e = t->made;
        t->context->exec_count++;
}

static void stream_new(struct sim *s, struct sim_stream *st)
{
        uint32_t block = s->free_count ? s->free_blocks[--s->free_count] : s->next_block++;

        *st = (struct sim_stream){.handle = s->next_handle, .block = block};
        s->next_handle += 64;
}

/* Its last thread's call is over; its kernels run on, its block is given back when they have ended.
 */
static void restream(struct sim *s, struct sim_thread *t)
{
        struct sim_stream *st = t->stream;
        struct cpu_item *item;

        if (st->group.open || st->handle < 16 || st->busy_ns > t->at_ns)
                return;
        t->at_ns += 1000;
        item = cpu_push(s, t->at_ns, ~0u);
        item->is_handle = true;
        item->ev.handle = (struct sim_handle){.handle = st->handle,
                                              .context = t->context->index,
                                              .kind = CPU_HANDLE_STREAM,
                                              .destroyed = true};
        if (s->free_count < BLOCKS_MAX)
                s->free_blocks[s->free_count++] = st->block;
        stream_new(s, st);
        t->at_ns += 1000;
}

/* What has not started never does, what runs does not end. */
static void kill_kernels(struct sim *s, uint16_t number, uint64_t at_ns)
{
        size_t kept = 0;

        for (size_t i = 0; i < s->device_count; i++) {
                const struct device_item *item = &s->device[i];

                if (DEVICE_RECORD_CONTEXT(&item->record) != number || item->at_ns <= at_ns)
                        s->device[kept++] = *item;
                else if (item->launch != ~0u)
                        s->truth[item->launch].end_ns = at_ns;
        }
        s->device_count = kept;
}

/*
 * As cuDevicePrimaryCtxReset: handles stay as they are, what is behind them is new. Mostly
 * the program has synchronised, or the GPU is done; now and then kernels are killed. (Where
 * records do not tell their context nothing tells a reset: none are killed there.)
 */
static void reset(struct sim *s, struct sim_thread *t)
{
        uint64_t took_ns = s->o->reset_ns ? s->o->reset_ns : RESET_NS;
        struct sim_context *c = t->context;

        /* One at a time. */
        if (c->reset_ns > t->at_ns)
                t->at_ns = c->reset_ns;
        if (chance(s, 900) || s->o->untagged)
                for (uint32_t i = 0; i < STREAMS_MAX; i++)
                        if (c->streams[i].busy_ns > t->at_ns)
                                t->at_ns = c->streams[i].busy_ns;
        kill_kernels(s, c->number, t->at_ns);
        t->at_ns += took_ns + rnd(s, 2 * took_ns);
        for (uint32_t i = 0; i < STREAMS_MAX; i++) {
                c->streams[i].slot = 0;
                c->streams[i].count = 0;
                c->streams[i].busy_ns = c->streams[i].last_start_ns = t->at_ns;
        }
        c->number = ++s->last_number;
        c->reset_ns = t->at_ns;
}

static enum call choose(struct sim *s, struct sim_thread *t)
{
        const struct sim_options *o = s->o;
        uint64_t n = rnd(s, 1000);

        if (n < o->memsets)
                return CALL_MEMSET;
        n -= o->memsets;
        if (n < o->copies)
                return CALL_COPY;
        n -= o->copies;
        if (n < o->syncs)
                return CALL_SYNC;
        n -= o->syncs;
        if (n < o->own)
                return CALL_OWN;
        n -= o->own;
        if (n < o->restreams)
                return CALL_RESTREAM;
        n -= o->restreams;
        if (n < o->resets)
                return CALL_RESET;
        n -= o->resets;
        if (n < o->graphs)
                return !t->context->exec_count || chance(s, 100) ? CALL_CAPTURE : CALL_REPLAY;
        return CALL_LAUNCH;
}

static uint64_t call_time(struct sim *s)
{
        uint64_t ns = 1000 + rnd(s, 2000);

        return chance(s, s->o->slow) ? ns * (20 + rnd(s, 2000)) : ns;
}

static void enter(struct sim *s, struct sim_thread *t)
{
        uint64_t wait;

        if (chance(s, s->o->switches))
                t->context = &s->contexts[rnd(s, s->o->contexts)];
        t->stream = &t->context->streams[s->o->per_thread      ? t->stream_own
                                         : s->o->shared_stream ? rnd(s, s->o->streams)
                                                               : t->stream_own % s->o->streams];
        t->call = choose(s, t);
        t->step = STEP_TAKE;
        switch (t->call) {
        case CALL_LAUNCH:
                t->kernel =
                        (uint32_t)(rnd(s, s->o->kernels) * rnd(s, s->o->kernels) / s->o->kernels);
                launch_begin(s, t, s->kernels[t->kernel].func, s->truth_count++);
                s->truth[t->launch].group = group_enter(s, &t->stream->group);
                s->truth[t->launch].process_group = group_enter(s, &s->group);
                s->truth[t->launch].device = (uint32_t)(t->context->device - s->devices);
                s->truth[t->launch].kernel = t->kernel;
                t->remaining--;
                /* The queue is full: the call blocks. */
                wait = t->stream->count >= DEPTH_MAX ? t->stream->ends[t->stream->count % DEPTH_MAX]
                                                     : 0;
                if (wait > t->at_ns)
                        t->at_ns = wait;
                break;
        case CALL_OWN:
                launch_begin(s, t, OWN_FUNC, ~0u);
                t->ev.result = 0;
                break;
        case CALL_REPLAY:
                t->exec = &t->context->execs[rnd(s, t->context->exec_count < EXECS_MAX
                                                            ? t->context->exec_count
                                                            : EXECS_MAX)];
                launch_begin(s, t, t->exec->handle, ~0u);
                t->ev.type = CPU_EVENT_GRAPH_LAUNCH;
                t->ev.result = 0;
                break;
        case CALL_CAPTURE:
                capture(s, t);
                return;
        case CALL_RESTREAM:
        case CALL_RESET:
                if (t->call == CALL_RESET)
                        reset(s, t);
                else
                        restream(s, t);
                t->step = STEP_ENTER;
                t->at_ns += 1 + spread(s, s->o->gap_ns);
                return;
        default:
                operation_begin(t, t->call == CALL_MEMSET ? CPU_OP_MEMSET
                                   : t->call == CALL_COPY ? CPU_OP_MEMCPY_DTOH
                                   : chance(s, 500)       ? CPU_OP_SYNC_STREAM
                                                          : CPU_OP_SYNC_CONTEXT);
                break;
        }
        t->return_ns = call_time(s);
        if (s->o->stuck_ns && t->call == CALL_LAUNCH && t->launch == s->o->launches / 3)
                t->return_ns = s->o->stuck_ns;
        t->at_ns += t->return_ns / 2;
        t->return_ns = t->at_ns + t->return_ns / 2 + 1;
}

static void sync_wait(struct sim *s, struct sim_thread *t)
{
        for (uint32_t i = 0; i < STREAMS_MAX; i++) {
                const struct sim_stream *st = &t->context->streams[i];

                if (t->op.operation == CPU_OP_SYNC_STREAM && st != t->stream)
                        continue;
                if (st->busy_ns + 1000 > t->return_ns)
                        t->return_ns = st->busy_ns + 1000;
        }
}

/* The launch has its id; it goes into its stream next, and another thread's may come between. */
static void take_launch(struct sim *s, struct sim_thread *t)
{
        if (t->ev.result)
                return;
        s->truth[t->launch].gridid = take_id(t->context, t->launch);
        t->step = STEP_PUSH;
        t->at_ns += rnd(s, (t->return_ns - t->at_ns) / 2 + 1);
}

static void push(struct sim *s, struct sim_thread *t)
{
        struct truth *truth = &s->truth[t->launch];
        struct sim_grid g = {
                .device = t->context->device,
                .gridid = truth->gridid,
                .kernel = t->kernel,
                .queue = stream_descriptor(t->stream),
                .launch = t->launch,
                .context = t->context->number,
        };

        truth->start_ns = kernel_run(s, t->stream, t->at_ns, &g, &truth->end_ns);
        t->step = STEP_RETURN;
        t->at_ns = t->return_ns;
}

static void take(struct sim *s, struct sim_thread *t)
{
        t->step = STEP_RETURN;
        switch (t->call) {
        case CALL_LAUNCH:
                take_launch(s, t);
                break;
        case CALL_OWN:
                take_id(t->context, ~0u);
                t->stream->slot++;
                break;
        case CALL_MEMSET:
                if (rnd(s, 2)) {
                        take_id(t->context, ~0u);
                        t->stream->slot++;
                }
                break;
        case CALL_SYNC:
                sync_wait(s, t);
                break;
        case CALL_CAPTURE:
                instantiate(s, t);
                break;
        case CALL_REPLAY:
                graph_run(s, t);
                break;
        default:
                break;
        }
        if (t->step == STEP_RETURN)
                t->at_ns = t->return_ns;
}

static void leave(struct sim *s, struct sim_thread *t)
{
        bool launch = t->call == CALL_LAUNCH || t->call == CALL_OWN || t->call == CALL_REPLAY;
        struct cpu_item *item;
        uint64_t at_ns;

        if (t->call == CALL_LAUNCH) {
                t->stream->group.open--;
                s->group.open--;
        }
        if (t->call == CALL_CAPTURE)
                instantiated(s, t);
        t->step = STEP_ENTER;
        at_ns = t->at_ns;
        t->at_ns += 1 + spread(s, s->o->gap_ns);
        if (t->call == CALL_CAPTURE && s->o->graphs_unseen)
                return;
        item = cpu_push(s, at_ns, t->call == CALL_LAUNCH ? t->launch : ~0u);
        if (launch) {
                t->ev.duration_ns = (uint32_t)(at_ns - t->ev.enter_ns);
                item->ev.launch_event = t->ev;
        } else {
                t->op.duration_ns = (uint32_t)(at_ns - t->op.enter_ns);
                item->ev.operation = t->op;
        }
}

static struct sim_thread *next_thread(struct sim *s)
{
        struct sim_thread *best = NULL;

        for (uint32_t i = 0; i < s->o->threads; i++) {
                struct sim_thread *t = &s->threads[i];

                if (t->step == STEP_ENTER && t->remaining == 0)
                        continue;
                if (!best || t->at_ns < best->at_ns)
                        best = t;
        }
        return best;
}

/* The machine has no CPU for the program, wherever its threads are. */
static void stall(struct sim *s)
{
        uint64_t max_ns = s->o->stall_ns ? s->o->stall_ns : 200 * NSEC_PER_MSEC;
        uint64_t ns = 20 * NSEC_PER_MSEC + rnd(s, max_ns - 20 * NSEC_PER_MSEC);

        for (uint32_t i = 0; i < s->o->threads; i++) {
                s->threads[i].at_ns += ns;
                s->threads[i].return_ns += ns;
        }
}

static void program_run(struct sim *s)
{
        struct sim_thread *t;

        while ((t = next_thread(s))) {
                if (s->o->stalls && chance(s, s->o->stalls))
                        stall(s);
                if (t->step == STEP_ENTER)
                        enter(s, t);
                else if (t->step == STEP_TAKE)
                        take(s, t);
                else if (t->step == STEP_PUSH)
                        push(s, t);
                else
                        leave(s, t);
        }
        for (uint32_t i = 0; s->o->sync_end && i < s->o->threads; i++) {
                t = &s->threads[i];
                t->stream = &t->context->streams[0];
                t->return_ns = t->at_ns;
                operation_begin(t, CPU_OP_SYNC_CONTEXT);
                sync_wait(s, t);
                t->op.duration_ns = (uint32_t)(t->return_ns - t->at_ns);
                cpu_push(s, t->return_ns, ~0u)->ev.operation = t->op;
        }
}

/* ---- delivery ---- */

static int by_time(const void *a, const void *b)
{
        const struct cpu_item *x = a, *y = b;

        return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

static int by_start(const void *a, const void *b)
{
        const struct device_item *x = a, *y = b;

        return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

static void handle(struct sim *s, uint8_t kind, uint64_t value, uint64_t parent, uint32_t context,
                   const char *name)
{
        union {
                struct cpu_handle_event ev;
                char bytes[sizeof(struct cpu_handle_event) + 64];
        } u = {.ev = {.ts_ns = START_NS,
                      .handle = value,
                      .parent = parent,
                      .context = context,
                      .tgid = 1,
                      .tid = 100,
                      .kind = kind,
                      .type = CPU_EVENT_HANDLE}};

        if (name) {
                u.ev.name_length = (uint16_t)strlen(name);
                snprintf(u.ev.name, 64, "%s", name);
        }
        correlator_handle(s->correlator, s->process, &u.ev);
}

static void tell_kernels(struct sim *s)
{
        for (uint32_t i = 0; i < s->o->kernels; i++) {
                char name[32];
                struct correlated_kernel k = {
                        .kernel_id = i + 1,
                        .image_handle = 0x7000,
                        .name = name,
                        .name_length = (size_t)snprintf(name, sizeof(name), "kernel_%u", i),
                        .entry_probed = s->kernels[i].entry,
                        .exit_probed = s->kernels[i].exit,
                };

                correlator_kernel(s->correlator, s->process, &k);
        }
        s->kernels_told = true;
}

static void tell_devices(struct sim *s)
{
        for (uint32_t i = 0; i < s->o->contexts; i++)
                handle(s, CPU_HANDLE_CONTEXT, 0x5000 + i,
                       (uint64_t)(s->contexts[i].device - s->devices), i + 1, NULL);
        s->devices_told = true;
}

static void tell_functions(struct sim *s)
{
        for (uint32_t i = 0; i < s->o->kernels; i++) {
                char name[32];

                snprintf(name, sizeof(name), "kernel_%u", i);
                if (!s->kernels[i].named)
                        continue;
                /* Alternately a function of the module, and one of a kernel of the library. */
                if (i % 2) {
                        handle(s, CPU_HANDLE_FUNCTION, s->kernels[i].func, 0x7000, 1, name);
                } else {
                        handle(s, CPU_HANDLE_KERNEL, 0x20000 + i, 0x7000, 0, name);
                        handle(s, CPU_HANDLE_FUNCTION, s->kernels[i].func, 0x20000 + i, 1, NULL);
                }
        }
}

static void deliver_handle(struct sim *s, const struct cpu_item *item)
{
        const struct sim_handle *h = &item->ev.handle;
        struct cpu_handle_event ev = {.ts_ns = item->at_ns,
                                      .handle = h->handle,
                                      .parent = h->parent,
                                      .context = h->context,
                                      .tgid = 1,
                                      .tid = 100,
                                      .destroyed = h->destroyed,
                                      .kind = h->kind,
                                      .type = CPU_EVENT_HANDLE};

        correlator_handle(s->correlator, s->process, &ev);
}

static void deliver_cpu_item(struct sim *s, const struct cpu_item *item)
{
        const struct cpu_launch_event *ev = &item->ev.launch_event;

        if (item->is_handle) {
                deliver_handle(s, item);
                return;
        }
        if (ev->type == CPU_EVENT_OPERATION) {
                if (item->ev.operation.operation == CPU_OP_GRAPH_INSTANTIATE)
                        handle(s, CPU_HANDLE_GRAPH_EXEC, item->ev.operation.handle,
                               item->ev.operation.address, item->ev.operation.context, NULL);
                correlator_operation(s->correlator, s->process, &item->ev.operation);
                return;
        }
        if (s->cpu_lost == 0 && chance(s, s->o->cpu_gaps))
                s->cpu_lost = 1 + rnd(s, s->o->gap_launches);
        if (s->cpu_lost) {
                s->cpu_lost--;
                s->ledger.lost[LOSS_cpu_ring_full]++;
                return;
        }
        if (item->launch != ~0u) {
                s->truth[item->launch].shown = true;
                s->r.produced++;
                s->r.captured += s->truth[item->launch].captured;
        }
        correlator_launch(s->correlator, s->process, ev);
}

static void deliver_cpu(struct sim *s, uint64_t until_ns)
{
        while (s->cpu_next < s->cpu_count && s->cpu[s->cpu_next].at_ns <= until_ns)
                deliver_cpu_item(s, &s->cpu[s->cpu_next++]);
}

static void deliver_record(struct sim *s, const struct device_record *r)
{
        s->r.tails += DEVICE_RECORD_TYPE(r) == DEVICE_RECORD_TAIL;
        correlator_device_record(s->correlator, s->process, r);
}

static void deliver_garbage(struct sim *s, const struct device_item *item)
{
        struct device_record r = item->record;

        switch (rnd(s, 5)) {
        case 0: /* anything */
                r.time_ns = test_random(&s->random);
                r.grid = test_random(&s->random);
                r.who = test_random(&s->random);
                break;
        case 1: /* an id from nowhere */
                r.grid = DEVICE_RECORD_GRID(rnd(s, 1ULL << 39) + (1 << 24), DEVICE_RECORD_START,
                                            DEVICE_RECORD_CONTEXT(&r));
                break;
        case 2: /* a kernel nobody knows */
                r.who = DEVICE_RECORD_WHO(1000000 + rnd(s, 1000), 7, DEVICE_RECORD_QUEUE(&r));
                break;
        case 3: /* an end without a start */
                r.grid = DEVICE_RECORD_GRID(rnd(s, 1 << 20) + (1 << 24), DEVICE_RECORD_END,
                                            DEVICE_RECORD_CONTEXT(&r));
                break;
        default: /* a start from long ago; early on it could be a true one */
                if (DEVICE_RECORD_GRIDID(&r) <= 64)
                        return;
                r.grid = DEVICE_RECORD_GRID(1 + rnd(s, 16), DEVICE_RECORD_START,
                                            DEVICE_RECORD_CONTEXT(&r));
                break;
        }
        deliver_record(s, &r);
}

static void deliver_device_item(struct sim *s, const struct device_item *item)
{
        bool start = DEVICE_RECORD_TYPE(&item->record) == DEVICE_RECORD_START;
        struct device_record r = item->record;

        if (s->device_lost == 0 && chance(s, s->o->device_gaps))
                s->device_lost = 1 + rnd(s, s->o->gap_records);
        if (s->o->overrun_records && s->device_next - 1 == s->device_count / 3)
                s->device_lost = s->o->overrun_records;
        if (s->device_lost) {
                s->device_lost--;
                correlator_device_gap(s->correlator, s->process, 1);
                return;
        }
        if (!start && chance(s, s->o->tails))
                r.grid = DEVICE_RECORD_GRID(DEVICE_RECORD_GRIDID(&r), DEVICE_RECORD_TAIL,
                                            DEVICE_RECORD_CONTEXT(&r));
        else if (item->launch != ~0u && start)
                s->truth[item->launch].start_shown = true;
        else if (item->launch != ~0u)
                s->truth[item->launch].end_shown = true;
        deliver_record(s, &r);
        if (chance(s, s->o->duplicates))
                deliver_record(s, &r);
        if (chance(s, s->o->garbage))
                deliver_garbage(s, item);
}

static void deliver_device(struct sim *s, uint64_t until_ns)
{
        while (s->device_next < s->device_count && s->device[s->device_next].at_ns <= until_ns)
                deliver_device_item(s, &s->device[s->device_next++]);
}

static int read_pair(void *data, struct clock_pair *ret_pair)
{
        const struct sim *s = data;

        *ret_pair = (struct clock_pair){
                .raw_ns = raw_clock(true, s->now_ns), .monotonic_ns = s->now_ns, .error_ns = 20};
        return 0;
}

static void clock_feed(struct sim *s, uint64_t at_ns)
{
        uint64_t raw_ns = raw_clock(s->o->slewed, at_ns);

        for (struct sim_device *d = s->devices; d < s->devices + DEVICES_MAX; d++) {
                struct clock_sample sample = {
                        .raw_before_ns = raw_ns - 450,
                        .gpu_ns = gpu_clock(d, at_ns),
                        .raw_after_ns = raw_ns + 450,
                };

                (void)clock_model_add(d->clock, &sample);
        }
}

static void deliver(struct sim *s)
{
        uint64_t at = START_NS, end;
        uint64_t clock_from = START_NS + (s->o->clock_late ? 500 * NSEC_PER_MSEC : 0);
        uint64_t clock_next = clock_from;

        end = s->cpu_count ? s->cpu[s->cpu_count - 1].at_ns : at;
        if (s->device_count && s->device[s->device_count - 1].at_ns > end)
                end = s->device[s->device_count - 1].at_ns;
        end += s->o->device_late_ns + (s->o->abrupt ? TICK_NS : 50 * NSEC_PER_MSEC);
        for (; at < end; at += TICK_NS) {
                s->now_ns = at;
                if (at >= clock_next) {
                        clock_feed(s, at);
                        clock_next += s->o->clock_ns ? s->o->clock_ns : 10 * NSEC_PER_MSEC;
                }
                if (s->o->device_first)
                        deliver_device(s, at - s->o->device_late_ns);
                deliver_cpu(s, at - s->o->cpu_late_ns);
                if (!s->kernels_told && at >= START_NS + 2 * TICK_NS)
                        tell_kernels(s);
                if (s->o->device_late && !s->devices_told && at >= START_NS + 20 * NSEC_PER_MSEC)
                        tell_devices(s);
                if (!s->o->device_first)
                        deliver_device(s, at - s->o->device_late_ns);
                correlator_tick(s->correlator, at);
        }
        /* Quiet time: what can still be decided is. */
        for (int i = 0; i < 700 && !s->o->abrupt; i++, at += 10 * NSEC_PER_MSEC) {
                s->now_ns = at;
                if (at >= clock_next) {
                        clock_feed(s, at);
                        clock_next += s->o->clock_ns ? s->o->clock_ns : 10 * NSEC_PER_MSEC;
                }
                correlator_tick(s->correlator, at);
        }
}

/* ---- judgement ---- */

static void judge_node(struct sim *s, const struct launch_record *r)
{
        s->r.nodes++;
        s->r.exact_nodes += r->match == MATCH_EXACT;
        s->r.inferred_nodes += r->match == MATCH_INFERRED;
        if (r->match != MATCH_EXACT)
                return;
        for (size_t i = 0; i < s->node_count; i++) {
                struct node_truth *n = &s->nodes[i];
                uint64_t off = n->start_ns > r->gpu_start_ns ? n->start_ns - r->gpu_start_ns
                                                             : r->gpu_start_ns - n->start_ns;

                if (n->gridid != r->gridid || n->gpu != r->gpu || n->seen ||
                    off > r->clock_error_ns)
                        continue;
                if (n->enter_ns == r->cpu_enter_ns) {
                        n->seen = true;
                        return;
                }
        }
        s->r.wrong_nodes++;
}

static bool time_is(uint64_t stated_ns, uint64_t true_ns, uint32_t error_ns)
{
        uint64_t off = stated_ns > true_ns ? stated_ns - true_ns : true_ns - stated_ns;

        return off <= error_ns;
}

static void judge_times(struct sim *s, const struct truth *t, const struct launch_record *r)
{
        if ((r->has & LAUNCH_HAS_GPU_START) &&
            !time_is(r->gpu_start_ns, t->start_ns, r->clock_error_ns))
                s->r.wrong_time++;
        if (r->end == END_MEASURED) {
                s->r.ends++;
                if (!time_is(r->gpu_end_ns, t->end_ns, r->clock_error_ns))
                        s->r.wrong_time++;
        } else if (r->end == END_INFERRED) {
                s->r.ends_inferred++;
                if (r->gpu_end_ns + r->clock_error_ns < t->end_ns)
                        s->r.wrong_end++;
        }
}

/* The launch whose grid id it was given. */
static const struct truth *given(const struct sim *s, const struct truth *t,
                                 const struct launch_record *r)
{
        const struct sim_device *d = &s->devices[t->device];
        uint32_t launch = r->gridid <= d->gridid ? d->truth[r->gridid] : ~0u;

        return launch == ~0u ? NULL : &s->truth[launch];
}

static void judge_ordered(struct sim *s, const struct truth *t, const struct launch_record *r)
{
        const struct truth *other = given(s, t, r);
        bool untold = s->o->untagged > 0;

        s->r.wrong_ordered++;
        if (!other || other->kernel != t->kernel ||
            (untold ? other->process_group != t->process_group : other->group != t->group))
                s->r.wrong_group++;
}

static void judge(void *data, struct correlated_process *p, struct launch_record *r)
{
        struct sim *s = data;
        struct truth *t;
        bool right;

        if (r->graph_exec) {
                judge_node(s, r);
                return;
        }
        CHECK(r->shared_bytes < s->truth_count);
        t = &s->truth[r->shared_bytes];
        CHECK(!t->emitted);
        t->emitted = true;
        s->r.emitted++;
        s->r.no_gpu += !(r->has & LAUNCH_HAS_GPU);
        if (r->match == MATCH_NONE) {
                s->r.none++;
                s->r.none_recorded += t->start_shown;
                CHECK(!(r->has & (LAUNCH_HAS_GPU_START | LAUNCH_HAS_GRIDID)));
                return;
        }
        s->r.no_start += !(r->has & LAUNCH_HAS_GPU_START);
        right = r->gridid == t->gridid &&
                (!(r->has & LAUNCH_HAS_GPU) || r->gpu == s->devices[t->device].gpu);
        t->matched = right;
        t->exact = right && r->match == MATCH_EXACT;
        if (right)
                judge_times(s, t, r);
        switch (r->match) {
        case MATCH_EXACT:
                s->r.exact++;
                s->r.wrong_exact += !right;
                break;
        case MATCH_ORDERED:
                s->r.ordered++;
                if (!right)
                        judge_ordered(s, t, r);
                break;
        default:
                s->r.inferred++;
                s->r.wrong_inferred += !right;
                break;
        }
}

static void count_expected(struct sim *s)
{
        uint64_t run = 0;

        for (uint32_t i = 0; i < s->truth_count; i++) {
                const struct truth *t = &s->truth[i];

                if (!t->shown || !t->start_shown)
                        continue;
                s->r.expected++;
                s->r.ends_expected += t->end_shown;
                s->r.matched += t->matched;
                run = t->exact ? 0 : run + 1;
                if (run > s->r.longest_inexact)
                        s->r.longest_inexact = run;
        }
        s->r.nodes_expected = s->node_count;
        s->r.unmatched = s->ledger.lost[LOSS_device_record_unmatched] +
                         s->ledger.lost[LOSS_device_record_garbage];
        s->r.tails_counted = s->ledger.lost[LOSS_device_end_unseen];
        s->r.overfull = s->ledger.lost[LOSS_join_queue_full];
        s->r.ledger_produced = s->ledger.produced;
}

/* Of different crystals. */
static void setup_devices(struct sim *s)
{
        static const int64_t drift_ppb[DEVICES_MAX] = {4780, -3100, 12000, 0};
        struct correlated_device told[DEVICES_MAX];
        uint32_t count = s->o->devices ? s->o->devices : 1;

        s->map = mono_map_new(read_pair, s);
        CHECK(s->map);
        for (uint32_t i = 0; i < DEVICES_MAX; i++) {
                struct sim_device *d = &s->devices[i];

                d->slewed = s->o->slewed;
                d->clock = clock_model_new(32, s->o->slewed ? s->map : NULL);
                CHECK(d->clock);
                d->offset_ns = GPU_OFFSET + (uint64_t)(i * s->o->apart_ns);
                d->drift_ppb = drift_ppb[i];
                d->gpu = GPU_FIRST - i;
                told[i] = (struct correlated_device){
                        .clock = d->clock, .gpu = d->gpu, .has_gpu = true};
        }
        correlated_process_set_agent(s->process, told, count);
}

static void setup(struct sim *s)
{
        const struct sim_options *o = s->o;

        for (uint32_t i = 0; i < o->kernels; i++)
                s->kernels[i] = (struct sim_kernel){
                        .func = 0x10000 + 16 * i,
                        .entry = !chance(s, o->unprobed),
                        .exit = !chance(s, o->exit_unprobed),
                        .named = !chance(s, o->nameless),
                        .tagged = !chance(s, o->untagged),
                };
        setup_devices(s);
        s->next_block = FIRST_BLOCK;
        s->next_node = GRAPH_QUEUE;
        s->next_handle = 0x30000;
        for (uint32_t i = 0; i < o->contexts; i++) {
                struct sim_context *c = &s->contexts[i];
                uint32_t device = o->devices ? i % o->devices : 0;

                c->index = i + 1;
                c->number = ++s->last_number;
                c->device = &s->devices[device];
                for (uint32_t j = 0; j < STREAMS_MAX; j++) {
                        stream_new(s, &c->streams[j]);
                        if (o->per_thread)
                                c->streams[j].handle = 2;
                        else if (o->streams == 1)
                                c->streams[j].handle = 0;
                }
                for (uint64_t n = 1 + (o->unborn ? rnd(s, 100000) : rnd(s, 8)); n > 0; n--)
                        take_id(c, ~0u);
                if (!o->unborn)
                        handle(s, CPU_HANDLE_CONTEXT, 0x5000 + i, o->device_late ? ~0ULL : device,
                               c->index, NULL);
        }
        for (uint32_t i = 0; i < o->threads; i++)
                s->threads[i] = (struct sim_thread){
                        .at_ns = START_NS + NSEC_PER_MSEC + i * 100,
                        .remaining = o->launches / o->threads,
                        .context = &s->contexts[i % o->contexts],
                        .stream_own = i,
                };
        correlator_own_function(s->correlator, s->process, OWN_FUNC);
        if (!o->kernels_late)
                tell_kernels(s);
        tell_functions(s);
}

struct sim_result sim_run(const struct sim_options *options)
{
        static const struct correlator_ops ops = {.launch = judge};
        struct sim s = {.o = options, .random = options->seed};
        struct sim_result r;

        s.truth = calloc(options->launches + 65536, sizeof(*s.truth));
        s.names = intern_new();
        CHECK(s.truth && s.names);
        s.correlator = correlator_new(&ops, &s, s.names);
        CHECK(s.correlator);
        s.process = correlator_add_process(s.correlator, 7, &s.ledger, &s);
        CHECK(s.process);
        setup(&s);
        program_run(&s);
        qsort(s.cpu, s.cpu_count, sizeof(*s.cpu), by_time);
        qsort(s.device, s.device_count, sizeof(*s.device), by_start);
        deliver(&s);
        correlator_remove_process(s.correlator, s.process);
        count_expected(&s);
        r = s.r;
        correlator_free(s.correlator);
        intern_free(s.names);
        free(s.truth);
        free(s.cpu);
        free(s.device);
        free(s.nodes);
        for (uint32_t i = 0; i < DEVICES_MAX; i++) {
                clock_model_free(s.devices[i].clock);
                free(s.devices[i].truth);
        }
        mono_map_free(s.map);
        return r;
}
