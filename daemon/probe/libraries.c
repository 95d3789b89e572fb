/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/libraries.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <uthash.h>

#include "probe/detacher.h"
#include "probe/elf_symbols.h"
#include "probe/ld_cache.h"
#include "probe/proc_maps.h"
#include "probe/uprobe.h"
#include "util/macro.h"
#include "util/slurp.h"
#include "util/time.h"

#define LD_CACHE           "/etc/ld.so.cache"
#define LD_CACHE_BYTES_MAX (16 << 20)

/* For how long it holds that no process hangs: until all files found in a row have probes. */
#define LOOK_NS NSEC_PER_SEC

/* cuLaunchKernel and its like, twice for per-thread streams: cuda_functions.c. */
#define LAUNCH_FUNCTIONS_MAX 16

/* Where drivers put it without telling the linker. */
static const char *const usual_places[] = {
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",
        "/usr/lib/libcuda.so.1",
        "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
        "/usr/local/cuda/compat/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
        "/run/opengl-driver/lib/libcuda.so.1",
};

struct file_key {
        uint64_t device;
        uint64_t inode;
};

/* A process that had a library mapped before the probes were on: reported once. */
struct gap {
        pid_t pid;
        UT_hash_handle hh;
};

struct library {
        struct file_key key;
        struct cpu_probes_library info;
        struct uprobe_links links;
        struct file_key alias; /* how the kernel named it in an event; zero when as stat does */
        struct gap *gaps;
        /*
         * Why no probes are on it, kept so as not to try again. Its inode is not pinned then,
         * and may become another file's: hence the time of its last change.
         */
        int error;
        struct timespec changed;
        bool mapped;                             /* during a scan: somebody has it */
        uint64_t launches[LAUNCH_FUNCTIONS_MAX]; /* offsets of the launch functions, 0: no more */
        UT_hash_handle hh;
};

struct libraries {
        struct libraries_config config;
        struct library *by_file;
        size_t attached;
        struct detacher *detacher;
        uint64_t looked_ns;
        bool one_hangs; /* as it was then */
};

struct libraries *libraries_new(const struct libraries_config *config)
{
        struct libraries *l = calloc(1, sizeof(*l));

        if (!l)
                return NULL;
        l->config = *config;
        l->detacher = detacher_new();
        return l->detacher ? l : libraries_free(l);
}

static void library_free(struct libraries *l, struct library *lib)
{
        struct gap *g, *next;

        HASH_DEL(l->by_file, lib);
        l->attached -= lib->error == 0;
        HASH_ITER (hh, lib->gaps, g, next) {
                HASH_DEL(lib->gaps, g);
                free(g);
        }
        detacher_take(l->detacher, &lib->links);
        free((char *)lib->info.path);
        free(lib);
}

struct libraries *libraries_free(struct libraries *l)
{
        struct library *lib, *next;

        if (!l)
                return NULL;
        HASH_ITER (hh, l->by_file, lib, next)
                library_free(l, lib);
        detacher_free(l->detacher);
        free(l);
        return NULL;
}

/* ---- putting probes on a file ---- */

static bool is_wanted(const struct libraries *l, const struct cuda_function *f)
{
        return l->config.operations || f->program != CUDA_PROGRAM_CALL ||
               f->cookie.action != CPU_CALL_OPERATION;
}

/* Two symbols may be one function: it is probed as the first of them. */
static bool is_listed(const struct uprobe_place *places, size_t n, uint64_t offset)
{
        size_t i;

        for (i = 0; i < n; i++)
                if (places[i].offset == offset)
                        return true;
        return false;
}

/* Places of all functions, sorted by program; ret_starts[program] .. [program + 1]. */
static size_t list_places(const struct libraries *l, const uint64_t *offsets,
                          struct uprobe_place *places, size_t ret_starts[CUDA_PROGRAM_COUNT + 1])
{
        size_t i, n = 0;
        int program;

        for (program = 0; program < CUDA_PROGRAM_COUNT; program++) {
                ret_starts[program] = n;
                for (i = 0; i < cuda_function_count; i++) {
                        const struct cuda_function *f = &cuda_functions[i];

                        if ((int)f->program != program || !offsets[i] || !is_wanted(l, f) ||
                            is_listed(places, n, offsets[i]))
                                continue;
                        places[n++] = (struct uprobe_place){offsets[i], f->cookie.value};
                }
        }
        ret_starts[CUDA_PROGRAM_COUNT] = n;
        return n;
}

static int attach_programs(const struct libraries *l, struct library *lib, const char *path,
                           const uint64_t *offsets)
{
        _cleanup_free_ struct uprobe_place *places = calloc(cuda_function_count, sizeof(*places));
        size_t starts[CUDA_PROGRAM_COUNT + 1], count = 0, n, i;
        int r;

        if (!places)
                return -ENOMEM;
        list_places(l, offsets, places, starts);
        for (i = 0; i < CUDA_PROGRAM_COUNT; i++) {
                n = starts[i + 1] - starts[i];
                if (n == 0)
                        continue;
                /* Returns first: an entry without its return would leave a call open. */
                r = uprobe_attach(&lib->links, l->config.at_return[i], l->config.multi, true, path,
                                  places + starts[i], n, &count);
                if (r == 0)
                        r = uprobe_attach(&lib->links, l->config.entry[i], l->config.multi, false,
                                          path, places + starts[i], n, &count);
                if (r < 0)
                        return r;
                lib->info.functions += (uint32_t)count;
        }
        return 0;
}

static void note_launches(struct library *lib, const uint64_t *offsets)
{
        size_t i, n = 0;

        for (i = 0; i < cuda_function_count; i++)
                if (cuda_functions[i].program != CUDA_PROGRAM_CALL && offsets[i] &&
                    n < LAUNCH_FUNCTIONS_MAX)
                        lib->launches[n++] = offsets[i];
}

static int library_attach(const struct libraries *l, struct library *lib, int fd)
{
        _cleanup_free_ uint64_t *offsets = calloc(cuda_function_count, sizeof(*offsets));
        _cleanup_free_ const char **names = calloc(cuda_function_count, sizeof(*names));
        char path[64];
        size_t i;
        int r;

        if (!offsets || !names)
                return -ENOMEM;
        for (i = 0; i < cuda_function_count; i++)
                names[i] = cuda_functions[i].name;
        r = elf_find_functions(fd, names, cuda_function_count, offsets);
        if (r <= 0)
                return r < 0 ? r : -ENOENT;
        note_launches(lib, offsets);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        r = attach_programs(l, lib, path, offsets);
        if (r < 0) {
                detacher_take(l->detacher, &lib->links);
                lib->info.functions = 0;
                return r;
        }
        lib->info.how = l->config.multi ? CPU_PROBES_MULTI : CPU_PROBES_PERF_EVENTS;
        lib->info.attached_ns = now_ns();
        return 0;
}

/* ---- processes that hang ---- */

static void look_at(void *data, pid_t pid)
{
        struct libraries *l = data;

        l->one_hangs |= proc_mappings_locked(pid);
}

/*
 * To put probes on a file the kernel locks the mappings of each process that has it mapped, and
 * lets nobody on the machine fork meanwhile: with one that hangs in a driver with its mappings
 * locked that would be for ever. Which files that one has cannot be asked.
 */
static bool one_hangs(struct libraries *l)
{
        bool goes_on = l->one_hangs && slurp_left() == 0;

        if (l->looked_ns && now_ns() - l->looked_ns < LOOK_NS && !goes_on)
                return l->one_hangs;
        l->one_hangs = false;
        (void)proc_for_each(look_at, l);
        l->looked_ns = now_ns();
        return l->one_hangs;
}

/* ---- the files ---- */

/* Make room by forgetting the files that probes could not be put on. */
static int make_room(struct libraries *l)
{
        struct library *lib, *next;

        if (HASH_COUNT(l->by_file) < CPU_PROBES_LIBRARIES_MAX)
                return 0;
        HASH_ITER (hh, l->by_file, lib, next)
                if (lib->error)
                        library_free(l, lib);
        return HASH_COUNT(l->by_file) < CPU_PROBES_LIBRARIES_MAX ? 0 : -ENOSPC;
}

static struct library *library_add(struct libraries *l, const struct stat *st, const char *path,
                                   int fd)
{
        _cleanup_free_ struct library *lib = calloc(1, sizeof(*lib));

        if (!lib)
                return NULL;
        lib->key = (struct file_key){st->st_dev, st->st_ino};
        lib->changed = st->st_ctim;
        lib->info.path = strdup(path);
        if (!lib->info.path)
                return NULL;
        lib->info.device = st->st_dev;
        lib->info.inode = st->st_ino;
        lib->error = one_hangs(l) ? -EDEADLK : library_attach(l, lib, fd);
        l->attached += lib->error == 0;
        HASH_ADD(hh, l->by_file, key, sizeof(lib->key), lib);
        return TAKE_PTR(lib);
}

static void report(const struct libraries *l, const char *path, int error,
                   const struct library *lib)
{
        if (l->config.ops->library)
                l->config.ops->library(l->config.data, path, error, error ? NULL : &lib->info);
}

/* Than when probes could not be put on it. */
static bool is_another(const struct library *lib, const struct stat *st)
{
        return memcmp(&lib->changed, &st->st_ctim, sizeof(st->st_ctim)) != 0;
}

/* The library of an open file, attached to now if it is new. NULL: ret_error says why not. */
static struct library *library_of(struct libraries *l, int fd, const char *path, int *ret_error)
{
        struct file_key key;
        struct library *lib;
        struct stat st;

        if (fstat(fd, &st) < 0) {
                *ret_error = -errno;
                return NULL;
        }
        key = (struct file_key){st.st_dev, st.st_ino};
        HASH_FIND(hh, l->by_file, &key, sizeof(key), lib);
        if (lib && lib->error && is_another(lib, &st)) {
                library_free(l, lib);
                lib = NULL;
        }
        if (!lib) {
                *ret_error = S_ISREG(st.st_mode) ? make_room(l) : -EBADF;
                if (*ret_error == 0) {
                        lib = library_add(l, &st, path, fd);
                        *ret_error = lib ? lib->error : -ENOMEM;
                }
                report(l, path, *ret_error, lib);
        }
        if (!lib)
                return NULL;
        *ret_error = lib->error;
        return lib->error ? NULL : lib;
}

int libraries_attach_path(struct libraries *l, const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        int r;

        if (fd < 0)
                return -errno;
        return library_of(l, fd, path, &r) ? 0 : r;
}

/* ---- what the linker knows ---- */

static void attach_found(void *data, const char *path)
{
        libraries_attach_path(data, path);
}

static void attach_cached(struct libraries *l)
{
        _cleanup_close_ int fd = open(LD_CACHE, O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *bytes = NULL;
        struct stat st;
        ssize_t size;

        if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > LD_CACHE_BYTES_MAX)
                return;
        bytes = malloc((size_t)st.st_size);
        size = bytes ? read(fd, bytes, (size_t)st.st_size) : -1;
        if (size > 0)
                ld_cache_search(bytes, (size_t)size, LIBRARY_PREFIX, attach_found, l);
}

void libraries_attach_known(struct libraries *l)
{
        size_t i;

        attach_cached(l);
        for (i = 0; i < ARRAY_SIZE(usual_places); i++)
                libraries_attach_path(l, usual_places[i]);
}

static struct library *find_put_off(const struct libraries *l)
{
        struct library *lib;

        for (lib = l->by_file; lib; lib = lib->hh.next)
                if (lib->error == -EDEADLK)
                        return lib;
        return NULL;
}

/* The name may be another's, and lead to anything. */
static int attach_named(struct libraries *l, const char *path)
{
        _cleanup_close_ int fd = slurp_open(path);
        int r;

        if (fd < 0)
                return fd;
        return library_of(l, fd, path, &r) ? 0 : r;
}

bool libraries_can_go_on(const struct libraries *l)
{
        return find_put_off(l) && slurp_left() == 0;
}

/* Those that wait for a process that hangs: by name, or as somebody has them mapped. */
static void attach_put_off(struct libraries *l)
{
        struct library *lib;
        int r = 0;

        while (r != -EDEADLK && (lib = find_put_off(l)) && !one_hangs(l)) {
                _cleanup_free_ char *path = strdup(lib->info.path);

                library_free(l, lib);
                r = path ? attach_named(l, path) : -ENOMEM;
        }
}

/* ---- what processes have mapped ---- */

struct process_search {
        struct libraries *l;
        uint64_t since_ns;
        size_t found;
        struct library *last;
        bool incomplete; /* somebody's mappings are locked */
};

static void note_gap(struct libraries *l, struct library *lib, pid_t pid)
{
        struct gap *g;

        HASH_FIND(hh, lib->gaps, &pid, sizeof(pid), g);
        if (g)
                return;
        g = calloc(1, sizeof(*g));
        if (g) {
                g->pid = pid;
                HASH_ADD(hh, lib->gaps, pid, sizeof(g->pid), g);
        }
        if (l->config.ops->attach_gap)
                l->config.ops->attach_gap(l->config.data, (uint32_t)pid, lib->info.path);
}

static void attach_mapping(void *data, pid_t pid, const struct proc_mapping *mapping)
{
        _cleanup_close_ int fd = proc_mapping_open(pid, mapping);
        struct process_search *s = data;
        struct library *lib;
        int r;

        s->incomplete |= proc_mappings_hang(fd);
        if (fd < 0)
                return;
        lib = library_of(s->l, fd, mapping->path, &r);
        if (!lib)
                return;
        lib->mapped = true;
        s->found++;
        s->last = lib;
        if (s->since_ns < lib->info.attached_ns)
                note_gap(s->l, lib, pid);
}

int libraries_attach_process(struct libraries *l, pid_t pid, uint64_t since_ns)
{
        struct process_search s = {.l = l, .since_ns = since_ns};
        int r = proc_maps_search(pid, LIBRARY_PREFIX, attach_mapping, &s);

        return r < 0 ? r : (int)s.found;
}

static bool is_file(const struct file_key *key, uint64_t kernel_device, uint64_t inode)
{
        /* dev_t in the kernel: 12 bits major, 20 bits minor. */
        dev_t device = makedev(kernel_device >> 20, kernel_device & 0xfffff);

        return key->device == device && key->inode == inode;
}

bool libraries_know(struct libraries *l, uint64_t kernel_device, uint64_t inode, uint64_t since_ns)
{
        struct library *lib, *next;

        HASH_ITER (hh, l->by_file, lib, next) {
                if (!is_file(&lib->key, kernel_device, inode) &&
                    !is_file(&lib->alias, kernel_device, inode))
                        continue;
                return !lib->error && lib->info.attached_ns <= since_ns;
        }
        return false;
}

void libraries_learn(struct libraries *l, pid_t pid, uint64_t kernel_device, uint64_t inode)
{
        struct process_search s = {.l = l, .since_ns = UINT64_MAX};

        if (proc_maps_search(pid, LIBRARY_PREFIX, attach_mapping, &s) < 0 || s.found != 1 ||
            is_file(&s.last->key, kernel_device, inode))
                return;
        s.last->alias =
                (struct file_key){makedev(kernel_device >> 20, kernel_device & 0xfffff), inode};
}

/* ---- scans ---- */

static void scan_process(void *data, pid_t pid)
{
        struct process_search *s = data;
        int r = proc_maps_search(pid, LIBRARY_PREFIX, attach_mapping, s);

        s->incomplete |= proc_mappings_hang(r);
}

/* The same file under its name from here: then it stays, used or not. */
static bool is_reachable(const struct library *lib)
{
        struct stat st;

        return stat(lib->info.path, &st) == 0 && st.st_dev == lib->key.device &&
               st.st_ino == lib->key.inode;
}

static void forget_gaps(struct library *lib)
{
        struct gap *g, *next;
        char path[32];

        HASH_ITER (hh, lib->gaps, g, next) {
                snprintf(path, sizeof(path), "/proc/%d", (int)g->pid);
                if (access(path, F_OK) == 0)
                        continue;
                HASH_DEL(lib->gaps, g);
                free(g);
        }
}

int libraries_scan(struct libraries *l, uint64_t since_ns)
{
        struct process_search s = {.l = l, .since_ns = since_ns};
        struct library *lib, *next;
        int r;

        attach_put_off(l);
        HASH_ITER (hh, l->by_file, lib, next)
                lib->mapped = false;
        r = proc_for_each(scan_process, &s);
        if (r < 0)
                return r;
        /* Whose mappings are locked may have any of them. */
        HASH_ITER (hh, l->by_file, lib, next) {
                if (!s.incomplete && !lib->mapped && !is_reachable(lib))
                        library_free(l, lib);
                else
                        forget_gaps(lib);
        }
        return 0;
}

void libraries_process_gone(struct libraries *l, pid_t pid)
{
        struct library *lib, *next;
        struct gap *g;

        HASH_ITER (hh, l->by_file, lib, next) {
                HASH_FIND(hh, lib->gaps, &pid, sizeof(pid), g);
                if (!g)
                        continue;
                HASH_DEL(lib->gaps, g);
                free(g);
        }
}

static bool has_launch(const struct library *lib, uint64_t offset)
{
        for (size_t i = 0; i < LAUNCH_FUNCTIONS_MAX; i++)
                if (lib->launches[i] && lib->launches[i] == offset)
                        return true;
        return false;
}

static bool ends_with(const char *text, const char *end)
{
        size_t n = strlen(text), m = strlen(end);

        return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether a path that the kernel has printed may mean this library. */
static bool may_be(const struct library *lib, const char *path)
{
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        struct stat st;

        /* It means something to whoever placed the probe only. */
        if (path[0] != '/' || strncmp(path, "/proc/", 6) == 0)
                return true;
        if (ends_with(path, " (deleted)") && is_reachable(lib))
                return false;
        if (stat(path, &st) == 0 && st.st_dev == lib->key.device)
                return st.st_ino == lib->key.inode;
        /* Of another mount namespace, or the same file through another mount. */
        return strncmp(name, LIBRARY_PREFIX, strlen(LIBRARY_PREFIX)) == 0;
}

bool libraries_launch_places(void *libraries, const char *path, uint64_t offset)
{
        struct libraries *l = libraries;
        struct library *lib, *next;

        HASH_ITER (hh, l->by_file, lib, next)
                if (!lib->error && has_launch(lib, offset) && may_be(lib, path))
                        return true;
        return false;
}

size_t libraries_count(const struct libraries *l)
{
        return l->attached;
}

const struct cpu_probes_library *libraries_get(const struct libraries *l, size_t i)
{
        struct library *lib, *next;

        HASH_ITER (hh, l->by_file, lib, next)
                if (!lib->error && i-- == 0)
                        return &lib->info;
        return NULL;
}
