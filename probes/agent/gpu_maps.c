/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#include "../device/device_abi.h"
#include "gpu_maps.h"

#define RING_ENTRIES_MAX (1u << 22)
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

/* Host memory, for the GPU, where it is. Else the one phrase or the other. */
static const char *register_at(const struct cuda_api *api, uint64_t address, uint64_t bytes,
                               const char *refused, const char *elsewhere)
{
        void *at = (void *)(uintptr_t)address;
        cuda_address seen = 0;
        int r = api->host_register(at, bytes,
                                   CUDA_HOST_REGISTER_PORTABLE | CUDA_HOST_REGISTER_DEVICEMAP);

        if (r != CUDA_OK && r != CUDA_ALREADY_REGISTERED)
                return refused;
        return api->host_device_pointer(&seen, at, 0) == CUDA_OK && seen == address ? NULL
                                                                                    : elsewhere;
}

const char *ring_register(const struct cuda_api *api, const struct agent_welcome *w)
{
        return register_at(api, w->ring_address, ring_bytes(w),
                           "the driver does not register the shared map",
                           "the GPU sees the shared map at another address");
}

void ring_unregister(const struct cuda_api *api, const struct agent_welcome *w)
{
        host_map_remove(api, w->ring_address, ring_bytes(w));
}

const char *host_map_register(const struct cuda_api *api, uint64_t address, uint64_t bytes)
{
        return register_at(api, address, bytes, "the driver does not register a host map",
                           "the GPU sees a host map at another address");
}

const char *host_map_place(const struct cuda_api *api, int fd, uint64_t bytes,
                           uint64_t *ret_address)
{
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        const char *refusal;

        if (at == MAP_FAILED)
                return "a host map cannot be mapped";
        madvise(at, bytes, MADV_DONTFORK);
        refusal = host_map_register(api, (uintptr_t)at, bytes);
        if (refusal) {
                if (api->host_unregister)
                        api->host_unregister(at);
                munmap(at, bytes);
                return refusal;
        }
        *ret_address = (uintptr_t)at;
        return NULL;
}

void host_map_remove(const struct cuda_api *api, uint64_t address, uint64_t bytes)
{
        void *at = (void *)(uintptr_t)address;

        /* What the driver still holds must stay: the GPU must not lose what it may write to. */
        if (api->host_unregister && api->host_unregister(at) == CUDA_OK)
                munmap(at, bytes);
}

const char *gpu_place_check(const struct gpu_place *place)
{
        const struct cuda_api *api = place->api;
        int count = place->device_count;

        if (count == 1)
                return NULL;
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

enum transfer {
        TRANSFER_ZERO,
        TRANSFER_READ,
        TRANSFER_WRITE,
};

/* On its own stream: the application's may be waiting for the host. */
static int transfer(const struct cuda_api *api, enum transfer what, void *host, cuda_address device,
                    size_t size)
{
        cuda_handle stream = NULL;
        int r;

        if (what != TRANSFER_ZERO && (!api->copy_from_device_async || !api->copy_to_device_async))
                return CUDA_NOT_SUPPORTED;
        r = api->stream_create(&stream, CUDA_STREAM_NON_BLOCKING);
        if (r != CUDA_OK)
                return r;
        switch (what) {
        case TRANSFER_ZERO:
                r = api->memset_d8_async(device, 0, size, stream);
                break;
        case TRANSFER_READ:
                r = api->copy_from_device_async(host, device, size, stream);
                break;
        case TRANSFER_WRITE:
                r = api->copy_to_device_async(device, host, size, stream);
                break;
        }
        if (r == CUDA_OK)
                r = api->stream_synchronize(stream);
        api->stream_destroy(stream);
        return r;
}

int gpu_read(const struct cuda_api *api, void *to, cuda_address from, size_t size)
{
        return transfer(api, TRANSFER_READ, to, from, size);
}

int gpu_write(const struct cuda_api *api, cuda_address to, const void *from, size_t size)
{
        return transfer(api, TRANSFER_WRITE, (void *)(uintptr_t)from, to, size);
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

static struct cuda_allocation virtual_memory(const struct gpu_place *place)
{
        return (struct cuda_allocation){.type = 1, .location = {.type = 1, .id = place->device}};
}

/* What memory of so many bytes takes: virtual memory comes in units, of 2 MiB. */
static int round_up(const struct gpu_place *place, size_t *size)
{
        struct cuda_allocation what = virtual_memory(place);
        size_t granularity = 0;
        int r = place->api->memory_granularity(&granularity, &what, 0);

        if (r != CUDA_OK || !granularity)
                return r != CUDA_OK ? r : CUDA_NOT_SUPPORTED;
        *size = (*size + granularity - 1) / granularity * granularity;
        return CUDA_OK;
}

/* Memory every device of the process can reach, in no context's possession. */
static int allocate_virtual(const struct gpu_place *place, size_t size, cuda_address *ret_address)
{
        struct cuda_allocation what = virtual_memory(place);
        const struct cuda_api *api = place->api;
        unsigned long long memory = 0;
        int r;

        r = api->memory_create(&memory, size, &what, 0);
        if (r != CUDA_OK)
                return r;
        r = map_and_allow(api, memory, size, place->device_count, ret_address);
        /* The mapping keeps the memory. */
        api->memory_release(memory);
        return r;
}

static const char over_budget[] = "the programs ask for more GPU memory than a process may have "
                                  "for maps (agent_map_bytes)";

static const char *allocate(const struct gpu_place *place, uint64_t budget, struct gpu_maps *m)
{
        const struct cuda_api *api = place->api;
        int r;

        m->is_virtual = cuda_has_virtual_memory(api, place->device);
        if (m->is_virtual && round_up(place, &m->size) != CUDA_OK)
                return "the driver does not say in what units it gives memory";
        if (m->size > budget)
                return over_budget;
        if (m->is_virtual)
                r = allocate_virtual(place, m->size, &m->base);
        else if (place->device_count == 1 && api->memory_alloc && api->memory_free)
                r = api->memory_alloc(&m->base, m->size);
        else
                return "several GPUs, and no virtual memory functions";
        if (r != CUDA_OK)
                return "no GPU memory for the maps";
        r = transfer(api, TRANSFER_ZERO, NULL, m->base, m->size);
        return r == CUDA_OK ? NULL : "the GPU memory of the maps cannot be cleared";
}

void gpu_maps_free(const struct gpu_place *place, struct gpu_maps *m)
{
        const struct cuda_api *api = place->api;

        if (m->base && m->is_virtual) {
                api->memory_unmap(m->base, m->size);
                api->address_free(m->base, m->size);
        } else if (m->base) {
                api->memory_free(m->base);
        }
        *m = (struct gpu_maps){0};
}

static const char *write_initial(const struct gpu_place *place,
                                 const struct agent_map maps[AGENT_MAP_MAX], const void *blob,
                                 const struct gpu_maps *m)
{
        for (int i = 0; i < AGENT_MAP_MAX; i++) {
                const void *from = (const char *)blob + maps[i].initial_offset;

                if (m->address[i] && !m->host[i] && maps[i].initial_bytes &&
                    gpu_write(place->api, m->address[i], from, maps[i].initial_bytes) != CUDA_OK)
                        return "variables cannot be given what they begin with";
        }
        return NULL;
}

/* All device maps share one allocation: the granularity is 2 MiB. */
static const char *place_device_maps(const struct gpu_place *place,
                                     const struct agent_map maps[AGENT_MAP_MAX], const void *blob,
                                     uint64_t budget, struct gpu_maps *m)
{
        uint64_t offset[AGENT_MAP_MAX] = {0}, total = 0;
        const char *refusal;

        for (int i = 0; i < AGENT_MAP_MAX; i++) {
                if (maps[i].placement != GPUOBS_PLACE_DEVICE)
                        continue;
                if (!maps[i].bytes || total > budget || maps[i].bytes > budget - total)
                        return over_budget;
                offset[i] = total;
                total += (maps[i].bytes + 255) & ~255ull;
        }
        if (!total)
                return NULL;
        m->size = total;
        refusal = allocate(place, budget, m);
        if (refusal)
                return refusal;
        for (int i = 0; i < AGENT_MAP_MAX; i++)
                if (maps[i].placement == GPUOBS_PLACE_DEVICE)
                        m->address[i] = m->base + offset[i];
        return write_initial(place, maps, blob, m);
}

const char *gpu_maps_place(const struct gpu_place *place,
                           const struct agent_map maps[AGENT_MAP_MAX], const void *blob,
                           const uint64_t host[AGENT_MAP_MAX], uint64_t budget,
                           struct gpu_maps *ret_maps)
{
        const char *refusal = NULL;
        struct gpu_maps m = {0};

        for (int i = 0; i < AGENT_MAP_MAX && !refusal; i++) {
                if (maps[i].placement > GPUOBS_PLACE_DEVICE)
                        refusal = "a map of a placement this agent does not know";
                m.bytes[i] = maps[i].bytes;
                m.host[i] = maps[i].placement == GPUOBS_PLACE_HOST;
                if (!m.host[i])
                        continue;
                if (!host[i])
                        refusal = "a host map that was not sent along";
                m.address[i] = host[i];
        }
        if (!refusal)
                refusal = place_device_maps(place, maps, blob, budget, &m);
        if (refusal)
                gpu_maps_free(place, &m);
        else
                *ret_maps = m;
        return refusal;
}
