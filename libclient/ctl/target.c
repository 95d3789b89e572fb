/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "target.h"

int target_refuse(struct target *t, int error, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(t->reason, sizeof(t->reason), format, args);
        va_end(args);
        return error;
}

int target_refuse_tracing(struct target *t)
{
        FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
        int scope = 0;

        if (f && fscanf(f, "%d", &scope) != 1)
                scope = 0;
        if (f)
                fclose(f);
        if (scope == 3)
                return target_refuse(t, -EPERM,
                                     "this system allows no process to be traced "
                                     "(kernel.yama.ptrace_scope is 3)");
        if (scope && geteuid() != 0)
                return target_refuse(t, -EPERM,
                                     "kernel.yama.ptrace_scope is %d: only root may do this "
                                     "here",
                                     scope);
        return target_refuse(t, -EPERM, "tracing it is not permitted (CAP_SYS_PTRACE is needed)");
}

/* ---- memory ---- */

static bool transfer(const struct target *t, uint64_t address, void *bytes, size_t size, bool write)
{
        char path[64];
        ssize_t n = -1;
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/mem", (int)t->pid);
        fd = open(path, (write ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
        if (fd < 0)
                return false;
        n = write ? pwrite(fd, bytes, size, (off_t)address)
                  : pread(fd, bytes, size, (off_t)address);
        close(fd);
        return n == (ssize_t)size;
}

bool target_read(const struct target *t, uint64_t address, void *to, size_t size)
{
        return transfer(t, address, to, size, false);
}

bool target_write(const struct target *t, uint64_t address, const void *from, size_t size)
{
        return transfer(t, address, (void *)(uintptr_t)from, size, true);
}

/* ---- mappings ---- */

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

static bool name_begins(const char *path, const char *name)
{
        return strncmp(base_name(path), name, strlen(name)) == 0;
}

static bool add_mapping(struct target *t, const char *line)
{
        struct target_mapping m = {0}, *all;
        char permissions[5];
        int path = 0;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %n", &m.start, &m.end,
                   permissions, &m.offset, &path) < 4)
                return true;
        m.executable = permissions[2] == 'x';
        m.path = strndup(line + path, strcspn(line + path, "\n"));
        all = reallocarray(t->mappings, t->mapping_count + 1, sizeof(*all));
        if (!all || !m.path) {
                free(m.path);
                return false;
        }
        t->mappings = all;
        all[t->mapping_count++] = m;
        return true;
}

static void mappings_done(struct target *t)
{
        for (size_t i = 0; i < t->mapping_count; i++)
                free(t->mappings[i].path);
        free(t->mappings);
        t->mappings = NULL;
        t->mapping_count = 0;
}

/* The allocator may be any library's, or the program's own. */
static void mark_unsafe(struct target *t)
{
        static const char *const names[] = {"libc.so",    "libc-",    "ld-linux",   "ld-2",
                                            "libpthread", "libdl",    "libcuda.so", "[vdso]",
                                            "[vsyscall]", "[uprobes]"};

        for (size_t i = 0; i < t->mapping_count; i++) {
                struct target_mapping *m = &t->mappings[i];

                for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
                        m->unsafe |= name_begins(m->path, names[k]);
        }
}

int target_read_mappings(struct target *t)
{
        char path[64], line[PATH_MAX + 128];
        FILE *f;
        bool good = true;

        mappings_done(t);
        snprintf(path, sizeof(path), "/proc/%d/maps", (int)t->pid);
        f = fopen(path, "re");
        if (!f)
                return target_refuse(t, -errno, "%s cannot be read: %s", path, strerror(errno));
        while (good && fgets(line, sizeof(line), f))
                good = add_mapping(t, line);
        fclose(f);
        if (!good)
                return target_refuse(t, -ENOMEM, "out of memory");
        if (!t->mapping_count)
                return target_refuse(t, -ESRCH, "the process has ended");
        mark_unsafe(t);
        return 0;
}

const struct target_mapping *target_mapping(const struct target *t, uint64_t address)
{
        for (size_t i = 0; i < t->mapping_count; i++)
                if (address >= t->mappings[i].start && address < t->mappings[i].end)
                        return &t->mappings[i];
        return NULL;
}

/* ---- symbols ---- */

struct file {
        uint8_t *bytes;
        size_t size;
};

static bool file_map(const struct target *t, const char *path, struct file *ret_file)
{
        char full[PATH_MAX + 64];
        struct stat st;
        int fd;

        snprintf(full, sizeof(full), "/proc/%d/root%s", (int)t->pid, path);
        fd = open(full, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        ret_file->bytes = MAP_FAILED;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > (off_t)sizeof(Elf64_Ehdr)) {
                ret_file->size = (size_t)st.st_size;
                ret_file->bytes = mmap(NULL, ret_file->size, PROT_READ, MAP_PRIVATE, fd, 0);
        }
        close(fd);
        return ret_file->bytes != MAP_FAILED;
}

/* Copies, since nothing in a file needs to be aligned. */
static bool get(const struct file *f, uint64_t offset, void *to, size_t size)
{
        if (offset > f->size || size > f->size - offset)
                return false;
        memcpy(to, f->bytes + offset, size);
        return true;
}

static bool is_elf64(const struct file *f, Elf64_Ehdr *ret_header)
{
        return get(f, 0, ret_header, sizeof(*ret_header)) &&
               memcmp(ret_header->e_ident, ELFMAG, SELFMAG) == 0 &&
               ret_header->e_ident[EI_CLASS] == ELFCLASS64 && ret_header->e_machine == EM_X86_64;
}

static bool symbol_is(const struct file *f, const Elf64_Shdr *names, const Elf64_Sym *s,
                      const char *name)
{
        size_t length = strlen(name) + 1;

        return s->st_shndx != SHN_UNDEF && s->st_name < names->sh_size &&
               names->sh_offset <= f->size && s->st_name <= f->size - names->sh_offset &&
               length <= f->size - names->sh_offset - s->st_name &&
               memcmp(f->bytes + names->sh_offset + s->st_name, name, length) == 0;
}

/* Value of a dynamic symbol; 0: none. */
static uint64_t symbol_value(const struct file *f, const char *name)
{
        Elf64_Shdr section, names;
        Elf64_Ehdr h;
        Elf64_Sym s;

        if (!is_elf64(f, &h))
                return 0;
        for (unsigned i = 0; i < h.e_shnum; i++) {
                if (!get(f, h.e_shoff + i * sizeof(section), &section, sizeof(section)))
                        return 0;
                if (section.sh_type != SHT_DYNSYM || section.sh_link >= h.e_shnum ||
                    !get(f, h.e_shoff + section.sh_link * sizeof(names), &names, sizeof(names)))
                        continue;
                for (uint64_t at = 0; at + sizeof(s) <= section.sh_size; at += sizeof(s))
                        if (get(f, section.sh_offset + at, &s, sizeof(s)) &&
                            symbol_is(f, &names, &s, name))
                                return s.st_value;
        }
        return 0;
}

/* Where address 0 of the file would be: the first segment is mapped from its beginning. */
static uint64_t load_base(const struct target *t, const struct file *f, const char *path)
{
        Elf64_Phdr p;
        Elf64_Ehdr h;

        if (!is_elf64(f, &h))
                return 0;
        for (unsigned i = 0; i < h.e_phnum; i++) {
                if (!get(f, h.e_phoff + i * sizeof(p), &p, sizeof(p)) || p.p_type != PT_LOAD)
                        continue;
                for (size_t k = 0; k < t->mapping_count; k++)
                        if (t->mappings[k].offset == (p.p_offset & ~0xfffull) &&
                            strcmp(t->mappings[k].path, path) == 0)
                                return t->mappings[k].start - (p.p_vaddr & ~0xfffull);
        }
        return 0;
}

static uint64_t symbol_in(const struct target *t, const char *path, const char *symbol)
{
        uint64_t value, base;
        struct file f;

        if (path[0] != '/' || !file_map(t, path, &f))
                return 0;
        value = symbol_value(&f, symbol);
        base = value ? load_base(t, &f, path) : 0;
        munmap(f.bytes, f.size);
        return value ? base + value : 0;
}

uint64_t target_symbol(const struct target *t, const char *file, const char *symbol)
{
        for (size_t i = 0; i < t->mapping_count; i++) {
                uint64_t found;

                if (!name_begins(t->mappings[i].path, file) || t->mappings[i].offset)
                        continue;
                found = symbol_in(t, t->mappings[i].path, symbol);
                if (found)
                        return found;
        }
        return 0;
}

static bool is_mapped(const struct target *t, const char *file)
{
        for (size_t i = 0; i < t->mapping_count; i++)
                if (name_begins(t->mappings[i].path, file))
                        return true;
        return false;
}

/* Objects that have an allocator of their own. */
static void mark_allocators(struct target *t)
{
        for (size_t i = 0; i < t->mapping_count; i++) {
                const char *path = t->mappings[i].path;

                if (t->mappings[i].offset || t->mappings[i].unsafe || !symbol_in(t, path, "malloc"))
                        continue;
                for (size_t k = 0; k < t->mapping_count; k++)
                        if (strcmp(t->mappings[k].path, path) == 0)
                                t->mappings[k].unsafe = true;
        }
}

/* ---- what has to be there ---- */

/* What the status file in a directory of /proc says of a field, in text; false: nothing. */
static bool read_status(const char *directory, const char *field, char text[512])
{
        size_t length = strlen(field);
        bool found = false;
        char path[96];
        FILE *f;

        snprintf(path, sizeof(path), "%s/status", directory);
        f = fopen(path, "re");
        while (f && !found && fgets(text, 512, f))
                found = strncmp(text, field, length) == 0 && text[length] == ':';
        if (f)
                fclose(f);
        if (found)
                memmove(text, text + length + 1, strlen(text + length + 1) + 1);
        return found;
}

static bool process_status(const struct target *t, const char *field, char text[512])
{
        char directory[64];

        snprintf(directory, sizeof(directory), "/proc/%d", (int)t->pid);
        return read_status(directory, field, text);
}

/* A number of it; -1: there is none. */
static long status_of(const struct target *t, const char *field)
{
        char text[512];

        return process_status(t, field, text) ? strtol(text, NULL, 10) : -1;
}

static bool has_shadow_stack(const struct target *t)
{
        char text[512];

        return process_status(t, "x86_Thread_features", text) && strstr(text, "shstk");
}

ssize_t target_threads(const struct target *t, pid_t **ret_threads)
{
        char path[64];
        struct dirent *e;
        pid_t *threads = NULL, *more;
        ssize_t count = 0;
        DIR *d;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)t->pid);
        d = opendir(path);
        if (!d)
                return -errno;
        while ((e = readdir(d))) {
                if (e->d_name[0] < '0' || e->d_name[0] > '9')
                        continue;
                more = reallocarray(threads, (size_t)count + 1, sizeof(*more));
                if (!more) {
                        free(threads);
                        closedir(d);
                        return -ENOMEM;
                }
                threads = more;
                threads[count++] = (pid_t)strtol(e->d_name, NULL, 10);
        }
        closedir(d);
        *ret_threads = threads;
        return count;
}

/* The strictest mode of any thread: a filter may be one thread's alone. */
static long seccomp_mode(const struct target *t)
{
        pid_t *threads = NULL;
        ssize_t count = target_threads(t, &threads);
        char directory[64], text[512];
        long mode = 0;

        for (ssize_t i = 0; i < count && mode != SECCOMP_MODE_STRICT; i++) {
                snprintf(directory, sizeof(directory), "/proc/%d/task/%d", (int)t->pid,
                         (int)threads[i]);
                if (read_status(directory, "Seccomp", text) && strtol(text, NULL, 10) > 0)
                        mode = strtol(text, NULL, 10);
        }
        free(threads);
        return mode;
}

int target_check_seccomp(struct target *t)
{
        long mode = seccomp_mode(t);

        if (mode == SECCOMP_MODE_STRICT)
                return target_refuse(t, -EPERM,
                                     "it is in seccomp's strict mode, in which any call of the "
                                     "agent's would end it; start it under gpuobsctl run instead");
        if (mode > 0 && !t->allow_seccomp)
                return target_refuse(
                        t, -EPERM,
                        "it is confined by a seccomp filter, which may end it for what the agent "
                        "does; start it under gpuobsctl run instead, or give --allow-seccomp if "
                        "its filter permits the agent's calls, as those of containers do");
        return 0;
}

static int check_status(struct target *t)
{
        long uid = status_of(t, "Uid"), tracer = status_of(t, "TracerPid");
        char mine[64] = "", its[64] = "", path[64];

        if (uid < 0)
                return target_refuse(t, -ESRCH, "there is no process %d", (int)t->pid);
        if (geteuid() != 0 && (uid_t)uid != geteuid())
                return target_refuse(t, -EPERM,
                                     "the process is another user's: be root, or that user");
        if (tracer > 0)
                return target_refuse(t, -EBUSY, "process %ld (a debugger?) traces it already",
                                     tracer);
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)t->pid);
        if (readlink("/proc/self/ns/user", mine, sizeof(mine) - 1) > 0 &&
            readlink(path, its, sizeof(its) - 1) > 0 && strcmp(mine, its) != 0)
                return target_refuse(t, -EPERM,
                                     "it is in another user namespace: attach from in there");
        if (has_shadow_stack(t))
                return target_refuse(t, -ENOTSUP, "it runs with a shadow stack");
        return target_check_seccomp(t);
}

/* The kernel asks the same of who opens a process's memory as of who traces it. */
static int check_access(struct target *t)
{
        char path[64];
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/mem", (int)t->pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && (errno == EACCES || errno == EPERM))
                return target_refuse_tracing(t);
        if (fd >= 0)
                close(fd);
        return 0;
}

static int check_program(struct target *t)
{
        char path[64], magic[EI_NIDENT] = "";
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/exe", (int)t->pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return target_refuse(t, -errno, "its program cannot be read: %s", strerror(errno));
        if (read(fd, magic, sizeof(magic)) != (ssize_t)sizeof(magic))
                magic[0] = '\0';
        close(fd);
        if (magic[EI_CLASS] != ELFCLASS64)
                return target_refuse(t, -ENOTSUP, "it is a 32-bit program");
        if (is_mapped(t, "ld-musl"))
                return target_refuse(t, -ENOTSUP, "it uses musl, for which there is no agent");
        if (!is_mapped(t, "libc.so") && !is_mapped(t, "libc-2"))
                return target_refuse(t, -ENOTSUP,
                                     "it has no libc: it is statically linked and cannot load "
                                     "libraries, or is only just starting");
        return 0;
}

static int find_functions(struct target *t)
{
        static const char *const files[] = {"libc.so", "libc-2", "libdl.so", "libdl-2"};

        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !t->dlopen; i++) {
                t->dlopen = target_symbol(t, files[i], "dlopen");
                t->dlsym = target_symbol(t, files[i], "dlsym");
                t->dlerror = target_symbol(t, files[i], "dlerror");
                if (!t->dlsym || !t->dlerror)
                        t->dlopen = 0;
        }
        if (!t->dlopen)
                return target_refuse(t, -ENOTSUP,
                                     "its C library has no dlopen (libdl is not loaded)");
        return 0;
}

/* In the code of its C library: a system call, and the returns of signal handlers. */
static void scan_code(struct target *t, const uint8_t *code, size_t size, uint64_t address)
{
        static const uint8_t call[] = {0x0f, 0x05};
        static const uint8_t back[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};

        for (size_t i = 0; i + sizeof(back) <= size; i++) {
                if (!t->syscall && memcmp(code + i, call, sizeof(call)) == 0)
                        t->syscall = address + i;
                if (memcmp(code + i, back, sizeof(back)) == 0 &&
                    t->return_count < sizeof(t->returns) / sizeof(t->returns[0]))
                        t->returns[t->return_count++] = address + i;
        }
}

static int find_code(struct target *t)
{
        for (size_t i = 0; i < t->mapping_count; i++) {
                const struct target_mapping *m = &t->mappings[i];
                size_t size = m->end - m->start;
                uint8_t *code;

                if (!m->executable ||
                    (!name_begins(m->path, "libc.so") && !name_begins(m->path, "libc-2") &&
                     !name_begins(m->path, "libpthread")))
                        continue;
                code = malloc(size);
                if (code && target_read(t, m->start, code, size))
                        scan_code(t, code, size, m->start);
                free(code);
        }
        return t->syscall && t->return_count
                       ? 0
                       : target_refuse(t, -EPERM,
                                       "its memory cannot be read, or its C library is not "
                                       "understood");
}

static void read_comm(struct target *t)
{
        char path[64];
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/comm", (int)t->pid);
        f = fopen(path, "re");
        if (!f || !fgets(t->comm, sizeof(t->comm), f))
                t->comm[0] = '\0';
        if (f)
                fclose(f);
        t->comm[strcspn(t->comm, "\n")] = '\0';
}

int target_open(pid_t pid, bool allow_seccomp, struct target *t)
{
        int r;

        *t = (struct target){.pid = pid, .allow_seccomp = allow_seccomp};
        r = check_status(t);
        if (r == 0)
                r = check_access(t);
        if (r == 0)
                r = target_read_mappings(t);
        if (r == 0)
                r = check_program(t);
        if (r == 0)
                r = find_functions(t);
        if (r == 0)
                r = find_code(t);
        if (r == 0)
                mark_allocators(t);
        read_comm(t);
        return r;
}

void target_done(struct target *t)
{
        mappings_done(t);
}

int target_reaches(struct target *t, const char *path, const char *what)
{
        char there[PATH_MAX + 64];
        struct stat mine, its;

        snprintf(there, sizeof(there), "/proc/%d/root%s", (int)t->pid, path);
        if (path[0] != '/' || stat(path, &mine) < 0)
                return target_refuse(t, -ENOENT, "%s %s: %s", what, path,
                                     path[0] != '/' ? "not an absolute path" : strerror(errno));
        if (stat(there, &its) < 0 || its.st_dev != mine.st_dev || its.st_ino != mine.st_ino)
                return target_refuse(
                        t, -ENOENT,
                        "%s %s is not there for the process (a container?): mount it at the "
                        "same place in there",
                        what, path);
        return 0;
}

/* ---- threads ---- */

bool target_call(const struct target *t, pid_t thread, struct target_call *ret_call)
{
        struct target_call c = {.number = -1};
        char path[64], line[512];
        FILE *f;
        bool good;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)t->pid, (int)thread);
        f = fopen(path, "re");
        good = f && fgets(line, sizeof(line), f);
        if (f)
                fclose(f);
        if (!good)
                return false;
        c.running = strncmp(line, "running", 7) == 0;
        if (!c.running)
                good = sscanf(line,
                              "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
                              " %" SCNx64,
                              &c.number, &c.arguments[0], &c.arguments[1], &c.arguments[2],
                              &c.arguments[3], &c.arguments[4], &c.arguments[5]) >= 1;
        *ret_call = c;
        return good;
}

/* Condition variables, semaphores and joins wait so; the locks of malloc and ld.so do not. */
static bool is_wait(const struct target_call *c)
{
        return (c->arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
}

bool target_call_is_quiet(const struct target_call *c)
{
        switch (c->number) {
        case SYS_poll:
        case SYS_ppoll:
        case SYS_select:
        case SYS_pselect6:
        case SYS_nanosleep:
        case SYS_clock_nanosleep:
        case SYS_wait4:
        case SYS_waitid:
        case SYS_pause:
                return true;
        case SYS_restart_syscall: /* one with a time limit of these, interrupted before */
                return true;
        case SYS_futex:
                return is_wait(c);
        default:
                return false;
        }
}

bool target_call_breaks(const struct target_call *c)
{
        switch (c->number) {
        case SYS_epoll_wait:
        case SYS_epoll_pwait:
        case SYS_recvfrom:
        case SYS_recvmsg:
        case SYS_recvmmsg:
        case SYS_accept:
        case SYS_accept4:
        case SYS_connect:
        case SYS_rt_sigtimedwait:
        case SYS_rt_sigsuspend:
        case SYS_semop:
        case SYS_semtimedop:
        case SYS_msgrcv:
        case SYS_msgsnd:
        case SYS_io_getevents:
        case SYS_read:
                return true;
        default:
                return false;
        }
}
