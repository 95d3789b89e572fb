/* SPDX-License-Identifier: Apache-2.0 */

/* The program blob the agent gets (agent_abi.h), in a memfd nobody can change any more. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/agent_abi.h"
#include "device/device_abi.h"
#include "device/program.h"
#include "util/macro.h"

static size_t blob_size(const struct device_object *o)
{
        size_t count = device_object_program_count(o);
        size_t size = sizeof(struct agent_blob) + count * sizeof(struct agent_program);

        for (size_t i = 0; i < count; i++)
                size += device_object_program(o, i)->ptx_bytes;
        for (size_t i = 0; i < device_object_map_count(o); i++)
                if (device_object_map(o, i)->initial)
                        size += device_object_map(o, i)->value_size;
        return size;
}

static void fill_head(const struct device_object *o, struct agent_blob *head)
{
        head->magic = AGENT_BLOB_MAGIC;
        head->count = (uint32_t)device_object_program_count(o);
        for (size_t i = 0; i < device_object_map_count(o); i++) {
                const struct device_map_info *map = device_object_map(o, i);

                head->maps[i].placement = map->placement;
                head->maps[i].bytes = map->placement == GPUOBS_PLACE_HOST
                                              ? device_host_map_bytes(map)
                                              : map->bytes;
        }
}

/* What variables begin with, from `at` on. */
static void fill_initial(const struct device_object *o, uint8_t *data, uint64_t at)
{
        struct agent_blob *head = (struct agent_blob *)data;

        for (size_t i = 0; i < device_object_map_count(o); i++) {
                const struct device_map_info *map = device_object_map(o, i);

                if (!map->initial)
                        continue;
                head->maps[i].initial_offset = at;
                head->maps[i].initial_bytes = map->value_size;
                memcpy(data + at, map->initial, map->value_size);
                at += map->value_size;
        }
}

static void fill(const struct device_object *o, uint8_t *data)
{
        struct agent_blob *head = (struct agent_blob *)data;
        struct agent_program *programs = (struct agent_program *)(head + 1);
        uint64_t at;

        fill_head(o, head);
        at = sizeof(*head) + head->count * sizeof(*programs);
        for (uint32_t i = 0; i < head->count; i++) {
                const struct device_program_info *info = device_object_program(o, i);

                programs[i].where = info->where;
                programs[i].text_offset = at;
                programs[i].text_bytes = info->ptx_bytes;
                memcpy(programs[i].name, info->name, sizeof(programs[i].name));
                memcpy(data + at, info->ptx, info->ptx_bytes);
                at += info->ptx_bytes;
        }
        fill_initial(o, data, at);
}

static int write_all(int fd, const uint8_t *data, size_t size)
{
        while (size) {
                ssize_t n = write(fd, data, size);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                data += n;
                size -= (size_t)n;
        }
        return 0;
}

int device_object_blob(const struct device_object *o, int *ret_fd, uint64_t *ret_bytes)
{
        size_t size = blob_size(o);
        _cleanup_free_ uint8_t *data = calloc(1, size);
        _cleanup_close_ int fd = -1;
        int error;

        if (!data)
                return -ENOMEM;
        fill(o, data);
        fd = memfd_create("gpuobs-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;
        error = write_all(fd, data, size);
        if (error)
                return error;
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
                return -errno;
        *ret_bytes = size;
        *ret_fd = TAKE_FD(fd);
        return 0;
}
