/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Where in memory kernels are at work, and how well neighbours share it.
 *
 * Tells, for each page of 2 MiB: how many requests of warps loaded from it and wrote to
 * it, and how many sectors of 32 bytes they touched. Sectors by requests is how well
 * accesses coalesce: 4 for words side by side, 1 where all read the same, 32 where each
 * lane has a line of its own. The view puts the pages of an allocation together; a page
 * that several share stays a row of its own.
 *
 * Costs: at each access, in all lanes, what it takes to count sectors (a comparison between
 * lanes and a vote); in one lane a load of the page's place in the table and two atomic
 * operations that nobody waits for, on words that the multiprocessor has of its own. A
 * kernel that does little but access memory becomes several times as slow. 16 MiB of
 * GPU memory.
 *
 * Misleads: a request counts for the page of its first lane; others may be elsewhere. Caches
 * are not looked at: a page that is always in the cache is as hot. Generic addresses may be
 * of shared memory; that shows as a page in no allocation. A multiprocessor that touches
 * more pages than fit into its table (MEM_HEAT_PAGES, 4 GiB) counts the rest in
 * `requests_without_place`.
 */
#include "gpuobs_helpers.h"
#include "mem_heat_abi.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct mem_heat);
        __uint(max_entries, MEM_HEAT_PAGES);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_SM);
} pages SEC(".maps");

volatile __u64 requests_without_place;

SEC("gpu/mem.warp")
int touch(struct gpuobs_mem_ctx *ctx)
{
        struct mem_heat *page;

        if (ctx->space != GPUOBS_SPACE_GLOBAL && ctx->space != GPUOBS_SPACE_GENERIC)
                return 0;
        page = id_table_find(&pages, MEM_HEAT_PAGES, ctx->address >> MEM_HEAT_PAGE_SHIFT);
        if (page) {
                __sync_fetch_and_add(ctx->kind == GPUOBS_ACCESS_LOAD ? &page->loads : &page->writes,
                                     1);
                __sync_fetch_and_add(&page->sectors, gpuobs_sectors());
        } else {
                __sync_fetch_and_add(&requests_without_place, 1);
        }
        return 0;
}
