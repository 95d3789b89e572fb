/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Questions of how many blocks fit. Blocks may wait for each other, so that a grid which
 * does not fit stands still: where a copy runs instead of a kernel, which may need more
 * registers, the driver is asked about the copy.
 */
#include <string.h>

#include "agent.h"
#include "hooked.h"
#include "replace.h"

static int (*active_blocks)(int *, cuda_handle, int, size_t);
static int (*active_blocks_flags)(int *, cuda_handle, int, size_t, unsigned);
static int (*block_size)(int *, int *, cuda_handle, void *, size_t, int);
static int (*block_size_flags)(int *, int *, cuda_handle, void *, size_t, int, unsigned);
static int (*shared_left)(size_t *, cuda_handle, int, int);
static int (*cluster_size)(int *, cuda_handle, const void *);
static int (*active_clusters)(int *, cuda_handle, const void *);

/* The driver may call one of its exported functions from another. */
static __thread bool inside;

/* What is known about the original is the answer when the driver does not want the other. */
#define ASK(named, call)                                                                           \
        do {                                                                                       \
                struct replace_use use = {.function = (named)};                                    \
                bool outermost = !inside && agent_watching();                                      \
                                                                                                   \
                if (outermost) {                                                                   \
                        inside = true;                                                             \
                        replace_begin(&use, named);                                                \
                }                                                                                  \
                do                                                                                 \
                        r = (call);                                                                \
                while (replace_again(&use, named, r));                                             \
                replace_end(&use);                                                                 \
                if (outermost)                                                                     \
                        inside = false;                                                            \
        } while (0)

static int on_active_blocks(int *blocks, cuda_handle f, int threads, size_t shared)
{
        int r;

        ASK(f, active_blocks(blocks, use.function, threads, shared));
        return r;
}

static int on_active_blocks_flags(int *blocks, cuda_handle f, int threads, size_t shared,
                                  unsigned flags)
{
        int r;

        ASK(f, active_blocks_flags(blocks, use.function, threads, shared, flags));
        return r;
}

static int on_block_size(int *grid, int *block, cuda_handle f, void *shared_of, size_t shared,
                         int limit)
{
        int r;

        ASK(f, block_size(grid, block, use.function, shared_of, shared, limit));
        return r;
}

static int on_block_size_flags(int *grid, int *block, cuda_handle f, void *shared_of, size_t shared,
                               int limit, unsigned flags)
{
        int r;

        ASK(f, block_size_flags(grid, block, use.function, shared_of, shared, limit, flags));
        return r;
}

static int on_shared_left(size_t *bytes, cuda_handle f, int blocks, int threads)
{
        int r;

        ASK(f, shared_left(bytes, use.function, blocks, threads));
        return r;
}

static int on_cluster_size(int *size, cuda_handle f, const void *config)
{
        int r;

        ASK(f, cluster_size(size, use.function, config));
        return r;
}

static int on_active_clusters(int *clusters, cuda_handle f, const void *config)
{
        int r;

        ASK(f, active_clusters(clusters, use.function, config));
        return r;
}

size_t occupancy_hooks(struct hook *hooks)
{
        const struct hook all[] = {
                HOOK("cuOccupancyMaxActiveBlocksPerMultiprocessor", on_active_blocks,
                     active_blocks),
                HOOK("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", on_active_blocks_flags,
                     active_blocks_flags),
                HOOK("cuOccupancyMaxPotentialBlockSize", on_block_size, block_size),
                HOOK("cuOccupancyMaxPotentialBlockSizeWithFlags", on_block_size_flags,
                     block_size_flags),
                HOOK("cuOccupancyAvailableDynamicSMemPerBlock", on_shared_left, shared_left),
                HOOK("cuOccupancyMaxPotentialClusterSize", on_cluster_size, cluster_size),
                HOOK("cuOccupancyMaxActiveClusters", on_active_clusters, active_clusters),
        };

        memcpy(hooks, all, sizeof(all));
        return sizeof(all) / sizeof(all[0]);
}
