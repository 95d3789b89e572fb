/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory. Everything a kernel may touch is in one sorted registry. Device and
 * host addresses are the same; "device" memory is ordinary memory of the
 * process, counted against the size of the simulated card.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

#define ALLOC_ALIGN 512
#define GRANULARITY (2ULL << 20)

uint64_t sim_memory_generation = 1;

static struct {
        pthread_rwlock_t lock;
        struct sim_memory *entries; /* sorted, not overlapping */
        size_t count;
        size_t capacity;
        _Atomic uint64_t device_bytes;
} registry = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* The first entry that ends after an address. */
static size_t position(uint64_t address)
{
        size_t low = 0, high = registry.count;

        while (low < high) {
                size_t middle = (low + high) / 2;

                if (registry.entries[middle].end > address)
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

bool sim_memory_find(uint64_t address, uint64_t bytes, struct sim_memory *ret_memory)
{
        bool found = false;
        size_t at;

        pthread_rwlock_rdlock(&registry.lock);
        at = position(address);
        if (at < registry.count) {
                const struct sim_memory *m = &registry.entries[at];

                found = address >= m->start && bytes <= m->end - address;
                if (found)
                        *ret_memory = *m;
        }
        pthread_rwlock_unlock(&registry.lock);
        return found;
}

static CUresult insert(const struct sim_memory *memory)
{
        size_t at = position(memory->start);

        if (at < registry.count && registry.entries[at].start < memory->end)
                return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        if (registry.count == registry.capacity) {
                size_t capacity = registry.capacity ? 2 * registry.capacity : 64;
                void *more = realloc(registry.entries, capacity * sizeof(*registry.entries));

                if (!more)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                registry.entries = more;
                registry.capacity = capacity;
        }
        memmove(&registry.entries[at + 1], &registry.entries[at],
                (registry.count - at) * sizeof(*registry.entries));
        registry.entries[at] = *memory;
        registry.count++;
        return CUDA_SUCCESS;
}

CUresult sim_memory_add(const struct sim_memory *memory)
{
        CUresult r;

        if (memory->end <= memory->start)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_rwlock_wrlock(&registry.lock);
        r = insert(memory);
        pthread_rwlock_unlock(&registry.lock);
        return r;
}

bool sim_memory_remove(uint64_t start, struct sim_memory *ret_memory)
{
        bool found = false;
        size_t at;

        pthread_rwlock_wrlock(&registry.lock);
        at = position(start);
        if (at < registry.count && registry.entries[at].start == start) {
                *ret_memory = registry.entries[at];
                registry.count--;
                memmove(&registry.entries[at], &registry.entries[at + 1],
                        (registry.count - at) * sizeof(*registry.entries));
                __atomic_fetch_add(&sim_memory_generation, 1, __ATOMIC_ACQ_REL);
                found = true;
        }
        pthread_rwlock_unlock(&registry.lock);
        return found;
}

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
        return (bytes + to - 1) / to * to;
}

/* Count device memory; false when the card is full. */
static bool take_device_bytes(uint64_t bytes)
{
        uint64_t used = atomic_load(&registry.device_bytes);

        do {
                if (bytes > sim_driver.config.memory_bytes - used)
                        return false;
        } while (!atomic_compare_exchange_weak(&registry.device_bytes, &used, used + bytes));
        return true;
}

/* The registered range has the exact size that was asked for, so that overruns are seen. */
static CUresult allocate(struct sim_context *context, uint64_t bytes, enum sim_memory_kind kind,
                         unsigned flags, uint64_t *ret_address)
{
        bool on_device = kind != SIM_MEMORY_HOST;
        uint64_t room = round_up(bytes, ALLOC_ALIGN);
        struct sim_memory memory = {
                .kind = kind, .flags = flags, .device = context->device, .context = context};
        void *p;
        CUresult r;

        if (bytes == 0 || room < bytes)
                return CUDA_ERROR_INVALID_VALUE;
        if (on_device && sim_choice_hit(&sim_driver.config.fail_alloc))
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (on_device && !take_device_bytes(room))
                return CUDA_ERROR_OUT_OF_MEMORY;
        p = aligned_alloc(ALLOC_ALIGN, room);
        if (!p) {
                atomic_fetch_sub(&registry.device_bytes, on_device ? room : 0);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memory.start = (uint64_t)p;
        memory.end = memory.start + bytes;
        r = sim_memory_add(&memory);
        if (r) {
                atomic_fetch_sub(&registry.device_bytes, on_device ? room : 0);
                free(p);
                return r;
        }
        *ret_address = memory.start;
        return CUDA_SUCCESS;
}

static bool is_allocation(const struct sim_memory *memory, bool host)
{
        if (host)
                return memory->kind == SIM_MEMORY_HOST;
        return memory->kind == SIM_MEMORY_DEVICE || memory->kind == SIM_MEMORY_MANAGED;
}

static void release(uint64_t start)
{
        struct sim_memory memory;

        if (!sim_memory_remove(start, &memory))
                return;
        if (memory.kind != SIM_MEMORY_HOST)
                atomic_fetch_sub(&registry.device_bytes,
                                 round_up(memory.end - memory.start, ALLOC_ALIGN));
        free((void *)memory.start);
}

void sim_memory_release(uint64_t address)
{
        release(address);
}

/* Freeing waits for the work that may use the memory, as the driver does. */
static CUresult free_allocation(uint64_t address, bool host)
{
        struct sim_memory memory;
        CUresult r = sim_check_ready();

        if (!r)
                r = sim_capture_check_unsafe();
        if (r)
                return r;
        if (address == 0)
                return CUDA_SUCCESS;
        if (!sim_memory_find(address, 1, &memory) || memory.start != address ||
            !is_allocation(&memory, host))
                return CUDA_ERROR_INVALID_VALUE;
        r = sim_context_drain(memory.context);
        release(address);
        return r;
}

static CUresult allocate_current(uint64_t bytes, enum sim_memory_kind kind, unsigned flags,
                                 uint64_t *ret_address)
{
        struct sim_context *context;
        CUresult r = sim_context_current(&context);

        if (!r)
                r = sim_capture_check_unsafe();
        return r ? r : allocate(context, bytes, kind, flags, ret_address);
}

/* ---- API ---- */

SIM_API cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        if (r)
                return r;
        if (!free_bytes || !total_bytes)
                return CUDA_ERROR_INVALID_VALUE;
        *total_bytes = sim_driver.config.memory_bytes;
        *free_bytes = *total_bytes - atomic_load(&registry.device_bytes);
        return CUDA_SUCCESS;
}

SIM_API cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
        uint64_t start;
        CUresult r;

        SIM_ENTER();
        if (!address)
                return CUDA_ERROR_INVALID_VALUE;
        r = allocate_current(bytes, SIM_MEMORY_DEVICE, 0, &start);
        if (!r)
                *address = start;
        return r;
}

SIM_API cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                           unsigned element)
{
        uint64_t start, row = round_up(width, ALLOC_ALIGN);
        CUresult r;

        SIM_ENTER();
        if (!address || !pitch || height > UINT32_MAX || row > UINT32_MAX)
                return CUDA_ERROR_INVALID_VALUE;
        r = allocate_current(row * height, SIM_MEMORY_DEVICE, 0, &start);
        if (!r) {
                *address = start;
                *pitch = row;
        }
        return r;
}

SIM_API cuMemFree_v2(CUdeviceptr address)
{
        SIM_ENTER();
        return free_allocation(address, false);
}

SIM_API cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
        uint64_t start;
        CUresult r;

        SIM_ENTER();
        if (!address)
                return CUDA_ERROR_INVALID_VALUE;
        r = allocate_current(bytes, SIM_MEMORY_MANAGED, 0, &start);
        if (!r)
                *address = start;
        return r;
}

static CUresult allocate_host(void **pointer, size_t bytes, unsigned flags)
{
        uint64_t start;
        CUresult r;

        if (!pointer)
                return CUDA_ERROR_INVALID_VALUE;
        r = allocate_current(bytes, SIM_MEMORY_HOST, flags, &start);
        if (!r)
                *pointer = (void *)start;
        return r;
}

SIM_API cuMemAllocHost_v2(void **pointer, size_t bytes)
{
        SIM_ENTER();
        return allocate_host(pointer, bytes, 0);
}

SIM_API cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
        SIM_ENTER();
        return allocate_host(pointer, bytes, flags);
}

SIM_API cuMemFreeHost(void *pointer)
{
        SIM_ENTER();
        return free_allocation((uint64_t)pointer, true);
}

/* Registering memory that is not there would make kernels crash the process. */
static bool is_mapped(uint64_t start, uint64_t bytes)
{
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = start & ~(page - 1);
        unsigned char present;

        for (uint64_t at = from; at < start + bytes; at += page) {
                if (mincore((void *)at, page, &present) != 0)
                        return false;
        }
        return true;
}

SIM_API cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
        struct sim_memory memory = {.kind = SIM_MEMORY_REGISTERED, .flags = flags};
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        if (r)
                return r;
        memory.start = (uint64_t)pointer;
        memory.end = memory.start + bytes;
        memory.device = context->device;
        memory.context = context;
        if (!pointer || bytes == 0 || memory.end < memory.start || !is_mapped(memory.start, bytes))
                return CUDA_ERROR_INVALID_VALUE;
        return sim_memory_add(&memory);
}

SIM_API cuMemHostUnregister(void *pointer)
{
        struct sim_memory memory;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!sim_memory_find((uint64_t)pointer, 1, &memory) || memory.start != (uint64_t)pointer ||
            memory.kind != SIM_MEMORY_REGISTERED)
                return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
        r = sim_context_drain(memory.context);
        sim_memory_remove(memory.start, &memory);
        return r;
}

static bool is_host(const struct sim_memory *memory)
{
        return memory->kind == SIM_MEMORY_HOST || memory->kind == SIM_MEMORY_REGISTERED;
}

SIM_API cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned flags)
{
        struct sim_memory memory;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!address || flags || !sim_memory_find((uint64_t)pointer, 1, &memory) ||
            !is_host(&memory))
                return CUDA_ERROR_INVALID_VALUE;
        *address = (CUdeviceptr)(uintptr_t)pointer;
        return CUDA_SUCCESS;
}

SIM_API cuMemHostGetFlags(unsigned *flags, void *pointer)
{
        struct sim_memory memory;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!flags || !sim_memory_find((uint64_t)pointer, 1, &memory) || !is_host(&memory))
                return CUDA_ERROR_INVALID_VALUE;
        *flags = memory.flags;
        return CUDA_SUCCESS;
}

SIM_API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
        struct sim_memory memory;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!sim_memory_find(address, 1, &memory))
                return CUDA_ERROR_NOT_FOUND;
        if (base)
                *base = memory.start;
        if (bytes)
                *bytes = memory.end - memory.start;
        return CUDA_SUCCESS;
}

SIM_API cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address)
{
        struct sim_memory m;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!data || !sim_memory_find(address, 1, &m))
                return CUDA_ERROR_INVALID_VALUE;
        switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
                *(CUcontext *)data = m.context;
                break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                *(int *)data = is_host(&m) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
                break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
                *(CUdeviceptr *)data = address;
                break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
                *(int *)data = m.kind == SIM_MEMORY_MANAGED;
                break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int *)data = m.device;
                break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                *(CUdeviceptr *)data = m.start;
                break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                *(size_t *)data = m.end - m.start;
                break;
        default:
                return CUDA_ERROR_NOT_SUPPORTED;
        }
        return CUDA_SUCCESS;
}

/* ---- in stream order ---- */

static CUresult allocate_async(CUdeviceptr *address, size_t bytes, CUstream handle, bool per_thread)
{
        struct sim_context *context;
        struct sim_stream *stream;
        uint64_t start;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (!address)
                return CUDA_ERROR_INVALID_VALUE;
        if (stream->capture)
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        r = allocate(context, bytes, SIM_MEMORY_DEVICE, 0, &start);
        if (!r)
                *address = start;
        return r;
}

SIM_API cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return allocate_async(address, bytes, stream, false);
}

SIM_API cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
        SIM_ENTER();
        return allocate_async(address, bytes, stream, true);
}

static CUresult free_async(CUdeviceptr address, CUstream handle, bool per_thread)
{
        struct sim_command command = {.kind = SIM_COMMAND_FREE, .free_address = address};
        struct sim_context *context;
        struct sim_stream *stream;
        struct sim_memory memory;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (stream->capture)
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (!sim_memory_find(address, 1, &memory) || memory.start != address ||
            memory.kind != SIM_MEMORY_DEVICE)
                return CUDA_ERROR_INVALID_VALUE;
        return sim_stream_submit(stream, &command, NULL);
}

SIM_API cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
        SIM_ENTER();
        return free_async(address, stream, false);
}

SIM_API cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
        SIM_ENTER();
        return free_async(address, stream, true);
}

/* ---- managed memory: advice and prefetch are checked, and change nothing ---- */

static CUresult check_managed(CUdeviceptr address, size_t bytes)
{
        struct sim_memory memory;
        CUresult r = sim_check_ready();

        if (r)
                return r;
        if (!sim_memory_find(address, bytes, &memory) || memory.kind != SIM_MEMORY_MANAGED)
                return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
}

SIM_API cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device)
{
        SIM_ENTER();
        return check_managed(address, bytes);
}

SIM_API cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location)
{
        SIM_ENTER();
        return check_managed(address, bytes);
}

SIM_API cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
        SIM_ENTER();
        return check_managed(address, bytes);
}

SIM_API cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location,
                              unsigned flags, CUstream stream)
{
        SIM_ENTER();
        return check_managed(address, bytes);
}

/* ---- virtual memory management: a handle is an anonymous file ---- */

struct allocation {
        uint32_t magic; /* ALLOCATION */
        int fd;
        uint64_t bytes;
        CUdevice device;
        unsigned holders; /* its handle and its mappings */
        bool released;    /* the handle is gone */
};

struct mapping {
        struct mapping *next;
        uint64_t address;
        struct allocation *allocation;
};

static struct {
        pthread_mutex_t lock; /* holders of allocations, too */
        struct mapping *first;
} mappings = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock. The memory is there until nobody holds it. */
static void let_go(struct allocation *a)
{
        if (--a->holders)
                return;
        close(a->fd);
        atomic_fetch_sub(&registry.device_bytes, a->bytes);
        SIM_FREE(a, ALLOCATION);
}

static CUresult hold(struct allocation *a, uint64_t address)
{
        struct mapping *m = malloc(sizeof(*m));

        if (!m)
                return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_lock(&mappings.lock);
        *m = (struct mapping){.next = mappings.first, .address = address, .allocation = a};
        mappings.first = m;
        a->holders++;
        pthread_mutex_unlock(&mappings.lock);
        return CUDA_SUCCESS;
}

static void unhold(uint64_t address, uint64_t bytes)
{
        struct mapping **at = &mappings.first;

        pthread_mutex_lock(&mappings.lock);
        while (*at) {
                struct mapping *m = *at;

                if (m->address < address || m->address >= address + bytes) {
                        at = &m->next;
                        continue;
                }
                *at = m->next;
                let_go(m->allocation);
                free(m);
        }
        pthread_mutex_unlock(&mappings.lock);
}

SIM_API cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                      int option)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (!r && (!bytes || !properties))
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *bytes = GRANULARITY;
        return r;
}

SIM_API cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                            unsigned long long flags)
{
        uint64_t room = bytes + GRANULARITY, start;
        CUresult r;
        void *p;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!address || bytes == 0 || bytes % GRANULARITY || room < bytes || flags ||
            alignment > GRANULARITY)
                return CUDA_ERROR_INVALID_VALUE;
        /* The hint is not followed, like the real driver in the range we care about. */
        p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
                return CUDA_ERROR_OUT_OF_MEMORY;
        start = round_up((uint64_t)p, GRANULARITY);
        if (start > (uint64_t)p)
                munmap(p, start - (uint64_t)p);
        munmap((void *)(start + bytes), (uint64_t)p + room - start - bytes);
        *address = start;
        return CUDA_SUCCESS;
}

SIM_API cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (bytes == 0 || bytes % GRANULARITY || address % GRANULARITY)
                return CUDA_ERROR_INVALID_VALUE;
        return munmap((void *)(uintptr_t)address, bytes) == 0 ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_VALUE;
}

SIM_API cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                    const CUmemAllocationProp *properties, unsigned long long flags)
{
        struct allocation *a;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!handle || !properties || bytes == 0 || bytes % GRANULARITY ||
            properties->location.type != 1)
                return CUDA_ERROR_INVALID_VALUE;
        r = sim_check_device(properties->location.id);
        if (r)
                return r;
        if (sim_choice_hit(&sim_driver.config.fail_alloc) || !take_device_bytes(bytes))
                return CUDA_ERROR_OUT_OF_MEMORY;
        a = SIM_NEW(struct allocation, ALLOCATION);
        if (a)
                a->fd = memfd_create("simgpu", MFD_CLOEXEC);
        if (!a || a->fd < 0 || ftruncate(a->fd, (off_t)bytes) < 0) {
                if (a && a->fd >= 0)
                        close(a->fd);
                SIM_FREE(a, ALLOCATION);
                atomic_fetch_sub(&registry.device_bytes, bytes);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        a->bytes = bytes;
        a->device = properties->location.id;
        a->holders = 1;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)a;
        return CUDA_SUCCESS;
}

/* Mappings keep the memory alive; only the name goes. */
SIM_API cuMemRelease(CUmemGenericAllocationHandle handle)
{
        struct allocation *a = (struct allocation *)(uintptr_t)handle;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!SIM_IS(a, ALLOCATION) || a->released)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&mappings.lock);
        a->released = true;
        let_go(a);
        pthread_mutex_unlock(&mappings.lock);
        return CUDA_SUCCESS;
}

SIM_API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
        struct allocation *a = (struct allocation *)(uintptr_t)handle;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!SIM_IS(a, ALLOCATION) || a->released || offset || bytes != a->bytes ||
            address % GRANULARITY)
                return CUDA_ERROR_INVALID_VALUE;
        if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, a->fd, 0) ==
            MAP_FAILED)
                return CUDA_ERROR_INVALID_VALUE;
        return hold(a, address);
}

SIM_API cuMemUnmap(CUdeviceptr address, size_t bytes)
{
        struct sim_memory memory;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (bytes == 0 || bytes % GRANULARITY || address % GRANULARITY)
                return CUDA_ERROR_INVALID_VALUE;
        if (sim_memory_find(address, bytes, &memory) && memory.kind == SIM_MEMORY_MAPPED) {
                sim_drain_all();
                sim_memory_remove(address, &memory);
        }
        if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
                return CUDA_ERROR_INVALID_VALUE;
        unhold(address, bytes);
        return CUDA_SUCCESS;
}

SIM_API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                       size_t count)
{
        struct sim_memory memory = {.kind = SIM_MEMORY_MAPPED};
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!access || count == 0 || bytes == 0 || bytes % GRANULARITY || address % GRANULARITY)
                return CUDA_ERROR_INVALID_VALUE;
        if (mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) < 0)
                return CUDA_ERROR_INVALID_VALUE;
        memory.start = address;
        memory.end = address + bytes;
        memory.device = access->location.id;
        if (sim_memory_find(address, bytes, &memory))
                return CUDA_SUCCESS;
        return sim_memory_add(&memory);
}
