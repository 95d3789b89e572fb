/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded into gpuobsd: each file that SIM_NVIDIACTL names (several with : between) is the
 * driver's control device, open by one process, with what a CUDA context makes: a client, a
 * device, a channel group that kernels run in and one for copies. The time slice of the first,
 * eight bytes, is what is in the file. An empty file is a driver that refuses everything; one of a
 * single byte does not return until there are more. Opened by the daemon itself it is the first of
 * the files.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXPORTED      __attribute__((visibility("default")))
#define NVIDIA_MAJOR  195
#define CONTROL_MINOR 255

#define RM_FREE       0xc0104629ul
#define RM_CONTROL    0xc020462aul
#define RM_ALLOC      0xc030462bul
#define SET_TIMESLICE 0xa06c0103u
#define GET_TIMESLICE 0xa06c0104u
#define HANDLE_INFO   0x0d02u
#define CHILD_HANDLE  0x0d05u

#define GENERIC_ERROR  0xffffu
#define INVALID_CLIENT 0x23u
#define NOT_FOUND      0x57u

#define CLIENT_FIRST  0xc1d00003u /* of the first file; the next file has the next */
#define CLIENT_NEWEST 0xc1d00100u
#define DEVICE        0x5c000001u
#define GROUP         0x5c000010u
#define COPY_GROUP    0x5c000020u
#define DEVICE_CLASS  0xe0ac20u /* as RM calls it inside */

struct object {
        uint32_t handle, parent, class;
};

static const struct object objects[] = {
        {DEVICE, 0, 0x0080},
        {GROUP, DEVICE, 0xa06c},
        {0x5c000011, GROUP, 0xc86f},
        {0x5c000012, 0x5c000011, 0xcbc0},
        {COPY_GROUP, DEVICE, 0xa06c},
        {0x5c000021, COPY_GROUP, 0xc86f},
        {0x5c000022, 0x5c000021, 0xc8b5},
};

/* NVOS54 */
struct control {
        uint32_t client, object, command, flags;
        uint64_t parameters;
        uint32_t size, status;
};

/* NVOS64 */
struct alloc {
        uint32_t root, parent, object, class;
        uint64_t parameters, rights;
        uint32_t size, flags, status, pad;
};

static void *next(const char *name)
{
        return dlsym(RTLD_NEXT, name);
}

/* Which of the files it is; -1: none. */
static int index_of(const struct stat *st)
{
        int (*next_stat)(const char *, struct stat *) =
                (int (*)(const char *, struct stat *))next("stat");
        const char *paths = getenv("SIM_NVIDIACTL");
        struct stat named;
        char path[4096];

        for (int i = 0; paths && *paths; i++) {
                size_t length = strcspn(paths, ":");

                snprintf(path, sizeof(path), "%.*s", (int)length, paths);
                if (next_stat(path, &named) == 0 && named.st_dev == st->st_dev &&
                    named.st_ino == st->st_ino)
                        return i;
                paths += length + (paths[length] == ':');
        }
        return -1;
}

static void disguise(struct stat *st)
{
        if (S_ISREG(st->st_mode) && index_of(st) >= 0) {
                st->st_mode = S_IFCHR | 0666;
                st->st_rdev = makedev(NVIDIA_MAJOR, CONTROL_MINOR);
        }
}

EXPORTED int fstat(int fd, struct stat *st)
{
        int r = ((int (*)(int, struct stat *))next("fstat"))(fd, st);

        if (r == 0)
                disguise(st);
        return r;
}

EXPORTED int fstatat(int directory, const char *path, struct stat *st, int flags)
{
        int r = ((int (*)(int, const char *, struct stat *, int))next("fstatat"))(directory, path,
                                                                                  st, flags);

        if (r == 0)
                disguise(st);
        return r;
}

EXPORTED int open(const char *path, int flags, ...)
{
        const char *paths = getenv("SIM_NVIDIACTL");
        char first[4096];
        mode_t mode;
        va_list list;

        va_start(list, flags);
        mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
        va_end(list);
        if (paths && strcmp(path, "/dev/nvidiactl") == 0) {
                snprintf(first, sizeof(first), "%.*s", (int)strcspn(paths, ":"), paths);
                path = first;
        }
        return ((int (*)(const char *, int, mode_t))next("open"))(path, flags, mode);
}

/* ---- controls ---- */

static const struct object *find(uint32_t handle)
{
        for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
                if (objects[i].handle == handle)
                        return &objects[i];
        return NULL;
}

static uint32_t handle_info(const struct control *c)
{
        struct {
                uint32_t object, index;
                uint64_t result;
        } *p = (void *)(uintptr_t)c->parameters;
        const struct object *o = find(p->object);

        if (p->object == c->client && p->index == 2)
                p->result = 0x41;
        else if (o)
                p->result = p->index == 2 ? o->class : o->parent ? o->parent : c->client;
        else
                return NOT_FOUND;
        return 0;
}

static uint32_t child_handle(const struct control *c)
{
        struct {
                uint32_t parent, class, object;
        } *p = (void *)(uintptr_t)c->parameters;

        if (p->parent != c->client || p->class != DEVICE_CLASS)
                return NOT_FOUND;
        p->object = DEVICE;
        return 0;
}

/* n: bytes that could be read of it. */
static uint32_t slice_of(int fd, ssize_t n, uint64_t now, const struct control *c)
{
        void *slice_us = (void *)(uintptr_t)c->parameters;

        if (n != (ssize_t)sizeof(now) || c->object == COPY_GROUP)
                return GENERIC_ERROR;
        if (c->command == GET_TIMESLICE)
                memcpy(slice_us, &now, sizeof(now));
        else if (pwrite(fd, slice_us, sizeof(now), 0) != (ssize_t)sizeof(now))
                return GENERIC_ERROR;
        return 0;
}

/* Whoever changes the file meanwhile has it locked; the processes' own files are never. */
static uint32_t time_slice(int fd, const struct control *c)
{
        uint64_t now = 0;
        uint32_t status;
        ssize_t n = -1;
        char path[32];
        int own;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        own = ((int (*)(const char *, int, mode_t))next("open"))(path, O_RDWR | O_CLOEXEC, 0);
        if (own < 0)
                return GENERIC_ERROR;
        while (flock(own, LOCK_EX) == 0 && (n = pread(own, &now, sizeof(now), 0)) == 1) {
                flock(own, LOCK_UN);
                usleep(1000);
        }
        status = slice_of(own, n, now, c);
        close(own);
        return status;
}

static uint32_t control(int fd, int file, const struct control *c)
{
        if (c->command == GET_TIMESLICE || c->command == SET_TIMESLICE)
                return time_slice(fd, c);
        if (c->client != CLIENT_FIRST + (uint32_t)file)
                return INVALID_CLIENT;
        if (c->command == HANDLE_INFO)
                return handle_info(c);
        return c->command == CHILD_HANDLE ? child_handle(c) : GENERIC_ERROR;
}

static uint32_t alloc(struct alloc *a)
{
        if (a->class != 0x41)
                return GENERIC_ERROR;
        a->object = CLIENT_NEWEST;
        return 0;
}

EXPORTED int ioctl(int fd, unsigned long request, ...)
{
        int file = -1;
        struct stat st;
        void *argument;
        va_list list;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        if ((request >> 8 & 0xff) == 'F' &&
            ((int (*)(int, struct stat *))next("fstat"))(fd, &st) == 0)
                file = index_of(&st);
        if (file < 0)
                return ((int (*)(int, unsigned long, void *))next("ioctl"))(fd, request, argument);
        if (request == RM_CONTROL)
                ((struct control *)argument)->status = control(fd, file, argument);
        else if (request == RM_ALLOC)
                ((struct alloc *)argument)->status = alloc(argument);
        else if (request != RM_FREE) {
                errno = EINVAL;
                return -1;
        }
        return 0;
}
