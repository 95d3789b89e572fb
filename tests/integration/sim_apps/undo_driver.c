/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded into gpuobsd: each file that SIM_NVIDIACTL names (several with : between) is the
 * driver's control device with one channel group, whose time slice, eight bytes, is what is in the
 * file. An empty file is a driver that refuses everything; one of a single byte does not return
 * until there are more.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NVIDIA_MAJOR  195
#define CONTROL_MINOR 255
#define RM_CONTROL    0xc020462aul
#define SET_TIMESLICE 0xa06c0103u
#define GET_TIMESLICE 0xa06c0104u
#define GENERIC_ERROR 0xffffu

/* NVOS54 */
struct control {
        uint32_t client, object, command, flags;
        uint64_t parameters;
        uint32_t size, status;
};

static bool is_control(int fd)
{
        const char *path = getenv("SIM_NVIDIACTL");
        char link[64], target[PATH_MAX];
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, target, sizeof(target) - 1);
        if (!path || n < 0)
                return false;
        target[n] = '\0';
        for (size_t length; *path; path += length + (path[length] == ':')) {
                length = strcspn(path, ":");
                if (strlen(target) == length && strncmp(path, target, length) == 0)
                        return true;
        }
        return false;
}

__attribute__((visibility("default"))) int fstat(int fd, struct stat *st)
{
        int (*next)(int, struct stat *) = (int (*)(int, struct stat *))dlsym(RTLD_NEXT, "fstat");
        int r = next(fd, st);

        if (r == 0 && is_control(fd)) {
                st->st_mode = S_IFCHR | 0666;
                st->st_rdev = makedev(NVIDIA_MAJOR, CONTROL_MINOR);
        }
        return r;
}

static int control(int fd, struct control *c)
{
        void *slice_us = (void *)(uintptr_t)c->parameters;
        bool done = false;
        uint64_t now;

        while (pread(fd, &now, sizeof(now), 0) == 1)
                usleep(1000);
        if (pread(fd, &now, sizeof(now), 0) == (ssize_t)sizeof(now)) {
                if (c->command == GET_TIMESLICE)
                        done = memcpy(slice_us, &now, sizeof(now));
                else if (c->command == SET_TIMESLICE)
                        done = pwrite(fd, slice_us, sizeof(now), 0) == (ssize_t)sizeof(now);
        }
        c->status = done ? 0 : GENERIC_ERROR;
        return 0;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
        int (*next)(int, unsigned long, void *) =
                (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
        void *argument;
        va_list list;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        if (request == RM_CONTROL && is_control(fd))
                return control(fd, argument);
        return next(fd, request, argument);
}
