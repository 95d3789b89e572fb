/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A client of the NVIDIA resource manager (RM), by the ioctls of the stock open
 * driver. Numbers and structs: NVIDIA/open-gpu-kernel-modules,
 * src/common/sdk/nvidia/inc (nvos.h, nv-ioctl-numbers.h, class/, ctrl/);
 * offsets checked on driver 580. No CUDA context, no effect on other clients.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The system calls this module makes; tests put a fake driver in their place. */
struct rm_system {
        int (*open)(const char *path, int flags);
        int (*close)(int fd);
        int (*ioctl)(int fd, unsigned long request, void *argument);
        void *(*mmap)(void *address, size_t length, int protection, int flags, int fd,
                      off_t offset);
        int (*munmap)(void *address, size_t length);
};

extern const struct rm_system rm_system_default;

/* RM classes this project allocates. */
#define RM_CLASS_CLIENT    0x0041u /* NV01_ROOT_CLIENT */
#define RM_CLASS_DEVICE    0x0080u /* NV01_DEVICE_0 */
#define RM_CLASS_SUBDEVICE 0x2080u /* NV20_SUBDEVICE_0 */

struct rm_client;

/*
 * Open the control device, allocate a client, and under it the device and
 * subdevice of one GPU. instance: RM's device instance; minor: of /dev/nvidiaN.
 * 0; -ENODEV no such GPU; -ENOENT no driver; -EACCES; other -errno.
 */
int rm_client_new(const struct rm_system *system, unsigned instance, unsigned minor,
                  struct rm_client **ret_client);
struct rm_client *rm_client_free(struct rm_client *c);

/*
 * The handle of a client made just now, and freed: RM counts them up, so those that there are come
 * before it. 0 or -errno.
 */
int rm_newest_client(const struct rm_system *system, uint32_t *ret_handle);

/* Its own handle, the parent of what belongs to no GPU. */
uint32_t rm_client_handle(const struct rm_client *c);
uint32_t rm_client_device(const struct rm_client *c);
uint32_t rm_client_subdevice(const struct rm_client *c);

/* Allocate an object under parent. ret_object: its handle. 0 or -errno. */
int rm_alloc(struct rm_client *c, uint32_t parent, uint32_t class, void *parameters, uint32_t size,
             uint32_t *ret_object);

/* Call a control of an object, in and out through parameters. 0 or -errno. */
int rm_control(struct rm_client *c, uint32_t object, uint32_t command, void *parameters,
               uint32_t size);

/* The same on a descriptor of nvidiactl and with handles that may be another process's. */
int rm_control_on(const struct rm_system *system, int fd, uint32_t client, uint32_t object,
                  uint32_t command, void *parameters, uint32_t size);

/* What RM tells of an object by its handle alone. */
enum rm_handle_info { RM_INFO_PARENT = 1, RM_INFO_CLASS = 2 };

/* 0; -ENOENT the client has no such object; other -errno as rm_control_on(). */
int rm_handle_info_on(const struct rm_system *system, int fd, uint32_t client, uint32_t object,
                      enum rm_handle_info info, uint32_t *ret_value);

/* Map length bytes of a memory or register object of the GPU. 0 or -errno; unmap with rm_unmap().
 */
int rm_map(struct rm_client *c, uint32_t object, size_t length, int protection, void **ret_address);
void rm_unmap(struct rm_client *c, void *address, size_t length);

/* Memory of the system that RM writes and we read. */
struct rm_mapping {
        void *address; /* NULL: none */
        size_t length;
        int fd; /* of nvidiactl: RM ties a mapping to a file of its own */
};

/* Map length bytes of a memory object that belongs to no GPU, to be read. 0 or -errno. */
int rm_map_system(struct rm_client *c, uint32_t object, size_t length,
                  struct rm_mapping *ret_mapping);
/* Nothing for an empty mapping; empties it. */
void rm_unmap_system(struct rm_client *c, struct rm_mapping *m);

/* The GPU's UUID, 16 bytes. 0 or -errno. */
int rm_uuid(struct rm_client *c, uint8_t ret_uuid[16]);

/* The same of a device that may be another process's, as rm_control_on(). */
int rm_uuid_on(const struct rm_system *system, int fd, uint32_t client, uint32_t device,
               uint8_t ret_uuid[16]);

/* An RM status (NV_OK, NV_ERR_*) as -errno: the one place where they are translated. */
int rm_status_to_errno(uint32_t status);
