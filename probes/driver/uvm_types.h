/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * Types of the managed-memory driver: what its probes read of them. Where a member is,
 * and whether there is one, the module's BTF says when they are loaded.
 */
#include "../bpf/gpuobs_core.h"

#include "uvm_probe_abi.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct___owner {
        struct task_struct *owner;
};

struct uvm_va_space_mm_struct {
        struct mm_struct___owner *mm;
};

struct uvm_va_space_struct {
        struct uvm_va_space_mm_struct va_space_mm;
};

struct uvm_va_range_struct {
        struct uvm_va_space_struct *va_space;
};

struct uvm_va_range_managed_struct {
        struct uvm_va_range_struct va_range;
};

struct uvm_va_block_struct {
        struct uvm_va_range_managed_struct *managed_range;
        __u64 start;
        __u64 end;
};

/* Until release 560. */
struct uvm_va_block_struct___range {
        struct uvm_va_range_struct *va_range;
};

typedef struct {
        __u8 uuid[16];
} NvProcessorUuid;

struct uvm_parent_gpu_struct {
        NvProcessorUuid uuid;
};

struct uvm_gpu_struct {
        NvProcessorUuid uuid;
};

struct uvm_fault_service_batch_context_struct {
        __u32 num_cached_faults;
        __u32 num_coalesced_faults;
        __u32 num_duplicate_faults;
        __u32 batch_id;
};

typedef struct {
        unsigned long bitmap[UVM_PROBE_PAGES / 64];
} uvm_page_mask_t;

typedef struct {
        __u32 val;
} uvm_processor_id_t;

typedef struct {
        uvm_page_mask_t prefetch_pages_mask;
        uvm_processor_id_t residency;
} uvm_perf_prefetch_hint_t;

typedef enum { UVM_PMM_GPU_CHUNK_STATE_INVALID } uvm_pmm_gpu_chunk_state_t;

struct uvm_gpu_chunk_struct {
        __u64 address;
        struct {
                uvm_pmm_gpu_chunk_state_t state : 4;
        };
};

struct uvm_gpu_root_chunk_struct {
        struct uvm_gpu_chunk_struct chunk;
};

#pragma clang attribute pop
