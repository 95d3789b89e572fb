/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Bring what the next kernels were given before they need it.
 *
 * A launch is called on the CPU before the kernel starts on the GPU, and its
 * arguments say which memory it is about. So the ranges of a launch are brought as
 * soon as it is called, unless they are there already. A kernel that has begun
 * meanwhile faults where the copy has not come yet, and no more behind it: the copy
 * goes through the range in large pieces, four times as fast as faults do, so it
 * overtakes the kernel and stays ahead.
 *
 * What is there is known from migrations; what was asked for counts as there for
 * `asked_ms`, so that the launches that follow do not ask for it again. There is
 * the GPU the kernel goes to: what another has is brought over, as faults would. A few blocks
 * that are there in the middle of many that are not are asked for with the rest:
 * that costs nothing, and one request is carried out faster than two.
 *
 * What a kernel was given once it is likely to be given again. So memory that the CPU
 * takes back by touching it is brought again `early_ms` after its touch, while the CPU
 * goes on elsewhere, and not only at the next launch; but once at most from one launch
 * to the next, so that a CPU that comes back to it costs one trip in vain.
 *
 * Wins where kernels use most of what they are given: layers, tiles, buffers. The
 * faults disappear, as far as there is room and the link keeps up with the kernels.
 * Loses where kernels are given a large range and touch little of it (tables,
 * graphs): all of it is brought for a few pages; `range_mib` bounds what is
 * believed. Loses also where kernels of several GPUs are given the same memory in turn: it
 * goes to and fro as launches are called, ahead of the kernels. It never evicts; load it together
 * with a policy that keeps a reserve. Where memory is short it wins nothing over that one alone,
 * since requests are made one at a time and what is brought waits for what leaves: of layers of 125
 * % of the memory the simulator leaves 37 % of the driver's stall with evict_lru, with this beside
 * it or not.
 *
 * Source: what cudaMemPrefetchAsync is for, done for programs that do not call it.
 */
#define ARGS_GPUS 64 /* a power of two; those of higher numbers share with others */

#define LIST_THERE  0
#define LIST_ASKED  1
#define LIST_TAKEN  64 /* + GPU: by the CPU, of what a kernel on it was given; oldest first */
#define BLOCK_LISTS 128
#include "blocks.bpf.h"

POLICY_PARAM(__u64, range_mib, 1024, 2, 65536, "larger ranges are not brought, MiB");
POLICY_PARAM(__u32, spare_blocks, 0, 0, 65536, "blocks of the GPU's memory left free");
POLICY_PARAM(__u32, gap_blocks, 8, 0, 64, "blocks already there that are asked for with the rest");
POLICY_PARAM(__u64, asked_ms, 100, 1, 10000, "how long what was asked for counts as there, ms");
POLICY_PARAM(__u64, early_ms, 10, 0, 10000,
             "what the CPU took is brought again so long after its touch, ms; 0: with the launch");

#define REQUEST_BYTES (1ull << 30) /* the daemon takes no more in one request */
#define EARLY_MAX     1024         /* in one run */
#define NSEC_PER_MSEC 1000000ull

/* What is kept in a block's `uses`: a state, and the GPU its last kernel ran on. */
#define STATE_GIVEN 1u /* to a kernel, and not brought early since */
#define STATE_EARLY 2u
#define STATE_MASK  0xffu
#define GPU_SHIFT   8

struct visit {
        __u64 process;
        __u64 address;
        __u32 gpu; /* that it came to, or left, or goes to */
        bool left;
        bool taken; /* left by a touch of the CPU */
};

/* Of the run that goes on: here rather than in struct visit, where the verifier would follow them.
 */
__u64 now_ns;
__u64 room;                   /* blocks that may still be brought */
__u32 run_gpu;                /* to the GPU that the run is about */
__u64 early_at_ns[ARGS_GPUS]; /* when what the CPU took was last brought */
__u64 missing;                /* where the request being collected begins; 0: there is none */
__u64 missing_end;            /* behind its last missing block */
__u64 missing_of;             /* its process */
__u32 missing_to;             /* its GPU */

inline_ __u32 list_taken(__u32 gpu)
{
        return LIST_TAKEN + gpu % ARGS_GPUS;
}

/* ---- what is there ---- */

/* It is waited with while the CPU is at it. */
noinline_ int block_taken(__u32 number)
{
        struct block *b = block_at(number);

        if (!number || !b)
                return 0;
        if (!early_ms || (b->uses & STATE_MASK) != STATE_GIVEN)
                return block_forget(number);
        b->used_ns = now_ns;
        block_move(number, list_taken(b->uses >> GPU_SHIFT));
        return 0;
}

noinline_ int block_came(__u64 process, __u64 address, __u32 gpu, __u32 number)
{
        struct block *b;

        if (number)
                block_move(number, LIST_THERE);
        else
                number = block_add(process, address, LIST_THERE);
        b = number ? block_at(number) : NULL;
        if (b)
                b->gpu = gpu;
        return 0;
}

/* Whether it is another GPU that has it, or was asked to. */
noinline_ bool is_elsewhere(__u32 number, __u32 gpu)
{
        struct block *b = block_at(number);

        return number && b && b->list <= LIST_ASKED && b->gpu != gpu;
}

static long note_block(__u32 i, struct visit *v)
{
        __u64 address = v->address + (__u64)i * POLICY_BLOCK_BYTES;
        __u32 number = block_find(v->process, address);

        if (!v->left)
                block_came(v->process, address, v->gpu, number);
        else if (is_elsewhere(number, v->gpu))
                return 0;
        else if (v->taken)
                block_taken(number);
        else
                block_forget(number);
        return 0;
}

static long note_moved(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        v->address = b->items[i].moved.address;
        v->left = b->items[i].moved.to == POLICY_HOST;
        v->gpu = v->left ? b->items[i].moved.from : b->items[i].moved.to;
        v->taken = v->left && b->items[i].moved.cause == POLICY_BY_FAULT;
        bpf_loop(range_blocks(v->address, b->items[i].moved.bytes), note_block, v, 0);
        return 0;
}

static long free_block(__u32 i, struct visit *v)
{
        block_forget(block_find(v->process, v->address + (__u64)i * POLICY_BLOCK_BYTES));
        return 0;
}

static long note_freed(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        v->address = b->items[i].range.address;
        bpf_loop(range_blocks(v->address, b->items[i].range.bytes), free_block, v, 0);
        return 0;
}

POLICY(free)
{
        struct visit v = {.process = e->process};

        bpf_loop(e->items, note_freed, &v, 0);
        return 0;
}

POLICY(process_exit)
{
        blocks_forget_process(e->process);
        return 0;
}

/* ---- requests ---- */

noinline_ int bring(void)
{
        if (missing)
                policy_migrate(missing_of, missing, missing_end - missing, missing_to);
        missing = 0;
        return 0;
}

/* Add a block to the request being collected, or begin the next one with it. */
noinline_ int collect(__u64 process, __u32 gpu, __u64 address, __u64 gap)
{
        __u64 end = address + POLICY_BLOCK_BYTES;

        room--;
        if (missing && process == missing_of && gpu == missing_to && end == missing &&
            missing_end - address <= REQUEST_BYTES) {
                missing = address; /* downwards */
                return 0;
        }
        if (process != missing_of || gpu != missing_to || address < missing_end ||
            address - missing_end > gap || end - missing > REQUEST_BYTES)
                bring();
        if (!missing)
                missing = address;
        missing_end = end;
        missing_of = process;
        missing_to = gpu;
        return 0;
}

/* A kernel is given it: takes down what was asked for; false: it is on its GPU, or on the way
 * there. */
noinline_ bool block_wanted(__u64 process, __u64 address, __u32 gpu)
{
        __u32 number = block_find(process, address);
        struct block *b;

        if (!number)
                number = block_add(process, address, list_taken(gpu));
        b = number ? block_at(number) : NULL;
        if (!b)
                return true; /* too many blocks to keep account of */
        b->uses = gpu << GPU_SHIFT | STATE_GIVEN;
        if (b->gpu == gpu &&
            (b->list == LIST_THERE ||
             (b->list == LIST_ASKED && now_ns - b->used_ns < asked_ms * NSEC_PER_MSEC)))
                return false;
        block_move(number, LIST_ASKED);
        b->used_ns = now_ns;
        b->gpu = gpu;
        return true;
}

static long look(__u32 i, struct visit *v)
{
        __u64 address = policy_block(v->address) + (__u64)i * POLICY_BLOCK_BYTES;

        if (!room)
                return 1;
        if (block_wanted(v->process, address, v->gpu))
                collect(v->process, v->gpu, address, (__u64)gap_blocks * POLICY_BLOCK_BYTES);
        return 0;
}

/* ---- what will be needed again ---- */

inline_ bool is_due(void)
{
        __u32 number = block_lists[list_taken(run_gpu) % BLOCK_LISTS].first;
        struct block *b = number ? block_at(number) : NULL;

        return b && now_ns - b->used_ns >= early_ms * NSEC_PER_MSEC;
}

static long bring_early(__u32 i, void *unused)
{
        __u32 number = block_lists[list_taken(run_gpu) % BLOCK_LISTS].first;
        struct block *b = number ? block_at(number) : NULL;
        __u32 gpu;

        if (!b || !room || !is_due())
                return 1;
        gpu = b->uses >> GPU_SHIFT;
        b->uses = gpu << GPU_SHIFT | STATE_EARLY;
        b->used_ns = now_ns;
        b->gpu = gpu;
        block_move(number, LIST_ASKED);
        collect(b->key.process, gpu, b->key.address, 0);
        return 0;
}

/* It is as far as it was before it was asked for. */
static long take_again(__u32 i, struct visit *v)
{
        __u32 number = block_find(v->process, v->address + (__u64)i * POLICY_BLOCK_BYTES);
        struct block *b = number ? block_at(number) : NULL;

        if (!b || b->list != LIST_ASKED || b->gpu != v->gpu)
                return 0;
        b->uses = v->gpu << GPU_SHIFT | STATE_GIVEN;
        b->used_ns = now_ns;
        block_move(number, list_taken(v->gpu));
        return 0;
}

static long visit_refused(__u32 i, struct visit *v)
{
        struct policy_refused *r = policy_refused_at(i);

        if (!r || !policy_may_go_later(r))
                return 0;
        v->process = r->process;
        v->address = r->address;
        v->gpu = r->to;
        bpf_loop(range_blocks(r->address, r->bytes), take_again, v, 0);
        return 0;
}

POLICY(refused)
{
        struct visit v = {0};

        now_ns = e->now_ns;
        bpf_loop(e->items, visit_refused, &v, 0);
        return 0;
}

/* Now and then, so that much of it goes with one request. */
inline_ void look_for_taken(void)
{
        __u64 *at_ns = &early_at_ns[run_gpu % ARGS_GPUS];

        if (!early_ms || now_ns - *at_ns < early_ms * NSEC_PER_MSEC || !is_due())
                return;
        *at_ns = now_ns;
        bpf_loop(EARLY_MAX, bring_early, NULL, 0);
        bring();
}

inline_ void begin(const struct policy_event *e)
{
        __u64 spare = (__u64)spare_blocks * POLICY_BLOCK_BYTES;

        now_ns = e->now_ns;
        run_gpu = e->gpu;
        missing = 0;
        room = ~0ull;
        if (e->free_bytes != POLICY_UNKNOWN)
                room = e->free_bytes > spare ? (e->free_bytes - spare) / POLICY_BLOCK_BYTES : 0;
}

POLICY(migration)
{
        struct visit v = {.process = e->process};

        begin(e);
        bpf_loop(e->items, note_moved, &v, 0);
        look_for_taken();
        return 0;
}

POLICY(tick)
{
        begin(e);
        look_for_taken();
        return 0;
}

/* ---- what is needed now ---- */

static long look_range(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();
        __u64 bytes;
        __u32 n;

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        v->address = b->items[i].range.address;
        bytes = b->items[i].range.bytes;
        if (bytes > range_mib << 20)
                return 0;
        n = range_blocks(v->address, bytes);
        bpf_loop(n, look, v, 0);
        bring();
        return room == 0;
}

POLICY(launch)
{
        struct visit v = {.process = e->process, .gpu = e->gpu};

        begin(e);
        bpf_loop(e->items, look_range, &v, 0);
        return 0;
}
