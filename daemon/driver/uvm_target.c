/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_target.h"

#include <errno.h>
#include <stdbool.h>

#include "util/macro.h"

#define FDS_MAX 16

/* What the driver is given to answer with; an answer that it does not write is a failure. */
#define STATUS_UNSET 0xffffffffu

int uvm_status_to_errno(uint32_t status)
{
        switch (status) {
        case 0x00:       /* NV_OK */
        case 0x00010006: /* NV_WARN_NOTHING_TO_DO */
                return 0;
        case 0x03: /* NV_ERR_BUSY_RETRY */
        case 0x17: /* NV_ERR_IN_USE */
                return -EBUSY;
        case 0x0f: /* NV_ERR_GPU_IS_LOST */
        case 0x26: /* NV_ERR_INVALID_DEVICE */
                return -ENODEV;
        case 0x1a: /* NV_ERR_INSUFFICIENT_RESOURCES */
        case 0x51: /* NV_ERR_NO_MEMORY */
                return -ENOMEM;
        case 0x1b: /* NV_ERR_INSUFFICIENT_PERMISSIONS */
                return -EACCES;
        case 0x1e: /* NV_ERR_INVALID_ADDRESS */
                return -EFAULT;
        case 0x1f: /* NV_ERR_INVALID_ARGUMENT */
                return -EINVAL;
        case 0x5b: /* NV_ERR_OUT_OF_RANGE */
                return -ERANGE;
        case 0x16: /* NV_ERR_ILLEGAL_ACTION */
        case 0x56: /* NV_ERR_NOT_SUPPORTED */
                return -ENOTSUP;
        case 0x5e: /* NV_ERR_PID_NOT_FOUND */
                return -ESRCH;
        case 0x64: /* NV_ERR_SIGNAL_PENDING */
                return -EINTR;
        case 0x65: /* NV_ERR_TIMEOUT */
                return -ETIMEDOUT;
        default:
                return -EIO;
        }
}

int uvm_call(const struct uvm_system *system, int fd, unsigned long request,
             union uvm_argument *argument, const uint32_t *status, uint32_t *ret_status)
{
        uint32_t *answer =
                (uint32_t *)((char *)argument + ((const char *)status - (char *)argument));

        *answer = STATUS_UNSET;
        if (ret_status)
                *ret_status = 0;
        if (system->ioctl(fd, request, argument) < 0)
                return -errno;
        if (ret_status)
                *ret_status = *answer;
        return uvm_status_to_errno(*answer);
}

int uvm_target_read_processors(struct uvm_target *t)
{
        uint8_t table[UVM_PROCESSORS_MAX][UVM_UUID_BYTES] = {{0}};
        union uvm_argument a = {.uuids = {.table = (uint64_t)(uintptr_t)table}};
        int r = uvm_call(t->system, t->uvm_fd, UVM_GET_PROCESSOR_UUIDS, &a, &a.uuids.status, NULL);

        if (r < 0)
                return r;
        for (size_t i = 0; i < UVM_PROCESSORS_MAX; i++)
                for (size_t k = 0; k < UVM_UUID_BYTES; k++)
                        t->processors[i][k] = table[i][k];
        return 0;
}

/*
 * A process has several UVM files: of one memory (the first opened), and one that
 * only ties it to the process. The driver answers on the first kind alone.
 */
static int try_fd(struct uvm_target *t, int fd)
{
        int r;

        t->uvm_fd = t->system->pidfd_getfd(t->pidfd, fd);
        if (t->uvm_fd < 0)
                return -errno;
        r = t->system->is_uvm(t->uvm_fd) ? uvm_target_read_processors(t) : -ENODEV;
        if (r < 0)
                uvm_target_close_uvm(t);
        return r;
}

static int find_uvm_file(struct uvm_target *t)
{
        int fds[FDS_MAX], n = t->system->list_fds(t->pid, fds, ARRAY_SIZE(fds));
        int r = n < 0 ? n : -ENODEV;

        for (int i = 0; i < n; i++) {
                r = try_fd(t, fds[i]);
                if (r == 0)
                        return 0;
        }
        return r == -EPERM || r == -EACCES || n < 0 ? r : -ENODEV;
}

/* The pidfd first: what is read afterwards is that process's as long as it lives. */
static int identify(struct uvm_target *t)
{
        uint64_t ticks;
        int r;

        t->pidfd = t->system->pidfd_open(t->pid);
        if (t->pidfd < 0)
                return errno == EINVAL ? -ESRCH : -errno;
        r = t->system->start_ticks(t->pid, &ticks);
        if (r == -ENOENT)
                return -ESRCH;
        if (r < 0)
                return r;
        return ticks == t->start_ticks && t->system->pidfd_alive(t->pidfd) ? 0 : -ESRCH;
}

int uvm_target_open(const struct uvm_system *system, pid_t pid, uint64_t start_ticks,
                    struct uvm_target *ret_target)
{
        struct uvm_target t = {.system = system,
                               .pid = pid,
                               .start_ticks = start_ticks,
                               .pidfd = -1,
                               .uvm_fd = -1};
        int r = identify(&t);

        if (r == 0)
                r = find_uvm_file(&t);
        /* Numbers of descriptors were read by pid: they are the process's if it still lives. */
        if (r < 0 && t.pidfd >= 0 && !system->pidfd_alive(t.pidfd))
                r = -ESRCH;
        if (r < 0) {
                uvm_target_close(&t);
                return r;
        }
        *ret_target = t;
        return 0;
}

void uvm_target_close_uvm(struct uvm_target *t)
{
        if (t->uvm_fd >= 0)
                t->system->close(TAKE_FD(t->uvm_fd));
}

void uvm_target_close(struct uvm_target *t)
{
        uvm_target_close_uvm(t);
        if (t->pidfd >= 0)
                t->system->close(TAKE_FD(t->pidfd));
}
