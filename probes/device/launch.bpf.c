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
        __u32 slot = n % DEVICE_RING_ENTRIES;
        __u64 grid = DEVICE_RECORD_GRID(ctx->gridid, type, ctx->context);
        __u64 who = DEVICE_RECORD_WHO(ctx->kernel_id, ctx->smid, ctx->queue >> DEVICE_QUEUE_SHIFT);
        __u64 seal = time_ns ^ (grid * DEVICE_SEAL_GRID) ^ (who * DEVICE_SEAL_WHO);
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
 * be running all at once. The early ones before them count without waiting for an answer,
 * in banks, as one address takes hardly more than one such count a nanosecond.
 *
 * Whoever completes the count of the tail adds up the banks. Nearly always all the early
 * blocks have ended as well, and this one is the last of the grid. If not, a block that
 * started a whole device's worth of blocks earlier is still running, or has ended just
 * now: so look again, once. Whoever ends later than that will count, but nobody will know
 * when, so a record says so (the launch's end is then inferred, and counted in the loss
 * ledger). Either way all early blocks are taken out of one of the banks: the next grid
 * with this place begins with a sum of 0, whatever is in each of them.
 *
 * All this holds whatever the order in which blocks start: order only decides how
 * often the tail is not last. Two grids at a time with the same place (DEVICE_GRIDS
 * launches apart in a context), or counts left by one that was killed, can make a record
 * wrong or missing.
 */
#define TAIL_THREADS  (144 * 2048) /* of the largest device of an architecture that we know */
#define BLOCK_THREADS 64           /* smaller blocks take a place as large */

/* By which a grid has words of its own, modulo the size of a table. */
static __always_inline __u32 place_of(const struct gpuobs_kernel_ctx *ctx)
{
        return DEVICE_PLACE(ctx->gridid, ctx->context);
}

static __always_inline __u64 blocks_of(const struct gpuobs_kernel_ctx *ctx)
{
        return (__u64)ctx->grid_x * ctx->grid_y * ctx->grid_z;
}

/* This block and all that come behind it in the order of the grid. */
static __always_inline __u64 blocks_left(const struct gpuobs_kernel_ctx *ctx, __u64 blocks)
{
        __u64 row = ctx->block_y + (__u64)ctx->grid_y * ctx->block_z;

        return blocks - ctx->block_x - ctx->grid_x * row;
}

/* The lower half of the place of this block in the order of the grid. */
static __always_inline __u32 low_index(const struct gpuobs_kernel_ctx *ctx)
{
        return ctx->block_x + ctx->grid_x * (ctx->block_y + ctx->grid_y * ctx->block_z);
}

static __always_inline __u32 *early_bank(struct device_counters *c, __u32 bank, __u32 place)
{
        return &c->early_done[bank % DEVICE_BANKS][place % DEVICE_GRIDS];
}

static __always_inline void count_early(struct gpuobs_kernel_ctx *ctx, struct device_counters *c,
                                        __u32 index)
{
        __sync_fetch_and_add(early_bank(c, index, place_of(ctx)), 1);
}

/* How many blocks have counted in the banks of a grid. */
static __always_inline __u32 in_banks(struct device_counters *c, __u32 place)
{
        __u32 n = 0;

        for (__u32 b = 0; b < DEVICE_BANKS; b++)
                n += __sync_fetch_and_add(early_bank(c, b, place), 0);
        return n;
}

/* Whether `early` blocks have ended, or do so now. Takes them out of the banks. */
static __always_inline bool early_ended(struct device_counters *c, __u32 place, __u32 early)
{
        bool all = in_banks(c, place) == early || in_banks(c, place) == early;

        __sync_fetch_and_add(early_bank(c, 0, place), -early);
        return all;
}

/* Count a block of the tail; the type of the record that is to be written now, or 0. */
static __always_inline __u32 count_in_tail(struct device_counters *c, __u32 place, __u64 blocks,
                                           __u32 threads)
{
        __u64 *done = &c->tail_done[place % DEVICE_GRIDS];
        __u64 tail = __sync_fetch_and_add(done, 1) + 1;

        if (tail != blocks && (tail + 1) * threads <= TAIL_THREADS)
                return 0;
        *done = 0;
        if (tail == blocks || early_ended(c, place, blocks - tail))
                return DEVICE_RECORD_END;
        return DEVICE_RECORD_TAIL;
}

/* The same for a block that may be of the tail. */
static __always_inline __u32 count_late(struct gpuobs_kernel_ctx *ctx, struct device_counters *c)
{
        __u64 blocks = blocks_of(ctx);
        __u32 threads = ctx->block_dim_x;

        if (blocks == 1)
                return DEVICE_RECORD_END;
        if (threads < BLOCK_THREADS)
                threads = BLOCK_THREADS;
        if (blocks_left(ctx, blocks) * threads > TAIL_THREADS) {
                count_early(ctx, c, low_index(ctx));
                return 0;
        }
        return count_in_tail(c, place_of(ctx), blocks, threads);
}

/*
 * The same for any block. Most blocks of a large grid are told apart here, by as few
 * and as narrow operations as it takes: the lower half of a number of blocks is never
 * more than the number.
 */
static __always_inline __u32 count_block(struct gpuobs_kernel_ctx *ctx, struct device_counters *c)
{
        __u32 index = low_index(ctx);

        if ((__u32)blocks_of(ctx) - index > TAIL_THREADS / BLOCK_THREADS) {
                count_early(ctx, c, index);
                return 0;
        }
        return count_late(ctx, c);
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
