// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module with the name, and with functions and types of the names, that probes on
 * the managed-memory driver look for. It drives no hardware: a line written to its
 * file in debugfs makes it call one of these functions with the numbers that the
 * line has. Members of structs stand in another order than in the driver, among
 * others it does not have, so that only BTF can find them.
 *
 *   batch FAULTS DISTINCT DUPLICATES BATCH MSECS STATUS
 *   prefetch START PAGES FIRST OUTER CHOSEN
 *   pick ADDRESS STATE ASKER
 *   evict START GPU_BYTE STATUS
 *   move START PROCESSOR FIRST OUTER CAUSE
 *   deep START OTHER    a move of one block, within which another is evicted and moved
 */
#include <linux/bitmap.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>

#define PAGES 512

/* Neither inlined nor with other arguments than it is declared with. */
#define __noipa __attribute__((__noipa__))

typedef u32 NV_STATUS;

typedef struct {
        u8 uuid[16];
} NvProcessorUuid;

typedef struct {
        u32 val;
} uvm_processor_id_t;

typedef u16 uvm_page_index_t;

typedef struct {
        uvm_page_index_t first;
        uvm_page_index_t outer;
} uvm_va_block_region_t;

typedef struct {
        DECLARE_BITMAP(bitmap, PAGES);
} uvm_page_mask_t;

typedef struct {
        u64 other;
        uvm_processor_id_t residency;
        uvm_page_mask_t prefetch_pages_mask;
} uvm_perf_prefetch_hint_t;

typedef struct uvm_va_space_mm_struct {
        int state;
        struct mm_struct *mm;
} uvm_va_space_mm_t;

typedef struct uvm_va_space_struct {
        u64 other[9];
        uvm_va_space_mm_t va_space_mm;
} uvm_va_space_t;

typedef struct uvm_va_range_struct {
        u32 other;
        uvm_va_space_t *va_space;
} uvm_va_range_t;

typedef struct uvm_va_range_managed_struct {
        u64 other;
        uvm_va_range_t va_range;
} uvm_va_range_managed_t;

typedef struct uvm_va_block_struct {
        u64 end;
        u64 other[3];
        u64 start;
        uvm_va_range_managed_t *managed_range;
} uvm_va_block_t;

typedef struct uvm_parent_gpu_struct {
        char name[24];
        NvProcessorUuid uuid;
} uvm_parent_gpu_t;

typedef struct uvm_gpu_struct {
        uvm_parent_gpu_t *parent;
        NvProcessorUuid uuid;
} uvm_gpu_t;

typedef struct uvm_fault_service_batch_context_struct {
        u32 batch_id;
        u32 num_duplicate_faults;
        u64 other;
        u32 num_coalesced_faults;
        u32 num_cached_faults;
} uvm_fault_service_batch_context_t;

typedef enum {
        FAULT_SERVICE_MODE_REGULAR,
        FAULT_SERVICE_MODE_CANCEL,
} fault_service_mode_t;

typedef enum {
        UVM_PMM_GPU_CHUNK_STATE_PMA_OWNED,
        UVM_PMM_GPU_CHUNK_STATE_FREE,
        UVM_PMM_GPU_CHUNK_STATE_IS_SPLIT,
        UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED,
        UVM_PMM_GPU_CHUNK_STATE_ALLOCATED,
        UVM_PMM_GPU_CHUNK_STATE_COUNT
} uvm_pmm_gpu_chunk_state_t;

typedef enum {
        PMM_CONTEXT_DEFAULT,
        PMM_CONTEXT_PMA_EVICTION,
} uvm_pmm_context_t;

/* Numbered unlike the driver's. */
typedef enum {
        UVM_MAKE_RESIDENT_CAUSE_EVICTION,
        UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE,
        UVM_MAKE_RESIDENT_CAUSE_PREFETCH,
        UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT,
} uvm_make_resident_cause_t;

typedef struct uvm_gpu_chunk_struct {
        struct {
                u32 type : 3;
                bool in_eviction : 1;
                uvm_pmm_gpu_chunk_state_t state : 3;
        };
        u64 address;
} uvm_gpu_chunk_t;

typedef struct uvm_gpu_root_chunk_struct {
        uvm_gpu_chunk_t chunk;
        u64 other;
} uvm_gpu_root_chunk_t;

typedef struct uvm_pmm_gpu_struct {
        u64 other;
} uvm_pmm_gpu_t;

/* What stays the same for all. */
static uvm_va_space_t space;
static uvm_va_range_managed_t range = {.va_range.va_space = &space};

static uvm_va_block_t block_at(u64 start)
{
        uvm_va_block_t block = {
                .start = start, .end = start + PAGES * PAGE_SIZE - 1, .managed_range = &range};

        return block;
}

/* ---- functions that are probed ---- */

static __noipa NV_STATUS service_fault_batch(uvm_parent_gpu_t *parent_gpu,
                                             fault_service_mode_t service_mode,
                                             uvm_fault_service_batch_context_t *batch_context,
                                             unsigned int msecs, NV_STATUS status)
{
        barrier_data(parent_gpu);
        if (msecs)
                usleep_range(msecs * 1000, msecs * 1000 + 1000); /* never less, as by ticks */
        return service_mode == FAULT_SERVICE_MODE_REGULAR ? status : batch_context->batch_id;
}

__noipa void uvm_perf_prefetch_get_hint_va_block(uvm_va_block_t *va_block, void *va_block_context,
                                                 uvm_processor_id_t new_residency,
                                                 const uvm_page_mask_t *faulted_pages,
                                                 uvm_va_block_region_t faulted_region,
                                                 void *bitmap_tree,
                                                 uvm_perf_prefetch_hint_t *out_hint)
{
        barrier_data(va_block);
        out_hint->residency = new_residency;
        bitmap_complement(out_hint->prefetch_pages_mask.bitmap, faulted_pages->bitmap, PAGES);
}

static __noipa NV_STATUS evict_root_chunk(uvm_pmm_gpu_t *pmm, uvm_gpu_root_chunk_t *root_chunk,
                                          uvm_pmm_context_t pmm_context)
{
        barrier_data(pmm);
        root_chunk->chunk.state = UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED;
        return pmm_context == PMM_CONTEXT_DEFAULT ? 0 : root_chunk->other;
}

__noipa NV_STATUS uvm_va_block_evict_chunks(uvm_va_block_t *va_block, uvm_gpu_t *gpu,
                                            uvm_gpu_chunk_t *root_chunk, void *tracker)
{
        barrier_data(va_block);
        return root_chunk->address + (tracker == gpu);
}

__noipa NV_STATUS uvm_va_block_make_resident_copy(
        uvm_va_block_t *va_block, uvm_va_block_t *inner, void *va_block_context,
        uvm_processor_id_t dest_id, uvm_va_block_region_t region, const uvm_page_mask_t *page_mask,
        const uvm_page_mask_t *prefetch_page_mask, uvm_make_resident_cause_t cause)
{
        uvm_processor_id_t cpu = {0};
        uvm_gpu_chunk_t chunk = {};
        uvm_gpu_t gpu = {.uuid.uuid = {7}};

        barrier_data(va_block);
        if (!inner)
                return 0;
        uvm_va_block_evict_chunks(inner, &gpu, &chunk, NULL);
        return uvm_va_block_make_resident_copy(inner, NULL, va_block_context, cpu, region,
                                               page_mask, prefetch_page_mask,
                                               UVM_MAKE_RESIDENT_CAUSE_EVICTION);
}

/* ---- lines ---- */

static int do_batch(const u64 *n)
{
        uvm_parent_gpu_t gpu = {.uuid.uuid = {1, 2, 3, [15] = 16}};
        uvm_fault_service_batch_context_t batch = {.num_cached_faults = n[0],
                                                   .num_coalesced_faults = n[1],
                                                   .num_duplicate_faults = n[2],
                                                   .batch_id = n[3]};

        service_fault_batch(&gpu, FAULT_SERVICE_MODE_REGULAR, &batch, n[4], n[5]);
        return 0;
}

/* What faulted is all but PAGES of them, so that the hint is PAGES from the block's first on. */
static int do_prefetch(const u64 *n)
{
        uvm_va_block_t block = block_at(n[0]);
        uvm_perf_prefetch_hint_t hint = {};
        uvm_page_mask_t faulted;
        uvm_va_block_region_t region = {n[2], n[3]};
        uvm_processor_id_t processor = {n[4]};

        bitmap_fill(faulted.bitmap, PAGES);
        bitmap_clear(faulted.bitmap, 0, n[1] <= PAGES ? n[1] : PAGES);
        uvm_perf_prefetch_get_hint_va_block(&block, NULL, processor, &faulted, region, NULL, &hint);
        return 0;
}

static int do_pick(const u64 *n)
{
        uvm_gpu_root_chunk_t root = {.chunk = {.address = n[0], .state = n[1]}};
        uvm_pmm_gpu_t pmm = {};

        evict_root_chunk(&pmm, &root, n[2]);
        return 0;
}

static int do_evict(const u64 *n)
{
        uvm_va_block_t block = block_at(n[0]);
        uvm_gpu_t gpu = {.uuid.uuid = {n[1]}};
        uvm_gpu_chunk_t chunk = {.address = n[2]};

        uvm_va_block_evict_chunks(&block, &gpu, &chunk, NULL);
        return 0;
}

static int do_move(const u64 *n)
{
        uvm_va_block_t block = block_at(n[0]);
        uvm_processor_id_t processor = {n[1]};
        uvm_va_block_region_t region = {n[2], n[3]};

        uvm_va_block_make_resident_copy(&block, NULL, NULL, processor, region, NULL, NULL, n[4]);
        return 0;
}

static int do_deep(const u64 *n)
{
        uvm_va_block_t block = block_at(n[0]), other = block_at(n[1]);
        uvm_processor_id_t processor = {1};
        uvm_va_block_region_t region = {0, PAGES};

        uvm_va_block_make_resident_copy(&block, &other, NULL, processor, region, NULL, NULL,
                                        UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT);
        return 0;
}

static const struct {
        const char *name;
        int numbers;
        int (*run)(const u64 *n);
} verbs[] = {
        {"batch", 6, do_batch}, {"prefetch", 5, do_prefetch}, {"pick", 3, do_pick},
        {"evict", 3, do_evict}, {"move", 5, do_move},         {"deep", 2, do_deep},
};

static int run(const char *line)
{
        char verb[16];
        u64 n[6];
        int got = sscanf(line, "%15s %llu %llu %llu %llu %llu %llu", verb, &n[0], &n[1], &n[2],
                         &n[3], &n[4], &n[5]);

        for (int i = 0; got > 0 && i < ARRAY_SIZE(verbs); i++)
                if (!strcmp(verb, verbs[i].name))
                        return got == 1 + verbs[i].numbers ? verbs[i].run(n) : -EINVAL;
        return -EINVAL;
}

static DEFINE_MUTEX(lock);

static ssize_t write_line(struct file *file, const char __user *text, size_t size, loff_t *at)
{
        char line[256];
        int r;

        if (size >= sizeof(line) || copy_from_user(line, text, size))
                return -EINVAL;
        line[size] = '\0';
        mutex_lock(&lock);
        space.va_space_mm.mm = current->mm;
        r = run(line);
        mutex_unlock(&lock);
        return r ? r : size;
}

static const struct file_operations operations = {.owner = THIS_MODULE, .write = write_line};
static struct dentry *entry;

static int __init start(void)
{
        entry = debugfs_create_file("uvm_calls", 0200, NULL, NULL, &operations);
        return PTR_ERR_OR_ZERO(entry);
}

static void __exit stop(void)
{
        debugfs_remove(entry);
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stands in for the managed-memory driver in a test of probes");
