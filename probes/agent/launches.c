/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What runs instead of the driver's launch functions: two readings of the clock
 * and one record of 64 bytes around the original call.
 *
 * Whose launch is it? The kernel's uprobes are on the same functions, and their
 * int3 comes first. A call that ran into it is the kernel's, one that did not is
 * recorded here. The hook can tell: the return probe has put the kernel's
 * trampoline in place of the return address. So there is no moment at which both
 * or neither count, whenever breakpoints come and go: taken out by
 * launches_begin(); put back by the kernel when somebody else probes the
 * function, when a mapping is split, when another daemon starts. Then the
 * process is slower, and nothing else.
 *
 * A function that is jumped to by one that has a return probe sees the
 * trampoline as well. So, once no call can be left from before the breakpoint
 * was taken out, the breakpoint has to be there, too.
 *
 * The functions' first bytes are written as the kernel does it, one byte in the
 * process's private copy of the page. A kernel that takes the uprobe off later
 * looks whether its breakpoint is there, and leaves the byte alone if not.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../cpu/cpu_abi.h"
#include "arguments.h"
#include "hooked.h"
#include "launch_push.h"
#include "launches.h"
#include "memory_map.h"
#include "monotonic.h"
#include "replace.h"
#include "pace.h"

#define INT3              0xcc
#define STREAM_PER_THREAD 2u
#define SETTLE_NS         10000000000u /* from a breakpoint to the hook behind it, at most */
#define NESTED_STACK_MAX  (1u << 20)   /* as the kernel's programs have it */

/* The head of CUlaunchConfig. */
struct launch_config {
        unsigned grid_x, grid_y, grid_z;
        unsigned block_x, block_y, block_z;
        unsigned shared_bytes;
        cuda_handle stream;
};

typedef int launch_kernel_fn(cuda_handle f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                             cuda_handle stream, void **parameters, void **extra);
typedef int launch_cooperative_fn(cuda_handle f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                  unsigned block_x, unsigned block_y, unsigned block_z,
                                  unsigned shared, cuda_handle stream, void **parameters);
typedef int launch_ex_fn(const struct launch_config *config, cuda_handle f, void **parameters,
                         void **extra);
typedef int launch_graph_fn(cuda_handle exec, cuda_handle stream);

enum function {
        KERNEL,
        KERNEL_PTSZ,
        COOPERATIVE,
        COOPERATIVE_PTSZ,
        KERNEL_EX,
        KERNEL_EX_PTSZ,
        GRAPH,
        GRAPH_PTSZ,
        FUNCTION_COUNT,
};

static struct target {
        union {
                void *original;
                launch_kernel_fn *kernel;
                launch_cooperative_fn *cooperative;
                launch_ex_fn *ex;
                launch_graph_fn *graph;
        };
        const volatile uint8_t *code; /* the function itself */
} targets[FUNCTION_COUNT];

/* Zero in a forked child, however it was forked: the page is wiped there. */
struct control {
        uint32_t on;
};

static struct control never;

static struct {
        struct control *control;
        struct agent_launch_map *map;
        uintptr_t trampoline; /* where a call returns to that a return probe is on */
        uint64_t settled_ns;
        int (*context_get_current)(cuda_handle *);
        const char *refusal; /* a function could not be hooked */
        bool hooked, begun;
} launches = {.control = &never};

static __thread struct {
        uintptr_t frame; /* of the launch under way; 0: none */
        uint64_t context;
        const void *map; /* where it has its slot */
        uint32_t slot;   /* of that context */
        uint32_t tid;
        uint8_t own; /* AGENT_LAUNCH_OWN in the agent's threads */
} self;

struct call {
        struct agent_launch launch;
        struct replace_use use;
        uint32_t slot;
        bool nested;
        bool recorded;
        bool tells; /* somebody wants to know what it is given */
};

static bool is_trapped(const struct target *t, uint64_t now)
{
        return now < launches.settled_ns || *t->code == INT3;
}

/* Of what the thread works in; the driver keeps that per thread, so asking it is cheap. */
static inline uint32_t current_slot(void)
{
        cuda_handle context = NULL;

        if (launches.context_get_current(&context) != CUDA_OK || !context)
                return AGENT_LAUNCH_NO_CONTEXT;
        if (self.context != (uintptr_t)context || self.map != launches.map) {
                self.context = (uintptr_t)context;
                self.map = launches.map;
                self.slot = launch_map_context(launches.map, (uintptr_t)context);
        }
        return self.slot;
}

static inline uint64_t stream_of(cuda_handle stream, bool per_thread)
{
        return !stream && per_thread ? STREAM_PER_THREAD : (uintptr_t)stream;
}

/* To be inlined into the hooks: it looks at their frame. */
static inline __attribute__((always_inline)) void enter(struct call *c, const struct target *t,
                                                        uint8_t type, uint64_t stream)
{
        uintptr_t frame = (uintptr_t)__builtin_frame_address(0);

        c->recorded = c->tells = false;
        c->use = (struct replace_use){0};
        c->nested = self.frame && frame < self.frame && self.frame - frame < NESTED_STACK_MAX;
        if (c->nested)
                return;
        self.frame = frame;
        if (!__atomic_load_n(&launches.control->on, __ATOMIC_ACQUIRE))
                return;
        if (pace_limits(launches.map) && !self.own)
                pace_hold(stream);
        c->launch.enter_ns = now_ns();
        c->tells = __atomic_load_n(&launches.map->wishes.arguments, __ATOMIC_RELAXED) && !self.own;
        if ((uintptr_t)__builtin_return_address(0) == launches.trampoline &&
            is_trapped(t, c->launch.enter_ns))
                return;
        if (!self.tid)
                self.tid = (uint32_t)syscall(SYS_gettid);
        c->launch.type = type | self.own;
        c->launch.tid = self.tid;
        c->slot = current_slot();
        c->launch.seq = launch_map_enter(launches.map, c->slot, type == CPU_EVENT_GRAPH_LAUNCH);
        if (self.own)
                launch_map_retire(launches.map, c->slot);
        c->recorded = true;
}

/* Before the driver is called: who brings memory for the kernel has until it starts. */
static inline void tell(const struct call *c, cuda_handle f, void **parameters, void **extra)
{
        if (__builtin_expect(c->tells, false))
                arguments_tell(f, parameters, extra, c->launch.enter_ns);
}

/* What is launched for a function: itself, or the same kernel with other programs in it. */
static inline void choose(struct call *c, cuda_handle f)
{
        if (c->nested || self.own)
                c->use.function = f;
        else
                replace_begin(&c->use, f);
}

static inline bool again(struct call *c, cuda_handle f, int result)
{
        return replace_again(&c->use, f, result);
}

static inline void leave(struct call *c, int result)
{
        uint64_t duration;

        if (c->nested)
                return;
        replace_end(&c->use);
        self.frame = 0;
        if (!c->recorded)
                return;
        if (c->use.unprobed)
                c->launch.type |= AGENT_LAUNCH_UNPROBED;
        duration = now_ns() - c->launch.enter_ns;
        c->launch.duration_ns = duration > UINT32_MAX ? UINT32_MAX : (uint32_t)duration;
        c->launch.result = (uint16_t)result;
        launch_map_push(launches.map, c->slot, &c->launch);
}

static inline void describe(struct call *c, cuda_handle f, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared, uint64_t stream)
{
        c->launch.func = (uintptr_t)f;
        c->launch.stream = stream;
        c->launch.grid_x = grid_x;
        c->launch.grid_y = (uint16_t)grid_y;
        c->launch.grid_z = (uint16_t)grid_z;
        c->launch.block_x = (uint16_t)block_x;
        c->launch.block_y = (uint16_t)block_y;
        c->launch.block_z = (uint8_t)block_z;
        c->launch.shared_bytes = shared;
}

#define KERNEL_HOOK(hook, which, per_thread)                                                       \
        static int hook(cuda_handle f, unsigned grid_x, unsigned grid_y, unsigned grid_z,          \
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,     \
                        cuda_handle stream, void **parameters, void **extra)                       \
        {                                                                                          \
                const struct target *t = &targets[which];                                          \
                struct call c;                                                                     \
                int r;                                                                             \
                                                                                                   \
                enter(&c, t, CPU_EVENT_LAUNCH, stream_of(stream, per_thread));                     \
                tell(&c, f, parameters, extra);                                                    \
                choose(&c, f);                                                                     \
                do                                                                                 \
                        r = t->kernel(c.use.function, grid_x, grid_y, grid_z, block_x, block_y,    \
                                      block_z, shared, stream, parameters, extra);                 \
                while (again(&c, f, r));                                                           \
                describe(&c, f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,         \
                         stream_of(stream, per_thread));                                           \
                leave(&c, r);                                                                      \
                return r;                                                                          \
        }

#define COOPERATIVE_HOOK(hook, which, per_thread)                                                  \
        static int hook(cuda_handle f, unsigned grid_x, unsigned grid_y, unsigned grid_z,          \
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,     \
                        cuda_handle stream, void **parameters)                                     \
        {                                                                                          \
                const struct target *t = &targets[which];                                          \
                struct call c;                                                                     \
                int r;                                                                             \
                                                                                                   \
                enter(&c, t, CPU_EVENT_LAUNCH, stream_of(stream, per_thread));                     \
                tell(&c, f, parameters, NULL);                                                     \
                choose(&c, f);                                                                     \
                do                                                                                 \
                        r = t->cooperative(c.use.function, grid_x, grid_y, grid_z, block_x,        \
                                           block_y, block_z, shared, stream, parameters);          \
                while (again(&c, f, r));                                                           \
                describe(&c, f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,         \
                         stream_of(stream, per_thread));                                           \
                leave(&c, r);                                                                      \
                return r;                                                                          \
        }

/* The caller may change its config as soon as the call is back, so it is read before. */
#define KERNEL_EX_HOOK(hook, which, per_thread)                                                    \
        static int hook(const struct launch_config *config, cuda_handle f, void **parameters,      \
                        void **extra)                                                              \
        {                                                                                          \
                const struct target *t = &targets[which];                                          \
                struct call c;                                                                     \
                int r;                                                                             \
                                                                                                   \
                enter(&c, t, CPU_EVENT_LAUNCH,                                                     \
                      config ? stream_of(config->stream, per_thread) : 0);                         \
                if (config && c.recorded)                                                          \
                        describe(&c, f, config->grid_x, config->grid_y, config->grid_z,            \
                                 config->block_x, config->block_y, config->block_z,                \
                                 config->shared_bytes, stream_of(config->stream, per_thread));     \
                else                                                                               \
                        describe(&c, f, 0, 0, 0, 0, 0, 0, 0, 0);                                   \
                tell(&c, f, parameters, extra);                                                    \
                choose(&c, f);                                                                     \
                do                                                                                 \
                        r = t->ex(config, c.use.function, parameters, extra);                      \
                while (again(&c, f, r));                                                           \
                leave(&c, r);                                                                      \
                return r;                                                                          \
        }

#define GRAPH_HOOK(hook, which, per_thread)                                                        \
        static int hook(cuda_handle exec, cuda_handle stream)                                      \
        {                                                                                          \
                const struct target *t = &targets[which];                                          \
                struct call c;                                                                     \
                int r;                                                                             \
                                                                                                   \
                enter(&c, t, CPU_EVENT_GRAPH_LAUNCH, stream_of(stream, per_thread));               \
                if (__builtin_expect(c.tells, false))                                              \
                        arguments_tell_graph(exec, c.launch.enter_ns);                             \
                r = t->graph(exec, stream);                                                        \
                describe(&c, exec, 0, 0, 0, 0, 0, 0, 0, stream_of(stream, per_thread));            \
                leave(&c, r);                                                                      \
                return r;                                                                          \
        }

KERNEL_HOOK(on_kernel, KERNEL, false)
KERNEL_HOOK(on_kernel_ptsz, KERNEL_PTSZ, true)
COOPERATIVE_HOOK(on_cooperative, COOPERATIVE, false)
COOPERATIVE_HOOK(on_cooperative_ptsz, COOPERATIVE_PTSZ, true)
KERNEL_EX_HOOK(on_kernel_ex, KERNEL_EX, false)
KERNEL_EX_HOOK(on_kernel_ex_ptsz, KERNEL_EX_PTSZ, true)
GRAPH_HOOK(on_graph, GRAPH, false)
GRAPH_HOOK(on_graph_ptsz, GRAPH_PTSZ, true)

size_t launches_hooks(struct hook *hooks)
{
        const struct hook all[FUNCTION_COUNT] = {
                HOOK("cuLaunchKernel", on_kernel, targets[KERNEL].original),
                HOOK("cuLaunchKernel_ptsz", on_kernel_ptsz, targets[KERNEL_PTSZ].original),
                HOOK("cuLaunchCooperativeKernel", on_cooperative, targets[COOPERATIVE].original),
                HOOK("cuLaunchCooperativeKernel_ptsz", on_cooperative_ptsz,
                     targets[COOPERATIVE_PTSZ].original),
                HOOK("cuLaunchKernelEx", on_kernel_ex, targets[KERNEL_EX].original),
                HOOK("cuLaunchKernelEx_ptsz", on_kernel_ex_ptsz, targets[KERNEL_EX_PTSZ].original),
                HOOK("cuGraphLaunch", on_graph, targets[GRAPH].original),
                HOOK("cuGraphLaunch_ptsz", on_graph_ptsz, targets[GRAPH_PTSZ].original),
        };

        memcpy(hooks, all, sizeof(all));
        return FUNCTION_COUNT;
}

struct agent_launch_map *launches_map(void)
{
        return __atomic_load_n(&launches.control->on, __ATOMIC_ACQUIRE) ? launches.map : NULL;
}

void launches_own_thread(void)
{
        self.own = AGENT_LAUNCH_OWN;
}

void launches_hooked(const struct hook *hooks, size_t count)
{
        launches.hooked = true;
        for (size_t i = 0; i < count; i++) {
                if (!hooks[i].target || hook_is_alias(hooks, i))
                        continue;
                /* All or none: one may call another, which must see that it is nested. */
                if (hooks[i].refusal)
                        launches.refusal = hooks[i].refusal;
                targets[i].code = hooks[i].target;
        }
}

static const char *map_launches(int fd)
{
        void *memory = mmap(NULL, AGENT_LAUNCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        void *control = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (memory == MAP_FAILED || control == MAP_FAILED)
                return "the launch map cannot be mapped";
        if (madvise(control, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK) < 0)
                return "this kernel does not wipe memory on fork";
        madvise(memory, AGENT_LAUNCH_BYTES, MADV_DONTFORK);
        launches.map = memory;
        launches.control = control;
        return NULL;
}

/*
 * What was launched so far does not wait: it was the agent's own checks, and kernels
 * that no probe tells the start of.
 */
static void retire_earlier(void)
{
        for (unsigned i = 0; i < AGENT_LAUNCH_CONTEXTS; i++) {
                struct agent_launch_context *c = &launches.map->contexts[i];

                __atomic_store_n(&c->retired, c->entered - c->graphs, __ATOMIC_RELAXED);
        }
}

/* Taken out while calls go on: they are the kernel's or the agent's, each by what it meets. */
static void remove_breakpoints(void)
{
        for (size_t i = 0; i < FUNCTION_COUNT; i++)
                if (targets[i].code)
                        hook_remove_breakpoint((uint8_t *)(uintptr_t)targets[i].code);
}

const char *launches_begin(const struct cuda_api *api, struct wire *wire, int map_fd)
{
        const char *refusal;

        if (launches.begun || !launches.hooked)
                return "launches are not hooked";
        if (launches.refusal)
                return launches.refusal;
        /*
         * Made by the kernel when a return probe was first hit, which must have been:
         * retaining and pushing a context are probed.
         */
        launches.trampoline = memory_mapping_named("[uprobes]");
        if (!launches.trampoline)
                return "no return probe has been hit in this process";
        refusal = map_launches(map_fd);
        if (refusal)
                return refusal;
        launches.context_get_current = api->context_get_current;
        arguments_begin(api, wire, launches.map);
        launches.begun = true;
        launches.settled_ns = now_ns() + SETTLE_NS;
        retire_earlier();
        __atomic_store_n(&launches.map->producer.recording, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&launches.control->on, 1, __ATOMIC_RELEASE);
        remove_breakpoints();
        return NULL;
}

void launches_probed(void)
{
        struct agent_launch_map *map = launches_map();
        __u64 none = 0;

        if (map)
                __atomic_compare_exchange_n(&map->producer.probed_ns, &none, now_ns(), false,
                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/*
 * The kernel puts its breakpoints into a mapping that is split: a hint about the page
 * makes it one of its own for a moment.
 */
static void restore_breakpoint(const volatile uint8_t *code)
{
        uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
        void *page = (void *)((uintptr_t)code & ~(page_bytes - 1));

        madvise(page, page_bytes, MADV_RANDOM);
        madvise(page, page_bytes, MADV_NORMAL);
}

void launches_end(void)
{
        if (!launches.begun)
                return;
        launches.begun = false;
        /* First, so that each call is either the kernel's or the agent's all the time. */
        for (size_t i = 0; i < FUNCTION_COUNT; i++)
                if (targets[i].code)
                        restore_breakpoint(targets[i].code);
        __atomic_store_n(&launches.control->on, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&launches.map->producer.recording, 0, __ATOMIC_RELAXED);
}
