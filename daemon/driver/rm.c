/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/rm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Escape codes ('F', number) with the sizes of their arguments. */
struct rm_free_argument {
        uint32_t root, parent, object, status;
};
struct rm_control_argument {
        uint32_t client, object, command, flags;
        uint64_t parameters;
        uint32_t size, status;
};
struct rm_alloc_argument {
        uint32_t root, parent, object, class;
        uint64_t parameters, rights;
        uint32_t size, flags, status, pad;
};
struct rm_map_argument {
        uint32_t client, device, memory, pad;
        uint64_t offset, length, linear_address;
        uint32_t status, flags;
        int32_t fd;
        uint32_t pad2;
};
_Static_assert(sizeof(struct rm_control_argument) == 32, "NVOS54");
_Static_assert(sizeof(struct rm_alloc_argument) == 48, "NVOS64");
_Static_assert(sizeof(struct rm_map_argument) == 56, "nv_ioctl_nvos33_parameters_with_fd");

#define RM_FREE        _IOWR('F', 0x29, struct rm_free_argument)
#define RM_CONTROL     _IOWR('F', 0x2a, struct rm_control_argument)
#define RM_ALLOC       _IOWR('F', 0x2b, struct rm_alloc_argument)
#define RM_MAP_MEMORY  _IOWR('F', 0x4e, struct rm_map_argument)
#define RM_REGISTER_FD _IOWR('F', 0xc9, int32_t)

#define RM_MAP_READ_ONLY 1 /* NVOS33_FLAGS_ACCESS */

/* NV0080_ALLOC_PARAMETERS */
struct rm_device_parameters {
        uint32_t device_id, share_client, target_client, target_device;
        int32_t flags;
        uint32_t pad;
        uint64_t va_space_size, va_start, va_limit;
        uint32_t va_mode, pad2;
};
_Static_assert(sizeof(struct rm_device_parameters) == 56, "NV0080_ALLOC_PARAMETERS");

/* NV2080_CTRL_CMD_GPU_GET_GID_INFO, binary SHA-1 form: the UUID nvidia-smi shows. */
#define RM_GET_GID_INFO   0x2080014au
#define RM_GID_BINARY     2u
#define RM_GID_LENGTH_MAX 256

struct rm_gid_parameters {
        uint32_t index, flags, length;
        uint8_t data[RM_GID_LENGTH_MAX];
};

/* NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO */
#define RM_GET_HANDLE_INFO 0x0d02u

struct rm_handle_parameters {
        uint32_t object, index;
        uint64_t result;
};
_Static_assert(sizeof(struct rm_handle_parameters) == 16,
               "NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS");

/* NV0080_CTRL_CMD_GPU_FIND_SUBDEVICE_HANDLE */
#define RM_FIND_SUBDEVICE 0x800293u

struct rm_subdevice_parameters {
        uint32_t instance, handle;
};

/* Handles of our own objects: any number that is unique in the client. */
#define RM_HANDLE_FIRST 0xd0000001u

struct rm_client {
        const struct rm_system *system;
        int control_fd;
        int gpu_fd;
        uint32_t handle;
        uint32_t next_handle;
        uint32_t device;
        uint32_t subdevice;
};

static int system_open(const char *path, int flags)
{
        return open(path, flags);
}

static int system_ioctl(int fd, unsigned long request, void *argument)
{
        return ioctl(fd, request, argument);
}

const struct rm_system rm_system_default = {
        .open = system_open,
        .close = close,
        .ioctl = system_ioctl,
        .mmap = mmap,
        .munmap = munmap,
};

int rm_status_to_errno(uint32_t status)
{
        switch (status) {
        case 0x00: /* NV_OK */
                return 0;
        case 0x1a: /* NV_ERR_INSUFFICIENT_RESOURCES */
        case 0x51: /* NV_ERR_NO_MEMORY */
                return -ENOMEM;
        case 0x1b: /* NV_ERR_INSUFFICIENT_PERMISSIONS */
                return -EACCES;
        case 0x1f: /* NV_ERR_INVALID_ARGUMENT */
        case 0x3b: /* NV_ERR_INVALID_PARAMETER */
                return -EINVAL;
        case 0x22: /* NV_ERR_INVALID_CLASS */
        case 0x56: /* NV_ERR_NOT_SUPPORTED */
                return -ENOTSUP;
        case 0x0f: /* NV_ERR_GPU_IS_LOST */
        case 0x26: /* NV_ERR_INVALID_DEVICE */
                return -ENODEV;
        case 0x03: /* NV_ERR_BUSY_RETRY */
        case 0x17: /* NV_ERR_IN_USE */
        case 0x63: /* NV_ERR_STATE_IN_USE */
                return -EBUSY;
        case 0x23: /* NV_ERR_INVALID_CLIENT */
        case 0x31: /* NV_ERR_INVALID_OBJECT */
        case 0x33: /* NV_ERR_INVALID_OBJECT_HANDLE */
        case 0x57: /* NV_ERR_OBJECT_NOT_FOUND */
                return -ENOENT;
        case 0x65: /* NV_ERR_TIMEOUT */
                return -ETIMEDOUT;
        default:
                return -EIO;
        }
}

int rm_control_on(const struct rm_system *system, int fd, uint32_t client, uint32_t object,
                  uint32_t command, void *parameters, uint32_t size)
{
        struct rm_control_argument a = {
                .client = client,
                .object = object,
                .command = command,
                .parameters = (uint64_t)(uintptr_t)parameters,
                .size = size,
        };

        if (system->ioctl(fd, RM_CONTROL, &a) < 0)
                return -errno;
        return rm_status_to_errno(a.status);
}

int rm_control(struct rm_client *c, uint32_t object, uint32_t command, void *parameters,
               uint32_t size)
{
        return rm_control_on(c->system, c->control_fd, c->handle, object, command, parameters,
                             size);
}

int rm_handle_info_on(const struct rm_system *system, int fd, uint32_t client, uint32_t object,
                      enum rm_handle_info info, uint32_t *ret_value)
{
        struct rm_handle_parameters p = {.object = object, .index = info};
        int r = rm_control_on(system, fd, client, client, RM_GET_HANDLE_INFO, &p, sizeof(p));

        if (r == 0)
                *ret_value = (uint32_t)p.result;
        return r;
}

/* object: the handle wanted, 0 to let RM choose (clients). */
static int alloc_as(struct rm_client *c, uint32_t root, uint32_t parent, uint32_t class,
                    void *parameters, uint32_t size, uint32_t *object)
{
        struct rm_alloc_argument a = {
                .root = root,
                .parent = parent,
                .object = *object,
                .class = class,
                .parameters = (uint64_t)(uintptr_t)parameters,
                .size = size,
        };
        int r;

        if (c->system->ioctl(c->control_fd, RM_ALLOC, &a) < 0)
                return -errno;
        r = rm_status_to_errno(a.status);
        if (r == 0)
                *object = a.object;
        return r;
}

int rm_alloc(struct rm_client *c, uint32_t parent, uint32_t class, void *parameters, uint32_t size,
             uint32_t *ret_object)
{
        uint32_t object = c->next_handle;
        int r = alloc_as(c, c->handle, parent, class, parameters, size, &object);

        if (r < 0)
                return r;
        c->next_handle++;
        *ret_object = object;
        return 0;
}

static int open_files(struct rm_client *c, unsigned minor)
{
        char path[32];
        int32_t control_fd;

        c->control_fd = c->system->open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
        if (c->control_fd < 0)
                return -errno;
        snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
        c->gpu_fd = c->system->open(path, O_RDWR | O_CLOEXEC);
        if (c->gpu_fd < 0)
                return -errno;
        control_fd = c->control_fd;
        if (c->system->ioctl(c->gpu_fd, RM_REGISTER_FD, &control_fd) < 0)
                return -errno;
        return 0;
}

static int alloc_gpu(struct rm_client *c, unsigned instance)
{
        struct rm_device_parameters device = {.device_id = instance};
        uint32_t subdevice = 0;
        int r;

        r = alloc_as(c, 0, 0, RM_CLASS_CLIENT, NULL, 0, &c->handle);
        if (r == 0)
                r = rm_alloc(c, c->handle, RM_CLASS_DEVICE, &device, sizeof(device), &c->device);
        if (r == 0)
                r = rm_alloc(c, c->device, RM_CLASS_SUBDEVICE, &subdevice, sizeof(subdevice),
                             &c->subdevice);
        return r;
}

int rm_client_new(const struct rm_system *system, unsigned instance, unsigned minor,
                  struct rm_client **ret_client)
{
        struct rm_client *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        *c = (struct rm_client){
                .system = system,
                .control_fd = -1,
                .gpu_fd = -1,
                .next_handle = RM_HANDLE_FIRST,
        };
        r = open_files(c, minor);
        if (r == 0)
                r = alloc_gpu(c, instance);
        if (r < 0) {
                rm_client_free(c);
                return r;
        }
        *ret_client = c;
        return 0;
}

struct rm_client *rm_client_free(struct rm_client *c)
{
        if (!c)
                return NULL;
        if (c->handle) {
                struct rm_free_argument a = {.root = c->handle, .object = c->handle};

                /* Frees everything under it; closing the file would too. */
                (void)c->system->ioctl(c->control_fd, RM_FREE, &a);
        }
        if (c->gpu_fd >= 0)
                c->system->close(c->gpu_fd);
        if (c->control_fd >= 0)
                c->system->close(c->control_fd);
        free(c);
        return NULL;
}

int rm_newest_client(const struct rm_system *system, uint32_t *ret_handle)
{
        struct rm_client *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        c->system = system;
        c->gpu_fd = -1;
        c->control_fd = system->open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
        r = c->control_fd < 0 ? -errno : alloc_as(c, 0, 0, RM_CLASS_CLIENT, NULL, 0, &c->handle);
        if (r == 0)
                *ret_handle = c->handle;
        rm_client_free(c);
        return r;
}

uint32_t rm_client_handle(const struct rm_client *c)
{
        return c->handle;
}

uint32_t rm_client_device(const struct rm_client *c)
{
        return c->device;
}

uint32_t rm_client_subdevice(const struct rm_client *c)
{
        return c->subdevice;
}

int rm_map(struct rm_client *c, uint32_t object, size_t length, int protection, void **ret_address)
{
        struct rm_map_argument a = {
                .client = c->handle,
                .device = c->subdevice,
                .memory = object,
                .length = length,
                .fd = c->gpu_fd,
        };
        void *p;
        int r;

        if (c->system->ioctl(c->control_fd, RM_MAP_MEMORY, &a) < 0)
                return -errno;
        r = rm_status_to_errno(a.status);
        if (r < 0)
                return r;
        p = c->system->mmap(NULL, length, protection, MAP_SHARED, c->gpu_fd, 0);
        if (p == MAP_FAILED)
                return -errno;
        *ret_address = p;
        return 0;
}

void rm_unmap(struct rm_client *c, void *address, size_t length)
{
        c->system->munmap(address, length);
}

int rm_map_system(struct rm_client *c, uint32_t object, size_t length,
                  struct rm_mapping *ret_mapping)
{
        struct rm_map_argument a = {
                .client = c->handle,
                .device = c->handle,
                .memory = object,
                .length = length,
                .flags = RM_MAP_READ_ONLY,
        };
        struct rm_mapping m = {.length = length};
        int r;

        m.fd = a.fd = c->system->open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
        if (m.fd < 0)
                return -errno;
        r = c->system->ioctl(c->control_fd, RM_MAP_MEMORY, &a) < 0 ? -errno
                                                                   : rm_status_to_errno(a.status);
        if (r == 0) {
                m.address = c->system->mmap(NULL, length, PROT_READ, MAP_SHARED, m.fd, 0);
                r = m.address == MAP_FAILED ? -errno : 0;
        }
        if (r < 0) {
                c->system->close(m.fd);
                return r;
        }
        *ret_mapping = m;
        return 0;
}

void rm_unmap_system(struct rm_client *c, struct rm_mapping *m)
{
        if (!m->address)
                return;
        c->system->munmap(m->address, m->length);
        c->system->close(m->fd);
        *m = (struct rm_mapping){0};
}

static int uuid_of(const struct rm_system *system, int fd, uint32_t client, uint32_t subdevice,
                   uint8_t ret_uuid[16])
{
        struct rm_gid_parameters p = {.flags = RM_GID_BINARY};
        int r = rm_control_on(system, fd, client, subdevice, RM_GET_GID_INFO, &p, sizeof(p));

        if (r < 0)
                return r;
        if (p.length != 16)
                return -EPROTO;
        memcpy(ret_uuid, p.data, 16);
        return 0;
}

int rm_uuid(struct rm_client *c, uint8_t ret_uuid[16])
{
        return uuid_of(c->system, c->control_fd, c->handle, c->subdevice, ret_uuid);
}

int rm_uuid_on(const struct rm_system *system, int fd, uint32_t client, uint32_t device,
               uint8_t ret_uuid[16])
{
        struct rm_subdevice_parameters p = {0};
        int r = rm_control_on(system, fd, client, device, RM_FIND_SUBDEVICE, &p, sizeof(p));

        return r < 0 ? r : uuid_of(system, fd, client, p.handle, ret_uuid);
}
