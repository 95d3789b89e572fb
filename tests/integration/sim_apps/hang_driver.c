/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded into gpuobsd: a resource manager with one GPU that does not exist, as far as the daemon
 * asks it: clock, context switches, free memory. SIM_RM names a directory: while there is a file
 * "hang" in it no call returns, those that open and close files included, nor is a process's file
 * of the UVM driver found, of which there is none; and the mappings of the process whose pid is in
 * the file "mapper" are locked: their list, too, unless there is a file "newer", for a kernel that
 * reads it without the lock. The GPU has the UUID SIM_RM_UUID, 16 characters, and
 * 7 GiB free. Each look at its context switches finds that the daemon's parent has had it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

#define FILES_MAX   65536
#define OBJECTS_MAX 64

#define RM_FREE        0xc0104629ul
#define RM_CONTROL     0xc020462aul
#define RM_ALLOC       0xc030462bul
#define RM_MAP_MEMORY  0xc038464eul
#define RM_REGISTER_FD 0xc00446c9ul

#define CLASS_CLIENT   0x0041u
#define CLASS_USERMODE 0xc661u
#define CLASS_MEMORY   0x90ceu
#define CLASS_EVENTS   0x90cdu
#define CLASS_OTHERS   0xc000u /* from here on: other usermode classes */

#define GET_GID_INFO  0x2080014au
#define FB_GET_INFO   0x20801303u
#define EVENTS_FLUSH  0x90cd0104u
#define INVALID_CLASS 0x22u
#define NOT_SUPPORTED 0x56u

#define TIME_LOW  (0x80 / 4)
#define TIME_HIGH (0x84 / 4)

#define RECORD_BYTES 32
#define FREE_KIB     (7u << 20)

struct control {
        uint32_t client, object, command, flags;
        uint64_t parameters;
        uint32_t size, status;
};
struct alloc {
        uint32_t root, parent, object, class;
        uint64_t parameters, rights;
        uint32_t size, flags, status, pad;
};
struct map {
        uint32_t client, device, memory, pad;
        uint64_t offset, length, linear_address;
        uint32_t status, flags;
        int32_t fd;
        uint32_t pad2;
};
struct event_buffer {
        uint64_t header, records;
        uint32_t record_size, record_count;
        uint8_t more[36];
        uint32_t header_memory, record_memory, more_memory;
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
        bool ours, is_gpu; /* is_gpu: its registers are mapped through it, else memory */
        uint32_t mapped;   /* object that the next mmap of it is of */
} files[FILES_MAX];
static struct {
        uint32_t handle;
        void *memory;
} objects[OBJECTS_MAX];
static volatile uint32_t *registers;
static char *event_header, *event_records;
static uint32_t event_count, event_put;
static uint16_t sequence;

static void *next(const char *name)
{
        return dlsym(RTLD_NEXT, name);
}

/* The driver has a lock of its own held. */
static void ask_driver(void)
{
        int (*next_access)(const char *, int) = (int (*)(const char *, int))next("access");
        const char *directory = getenv("SIM_RM");
        char path[4096];

        snprintf(path, sizeof(path), "%s/hang", directory ? directory : "");
        while (directory && next_access(path, F_OK) == 0)
                usleep(1000);
}

static bool is_ours(int fd)
{
        return fd >= 0 && fd < FILES_MAX && files[fd].ours;
}

static uint64_t gpu_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC_RAW, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + 5000000000u;
}

/* The clock goes on whether the driver answers or not. */
static void *tick(void *unused)
{
        for (;;) {
                uint64_t now = gpu_ns();

                registers[TIME_HIGH] = (uint32_t)(now >> 32);
                registers[TIME_LOW] = (uint32_t)now;
                usleep(200);
        }
        return NULL;
}

static void *memory_of(uint32_t handle, size_t bytes)
{
        for (size_t i = 0; i < OBJECTS_MAX; i++) {
                if (objects[i].handle != handle && objects[i].handle)
                        continue;
                objects[i].handle = handle;
                if (!objects[i].memory)
                        objects[i].memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                return objects[i].memory;
        }
        abort();
}

static void *clock_registers(size_t bytes)
{
        pthread_t thread;

        if (!registers) {
                registers = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                 -1, 0);
                if (pthread_create(&thread, NULL, tick, NULL) == 0)
                        pthread_detach(thread);
        }
        return (void *)registers;
}

/* ---- files ---- */

static const char *const device_files[] = {"/dev/nvidiactl", "/dev/nvidia0"};

static bool is_device(const char *path)
{
        return strcmp(path, device_files[0]) == 0 || strcmp(path, device_files[1]) == 0;
}

EXPORTED int access(const char *path, int mode)
{
        if (is_device(path))
                return 0;
        return ((int (*)(const char *, int))next("access"))(path, mode);
}

static const char *file_of(const char *name, char *path, size_t size)
{
        const char *directory = getenv("SIM_RM");

        snprintf(path, size, "%s/%s", directory ? directory : "", name);
        return path;
}

/* Whether opening it takes the lock of the process that hangs. */
static bool is_mapper(const char *path)
{
        int (*next_open)(const char *, int) = (int (*)(const char *, int))next("open");
        int (*next_access)(const char *, int) = (int (*)(const char *, int))next("access");
        char file[4096], pid[16] = "", maps[64], mapped[64];
        ssize_t n;
        int fd;

        if (!getenv("SIM_RM") || strncmp(path, "/proc/", 6) != 0)
                return false;
        fd = next_open(file_of("mapper", file, sizeof(file)), O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        n = read(fd, pid, sizeof(pid) - 1);
        ((int (*)(int))next("close"))(fd);
        snprintf(maps, sizeof(maps), "/proc/%s/maps", n > 0 ? pid : "");
        snprintf(mapped, sizeof(mapped), "/proc/%s/map_files/", n > 0 ? pid : "");
        if (strcmp(path, maps) == 0)
                return next_access(file_of("newer", file, sizeof(file)), F_OK) < 0;
        return strncmp(path, mapped, strlen(mapped)) == 0;
}

EXPORTED int stat(const char *path, struct stat *st)
{
        if (strcmp(path, "/dev/nvidia-uvm") == 0)
                ask_driver();
        return ((int (*)(const char *, struct stat *))next("stat"))(path, st);
}

EXPORTED int open(const char *path, int flags, ...)
{
        mode_t mode;
        va_list list;
        int fd;

        va_start(list, flags);
        mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
        va_end(list);
        if (is_mapper(path))
                ask_driver();
        if (!is_device(path))
                return ((int (*)(const char *, int, mode_t))next("open"))(path, flags, mode);
        ask_driver();
        fd = memfd_create("driver", MFD_CLOEXEC);
        if (fd >= 0 && fd < FILES_MAX) {
                files[fd].ours = true;
                files[fd].is_gpu = strcmp(path, device_files[1]) == 0;
        }
        return fd;
}

EXPORTED int close(int fd)
{
        if (is_ours(fd)) {
                ask_driver();
                files[fd].ours = false;
                files[fd].mapped = 0;
        }
        return ((int (*)(int))next("close"))(fd);
}

EXPORTED void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
        void *(*next_mmap)(void *, size_t, int, int, int, off_t) =
                (void *(*)(void *, size_t, int, int, int, off_t))next("mmap");
        void *memory;

        if (!is_ours(fd))
                return next_mmap(address, length, protection, flags, fd, offset);
        ask_driver();
        pthread_mutex_lock(&lock);
        memory = files[fd].is_gpu ? clock_registers(length) : memory_of(files[fd].mapped, length);
        pthread_mutex_unlock(&lock);
        return memory;
}

/* What is shared with others stays. */
EXPORTED int munmap(void *address, size_t length)
{
        for (size_t i = 0; i < OBJECTS_MAX; i++)
                if (objects[i].memory == address)
                        return 0;
        if (address == (void *)registers)
                return 0;
        return ((int (*)(void *, size_t))next("munmap"))(address, length);
}

/* ---- calls ---- */

static uint32_t alloc(struct alloc *a)
{
        static uint32_t clients;

        switch (a->class) {
        case CLASS_CLIENT:
                a->object = 0xc1d00000u + ++clients;
                return 0;
        case CLASS_USERMODE:
        case CLASS_MEMORY:
                return 0;
        case CLASS_EVENTS: {
                const struct event_buffer *p = (void *)(uintptr_t)a->parameters;

                event_count = p->record_count;
                event_header = memory_of(p->header_memory, 4096);
                event_records = memory_of(p->record_memory, (size_t)event_count * RECORD_BYTES);
                return 0;
        }
        default:
                return a->class >= CLASS_OTHERS ? INVALID_CLASS : 0;
        }
}

static void add_switch(uint8_t tag, uint64_t at_ns)
{
        char *r = event_records + (size_t)event_put * RECORD_BYTES;
        uint32_t pid = (uint32_t)getppid(), context = 77;
        uint16_t type = 2;

        memset(r, 0, RECORD_BYTES);
        memcpy(r, &type, sizeof(type));
        r[8] = (char)tag;
        memcpy(r + 10, &sequence, sizeof(sequence));
        memcpy(r + 12, &context, sizeof(context));
        memcpy(r + 16, &pid, sizeof(pid));
        r[22] = r[23] = (char)0xff;
        memcpy(r + 24, &at_ns, sizeof(at_ns));
        sequence++;
        event_put = (event_put + 1) % event_count;
        __atomic_store_n((uint32_t *)(void *)(event_header + 4), event_put, __ATOMIC_RELEASE);
}

static void flush(void)
{
        uint64_t now = gpu_ns();

        add_switch(6, now - 10000000);
        add_switch(7, now - 6000000);
}

static uint32_t control(const struct control *c)
{
        char *p = (char *)(uintptr_t)c->parameters;
        uint32_t length = 16, unused = FREE_KIB;

        switch (c->command) {
        case GET_GID_INFO:
                memcpy(p + 8, &length, sizeof(length));
                memcpy(p + 12, getenv("SIM_RM_UUID"), 16);
                return 0;
        case FB_GET_INFO:
                memcpy(p + 8, &unused, sizeof(unused));
                return 0;
        case EVENTS_FLUSH:
                flush();
                return 0;
        default:
                return c->command >> 16 == CLASS_EVENTS || c->command >> 16 == 0x2080
                               ? 0
                               : NOT_SUPPORTED;
        }
}

static int call(unsigned long request, void *argument)
{
        struct map *m = argument;

        switch (request) {
        case RM_ALLOC:
                ((struct alloc *)argument)->status = alloc(argument);
                return 0;
        case RM_CONTROL:
                ((struct control *)argument)->status = control(argument);
                return 0;
        case RM_MAP_MEMORY:
                files[m->fd].mapped = m->memory;
                m->status = 0;
                return 0;
        case RM_FREE:
        case RM_REGISTER_FD:
                return 0;
        default:
                errno = EINVAL;
                return -1;
        }
}

EXPORTED int ioctl(int fd, unsigned long request, ...)
{
        void *argument;
        va_list list;
        int r;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        if (!is_ours(fd))
                return ((int (*)(int, unsigned long, void *))next("ioctl"))(fd, request, argument);
        ask_driver();
        pthread_mutex_lock(&lock);
        r = call(request, argument);
        pthread_mutex_unlock(&lock);
        return r;
}
