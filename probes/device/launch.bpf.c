/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * When kernels start and end: one START record by the first thread of the first
 * block, one END record by the leader of the block that ends last, both in the
 * process's shared start/end map (device_abi.h).
 *
 * This runs in every kernel of an application, so the leader test comes first
 * (the compiler makes it from the scope), the position of a record comes from a
 * counter in GPU memory, and the record itself is four plain stores to the host
 * that nobody waits for.
 */
#include "gpuobs_device.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_record);
        __uint(max_entries, DEVICE_RING_ENTRIES);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(map_extra, GPUOBS_PLACE_HOST);
} launch_records SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_counters);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} launch_counters SEC(".maps");

static __always_inline struct device_counters *counters(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&launch_counters, &zero);
}

static __always_inline void publish(struct gpuobs_kernel_ctx *ctx, struct device_counters *c,
                                    __u64 time_ns, __u64 type)
{
        __u64 n = __sync_fetch_and_add(&c->head, 1);
        __u64 grid = DEVICE_RECORD_GRID(ctx->gridid, type, ctx->context);
        __u64 who = DEVICE_RECORD_WHO(ctx->kernel_id, ctx->smid, ctx->queue >> DEVICE_QUEUE_SHIFT);
        __u64 seal = time_ns ^ (grid * DEVICE_SEAL_GRID) ^ (who * DEVICE_SEAL_WHO);
        __u32 slot = n % DEVICE_RING_ENTRIES;
        struct device_record *r = bpf_map_lookup_elem(&launch_records, &slot);

        if (!r)
                return;
        r->time_ns = time_ns;
        r->grid = grid;
        r->who = who;
        r->check = seal ^ (n + 1);
}

SEC("gpu/entry.grid")
int launch_start(struct gpuobs_kernel_ctx *ctx)
{
        __u64 now_ns = bpf_ktime_get_ns();
        struct device_counters *c = counters();

        if (c)
                publish(ctx, c, now_ns, DEVICE_RECORD_START);
        return 0;
}

/*
 * The end of a grid. Every block counts; the one that completes the count writes the
 * record. To be told the count is a round trip to the L2 cache, half a microsecond in
 * which the block keeps its place from the next one: far too long for every block of
 * a large grid. So only the tail asks: those blocks at the end of the grid that could
 * be running all at once. Before them blocks count without waiting for an answer.
 *
 * The last of the tail to count knows that it is that, from a count of the tail in the
 * upper bits. Nearly always all blocks before it have ended as well: it is the last of
 * the grid, and leaves the counter at 0 for the next grid with this place, by a plain
 * store as nothing of the grid runs any more. If not, a block that started a whole
 * device's worth of blocks earlier is still running. When that one ends nobody will
 * know, so a record says so (the launch's end is then inferred, and counted in the loss
 * ledger), and the counter is set so that those still to come bring it to 0.
 *
 * All this holds whatever the order in which blocks start: order only decides how
 * often the tail is not last. Two grids at a time with the same place (DEVICE_GRIDS
 * launches apart), or counts left by one that was killed, can make a record wrong or
 * missing.
 */
#define TAIL_THREADS  (144 * 2048) /* of the largest device of an architecture that we know */
#define BLOCK_THREADS 64           /* smaller blocks take a place as large */

#define TAIL_BLOCK ((__u64)1 << DEVICE_TAIL_SHIFT | 1)
#define ALL_BLOCKS (((__u64)1 << DEVICE_TAIL_SHIFT) - 1)

/* This block and all that come behind it in the order of the grid. */
static __always_inline __u64 blocks_left(const struct gpuobs_kernel_ctx *ctx, __u64 blocks)
{
        __u64 row = ctx->block_y + (__u64)ctx->grid_y * ctx->block_z;

        return blocks - ctx->block_x - ctx->grid_x * row;
}

/* Count a block of the tail; the type of the record that is to be written now, or 0. */
static __always_inline __u32 count_in_tail(__u64 *done, __u64 blocks, __u32 threads)
{
        __u64 before = __sync_fetch_and_add(done, TAIL_BLOCK);
        __u32 tail = (before >> DEVICE_TAIL_SHIFT) + 1;

        if (tail != blocks && (tail + 1) * threads <= TAIL_THREADS)
                return 0;
        if ((before & ALL_BLOCKS) + 1 == blocks) {
                *done = 0;
                return DEVICE_RECORD_END;
        }
        __sync_fetch_and_add(done, -((__u64)tail << DEVICE_TAIL_SHIFT | blocks));
        return DEVICE_RECORD_TAIL;
}

/* The same for a block that may be of the tail. */
static __always_inline __u32 count_late(struct gpuobs_kernel_ctx *ctx, __u64 *done)
{
        __u64 blocks = (__u64)ctx->grid_x * ctx->grid_y * ctx->grid_z;
        __u32 threads = ctx->block_dim_x;

        if (blocks == 1)
                return DEVICE_RECORD_END;
        if (threads < BLOCK_THREADS)
                threads = BLOCK_THREADS;
        if (blocks_left(ctx, blocks) * threads > TAIL_THREADS) {
                __sync_fetch_and_add(done, 1);
                return 0;
        }
        asm volatile(""); /* else the compiler makes one atomic of the two */
        return count_in_tail(done, blocks, threads);
}

/*
 * The same for any block. Most blocks of a large grid are told apart here, by as few
 * and as narrow operations as it takes: the lower half of a number of blocks is never
 * more than the number.
 */
static __always_inline __u32 count_block(struct gpuobs_kernel_ctx *ctx, struct device_counters *c)
{
        __u64 *done = &c->blocks_done[ctx->gridid % DEVICE_GRIDS];
        __u32 row = ctx->block_y + ctx->grid_y * ctx->block_z;
        __u32 index = ctx->block_x + ctx->grid_x * row;
        __u32 left = ctx->grid_x * ctx->grid_y * ctx->grid_z - index;

        if (left > TAIL_THREADS / BLOCK_THREADS) {
                __sync_fetch_and_add(done, 1);
                return 0;
        }
        return count_late(ctx, done);
}

SEC("gpu/exit.block")
int launch_end(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = counters();
        __u32 type = c ? count_block(ctx, c) : 0;

        if (!type)
                return 0;
        /* Else the upper half of a wide 0 goes through a uniform register, which are rare. */
        asm volatile("" : "+r"(type));
        publish(ctx, c, bpf_ktime_get_ns(), (__u8)type);
        return 0;
}
