/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/mman.h>

#include "../device/device_abi.h"
#include "gpu_maps.h"

#define RING_ENTRIES_MAX (1u << 22)
#define DEVICE_BYTES_MAX (64ull << 20) /* of all device maps of a process */
#define DEVICES_MAX      64

static size_t ring_bytes(const struct agent_welcome *w)
{
        return (size_t)w->ring_entries * sizeof(struct device_record);
}

int ring_map(int map_fd, const struct agent_welcome *w)
{
        void *want = (void *)(uintptr_t)w->ring_address, *got;

        if (!w->ring_entries || w->ring_entries > RING_ENTRIES_MAX || !want ||
            w->ring_address % 4096 || ring_bytes(w) % 4096)
                return -EINVAL;
        got = mmap(want, ring_bytes(w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                   map_fd, 0);
        if (got == MAP_FAILED)
                return -errno;
        if (got != want) {
                munmap(got, ring_bytes(w)); /* a kernel that takes the flag for a hint */
                return -EEXIST;
        }
        /* A forked child has no use for it, and may want to map its own there. */
        madvise(got, ring_bytes(w), MADV_DONTFORK);
        return 0;
}

const char *ring_register(const struct cuda_api *api, const struct agent_welcome *w)
{
        void *ring = (void *)(uintptr_t)w->ring_address;
        cuda_address seen = 0;
        int r;

        r = api->host_register(ring, ring_bytes(w),
                               CUDA_HOST_REGISTER_PORTABLE | CUDA_HOST_REGISTER_DEVICEMAP);
        if (r != CUDA_OK && r != CUDA_ALREADY_REGISTERED)
                return "the driver does not register the shared map";
        if (api->host_device_pointer(&seen, ring, 0) != CUDA_OK || seen != w->ring_address)
                return "the GPU sees the shared map at another address";
        return NULL;
}

static const char *check_peers(const struct cuda_api *api, int count)
{
        if (count > DEVICES_MAX)
                return "too many GPUs";
        for (int a = 0; a < count; a++)
                for (int b = 0; b < count; b++) {
                        int can = 0;

                        if (a != b && (!api->device_can_access_peer ||
                                       api->device_can_access_peer(&can, a, b) != CUDA_OK || !can))
                                return "several GPUs without peer access";
                }
        return NULL;
}

static int zero(const struct cuda_api *api, cuda_address address, size_t size)
{
        cuda_handle stream = NULL;
        int r;

        /* Its own stream: the application's may be waiting for the host. */
        r = api->stream_create(&stream, CUDA_STREAM_NON_BLOCKING);
        if (r != CUDA_OK)
                return r;
        r = api->memset_d8_async(address, 0, size, stream);
        if (r == CUDA_OK)
                r = api->stream_synchronize(stream);
        api->stream_destroy(stream);
        return r;
}

static int map_and_allow(const struct cuda_api *api, unsigned long long memory, size_t size,
                         int device_count, cuda_address *ret_address)
{
        struct cuda_access access[DEVICES_MAX];
        cuda_address address = 0;
        int r;

        for (int d = 0; d < device_count; d++)
                access[d] = (struct cuda_access){.location = {.type = 1, .id = d}, .flags = 3};
        r = api->address_reserve(&address, size, 0, 0, 0);
        if (r != CUDA_OK)
                return r;
        r = api->memory_map(address, size, 0, memory, 0);
        if (r == CUDA_OK) {
                r = api->memory_set_access(address, size, access, (size_t)device_count);
                if (r == CUDA_OK) {
                        *ret_address = address;
                        return CUDA_OK;
                }
                api->memory_unmap(address, size);
        }
        api->address_free(address, size);
        return r;
}

/* Memory every device of the process can reach, in no context's possession. */
static int allocate_virtual(const struct cuda_api *api, int device, int device_count, size_t size,
                            cuda_address *ret_address)
{
        struct cuda_allocation what = {.type = 1, .location = {.type = 1, .id = device}};
        unsigned long long memory = 0;
        size_t granularity = 0;
        int r;

        r = api->memory_granularity(&granularity, &what, 0);
        if (r != CUDA_OK || !granularity)
                return r != CUDA_OK ? r : CUDA_NOT_SUPPORTED;
        size = (size + granularity - 1) / granularity * granularity;
        r = api->memory_create(&memory, size, &what, 0);
        if (r != CUDA_OK)
                return r;
        r = map_and_allow(api, memory, size, device_count, ret_address);
        /* The mapping keeps the memory. */
        api->memory_release(memory);
        return r;
}

static const char *allocate(const struct cuda_api *api, int device, int device_count, size_t size,
                            cuda_address *ret_address)
{
        int r;

        if (cuda_has_virtual_memory(api, device))
                r = allocate_virtual(api, device, device_count, size, ret_address);
        else if (device_count == 1 && api->memory_alloc)
                r = api->memory_alloc(ret_address, size);
        else
                return "several GPUs, and no virtual memory functions";
        if (r == CUDA_OK)
                r = zero(api, *ret_address, size);
        return r == CUDA_OK ? NULL : "no GPU memory for the maps";
}

/* All device maps share one allocation: the granularity is 2 MiB. */
static const char *place_device_maps(const struct cuda_api *api, int device, int device_count,
                                     const struct agent_map maps[AGENT_MAP_MAX], struct gpu_maps *m)
{
        uint64_t offset[AGENT_MAP_MAX] = {0}, total = 0;
        cuda_address base = 0;
        const char *refusal;

        for (int i = 0; i < AGENT_MAP_MAX; i++) {
                if (maps[i].placement != GPUOBS_PLACE_DEVICE)
                        continue;
                if (!maps[i].bytes || maps[i].bytes > DEVICE_BYTES_MAX - total)
                        return "the programs ask for too much GPU memory";
                offset[i] = total;
                total += (maps[i].bytes + 255) & ~255ull;
        }
        if (!total)
                return NULL;
        refusal = allocate(api, device, device_count, total, &base);
        if (refusal)
                return refusal;
        for (int i = 0; i < AGENT_MAP_MAX; i++)
                if (maps[i].placement == GPUOBS_PLACE_DEVICE)
                        m->address[i] = base + offset[i];
        return NULL;
}

const char *gpu_maps_place(const struct cuda_api *api, int device, int device_count,
                           const struct agent_welcome *welcome,
                           const struct agent_map maps[AGENT_MAP_MAX], struct gpu_maps *ret_maps)
{
        const char *refusal = device_count > 1 ? check_peers(api, device_count) : NULL;
        struct gpu_maps m = {0};

        for (int i = 0; i < AGENT_MAP_MAX && !refusal; i++) {
                if (maps[i].placement > GPUOBS_PLACE_DEVICE)
                        refusal = "a map of a placement this agent does not know";
                if (maps[i].placement != GPUOBS_PLACE_HOST)
                        continue;
                if (maps[i].bytes > ring_bytes(welcome))
                        refusal = "a host map that is larger than the shared one";
                m.address[i] = welcome->ring_address;
        }
        if (!refusal)
                refusal = ring_register(api, welcome);
        if (!refusal)
                refusal = place_device_maps(api, device, device_count, maps, &m);
        if (!refusal)
                *ret_maps = m;
        return refusal;
}
