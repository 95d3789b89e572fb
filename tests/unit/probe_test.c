/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "probe/cuda_functions.h"
#include "probe/elf_symbols.h"
#include "probe/ld_cache.h"
#include "probe/proc_maps.h"
#include "probe/process_info.h"
#include "unit/test.h"
#include "util/macro.h"

/* ---- the function table ---- */

static bool is_position(uint8_t position)
{
        return (position & CPU_ARG_MASK) <= CPU_ARG_MAX &&
               (position & ~(CPU_ARG_MASK | CPU_ARG_OUT)) == 0;
}

static void test_function_table(void)
{
        size_t i, k;

        for (i = 0; i < cuda_function_count; i++) {
                const struct cuda_function *f = &cuda_functions[i];
                union cpu_call_cookie c = f->cookie;
                bool per_thread = strstr(f->name, "_ptsz") || strstr(f->name, "_ptds");

                for (k = 0; k < i; k++)
                        CHECK(strcmp(f->name, cuda_functions[k].name) != 0);
                if (f->program != CUDA_PROGRAM_CALL) {
                        CHECK_EQ(c.value, per_thread);
                        continue;
                }
                CHECK(c.action >= CPU_CALL_OPERATION && c.action <= CPU_CALL_CONTEXT_POP);
                CHECK((c.bytes & 0x0f) <= CPU_ARG_MAX && c.bytes >> 4 <= CPU_ARG_MAX);
                CHECK((c.parent & 0x0f) <= CPU_ARG_MAX && c.parent >> 4 <= CPU_ARG_MAX);
                CHECK(is_position(c.address) && is_position(c.stream) && is_position(c.handle));
                CHECK(!(c.stream & CPU_ARG_OUT));
                if (c.action == CPU_CALL_OPERATION)
                        CHECK_EQ(!!(c.flags & CPU_CALL_PER_THREAD), per_thread);
                if (c.action == CPU_CALL_CREATE || c.action == CPU_CALL_INSTANTIATE)
                        CHECK_EQ(c.handle, CPU_ARG_OUT | 1);
        }
        CHECK(i > 100);
}

/* ---- ELF ---- */

/* Defined and exported here, looked up in this very program. */
__attribute__((visibility("default"), noinline)) int probe_test_marker(int x);
int probe_test_marker(int x)
{
        return x * 31 + 7;
}

static void test_elf_functions(void)
{
        static const char *const names[] = {"probe_test_marker", "no_such_function", "main"};
        uint64_t offsets[ARRAY_SIZE(names)];
        unsigned char code[16];
        int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

        CHECK(fd >= 0);
        CHECK(elf_find_functions(fd, names, ARRAY_SIZE(names), offsets) >= 1);
        CHECK(offsets[0] > 0);
        CHECK_EQ(offsets[1], 0);
        /* The bytes in the file are the function's. */
        CHECK_EQ(pread(fd, code, sizeof(code), (off_t)offsets[0]), sizeof(code));
        CHECK_EQ(memcmp(code, (const void *)probe_test_marker, sizeof(code)), 0);
        close(fd);
}

static int elf_of(const void *bytes, size_t size)
{
        static const char *const names[] = {"cuLaunchKernel"};
        uint64_t offset;
        int fd = memfd_create("elf", MFD_CLOEXEC), r;

        CHECK(fd >= 0);
        CHECK_EQ(write(fd, bytes, size), size);
        r = elf_find_functions(fd, names, 1, &offset);
        close(fd);
        return r;
}

static void test_elf_refusals(void)
{
        Elf64_Ehdr header = {
                .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                .e_type = ET_DYN,
                .e_machine = EM_X86_64,
                .e_version = EV_CURRENT,
                .e_ehsize = sizeof(header),
                .e_shentsize = sizeof(Elf64_Shdr),
                .e_shoff = 1ULL << 40, /* beyond the end */
                .e_shnum = 3,
        };

        CHECK(elf_of("hello", 5) < 0);
        CHECK(elf_of("", 0) < 0);
        CHECK(elf_of(&header, sizeof(header)) < 0);
        header.e_shoff = 0;
        header.e_shnum = 0;
        CHECK_EQ(elf_of(&header, sizeof(header)), -ENOEXEC);
        header.e_ident[EI_CLASS] = ELFCLASS32;
        CHECK(elf_of(&header, sizeof(header)) < 0);
}

/* ---- the linker's cache ---- */

struct cache_image {
        char magic[20];
        uint32_t count, strings_bytes, unused[5];
        struct {
                uint32_t flags, name, path, os_version;
                uint64_t hwcap;
        } entries[2];
        char strings[64];
};

static char found_path[64];
static int found_count;

static void note_path(void *data, const char *path)
{
        snprintf(found_path, sizeof(found_path), "%s", path);
        found_count++;
}

static void test_ld_cache(void)
{
        struct cache_image image = {
                .magic = "glibc-ld.so.cache1.",
                .count = 2,
                .strings = "libc.so.6\0/lib/libc.so.6\0libcuda.so.1\0/x/libcuda.so.1",
        };
        uint32_t base = offsetof(struct cache_image, strings);
        char old[sizeof(image) + 40] = "ld.so-1.7.0";

        image.magic[19] = '1';
        image.entries[0].name = base;
        image.entries[0].path = base + 10;
        image.entries[1].name = base + 25;
        image.entries[1].path = base + 38;
        found_count = 0;
        CHECK_EQ(ld_cache_search(&image, sizeof(image), "libcuda.so", note_path, NULL), 0);
        CHECK_EQ(found_count, 1);
        CHECK_STR(found_path, "/x/libcuda.so.1");

        /* Behind one of the old format. */
        memcpy(old + 40, &image, sizeof(image));
        CHECK_EQ(ld_cache_search(old, sizeof(old), "libcuda.so", note_path, NULL), 0);
        CHECK_EQ(found_count, 2);

        image.entries[1].path = sizeof(image);
        CHECK_EQ(ld_cache_search(&image, sizeof(image), "libcuda", note_path, NULL), -EBADMSG);
        image.count = 0x40000000;
        CHECK_EQ(ld_cache_search(&image, sizeof(image), "libcuda", note_path, NULL), -EBADMSG);
        CHECK_EQ(ld_cache_search(&image, 30, "libcuda", note_path, NULL), -EBADMSG);
        CHECK_EQ(ld_cache_search("", 0, "libcuda", note_path, NULL), -EBADMSG);
        CHECK_EQ(found_count, 2);
}

/* ---- /proc ---- */

static int parse_map(const char *text, struct proc_mapping *ret_mapping)
{
        static char line[512];

        snprintf(line, sizeof(line), "%s", text);
        return proc_maps_parse_line(line, "libcuda.so", ret_mapping);
}

static void test_maps_lines(void)
{
        struct proc_mapping m;

        CHECK_EQ(parse_map("7f10a000-7f20b000 r-xp 00001000 fd:01 424242      "
                           "             /opt/lib 64/libcuda.so.580.1\n",
                           &m),
                 1);
        CHECK_EQ(m.start, 0x7f10a000);
        CHECK_EQ(m.end, 0x7f20b000);
        CHECK_EQ(m.inode, 424242);
        CHECK_STR(m.path, "/opt/lib 64/libcuda.so.580.1");
        CHECK_EQ(parse_map("1-2 r--p 0 00:00 7 /a/libcuda.so.1 (deleted)\n", &m), 1);
        CHECK_STR(m.path, "/a/libcuda.so.1");

        CHECK_EQ(parse_map("1-2 r--p 0 00:00 7 /a/libcuda.so.d/other\n", &m), 0);
        CHECK_EQ(parse_map("1-2 r--p 0 00:00 7 /a/mylibcuda.so.1\n", &m), 0);
        CHECK_EQ(parse_map("1-2 rw-p 0 00:00 0 [heap libcuda.so]\n", &m), 0);
        CHECK_EQ(parse_map("1-2 rw-p 0 00:00 0 \n", &m), 0);
        CHECK_EQ(parse_map("", &m), 0);
        CHECK_EQ(parse_map("libcuda.so\n", &m), 0);
}

static void count_mapping(void *data, pid_t pid, const struct proc_mapping *m)
{
        CHECK_EQ(pid, getpid());
        CHECK(m->inode && m->end > m->start);
        ++*(unsigned *)data;
}

/* A library once, however many its mappings; of a device's memory each mapping is a piece. */
static void test_maps_of_one_file(void)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        int fd = memfd_create("pieces", MFD_CLOEXEC);
        char *room = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        unsigned files = 0, pieces = 0;

        CHECK(fd >= 0 && room != MAP_FAILED && ftruncate(fd, (off_t)page) == 0);
        for (size_t i = 0; i < 3; i += 2)
                CHECK(mmap(room + i * page, page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) !=
                      MAP_FAILED);
        CHECK_EQ(proc_maps_search(getpid(), "memfd:pieces", count_mapping, &files), 0);
        CHECK_EQ(proc_maps_each(getpid(), "memfd:pieces", count_mapping, &pieces), 0);
        CHECK_EQ(files, 1);
        CHECK_EQ(pieces, 2);
        munmap(room, 3 * page);
        close(fd);
}

static void test_stat_text(void)
{
        char comm[16];
        uint64_t ticks;

        CHECK_EQ(process_parse_stat("12 (a b) c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 "
                                    "98765 20 21\n",
                                    comm, &ticks),
                 0);
        CHECK_STR(comm, "a b) c)");
        CHECK_EQ(ticks, 98765);
        CHECK_EQ(process_parse_stat("12 (x) S 1 2 3", comm, &ticks), -EBADMSG);
        CHECK_EQ(process_parse_stat("12 x S 1", comm, &ticks), -EBADMSG);
        CHECK_EQ(process_parse_stat(")(", comm, &ticks), -EBADMSG);
        CHECK_EQ(process_parse_stat("", comm, &ticks), -EBADMSG);
        CHECK_EQ(process_parse_stat("1 (a-name-longer-than-fifteen) S 1 2 3 4 5 6 7 8 9 10 11 12 "
                                    "13 14 15 16 17 18 x",
                                    comm, &ticks),
                 -EBADMSG);
}

static void test_own_process(void)
{
        struct process_info info = {0};
        char exe[4096];
        uint64_t ticks;
        ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

        CHECK(n > 0);
        exe[n] = '\0';
        CHECK_EQ(prctl(PR_SET_NAME, "a) (b"), 0);
        CHECK_EQ(process_info_read(getpid(), &info), 0);
        CHECK_EQ(info.pid, getpid());
        CHECK_EQ(info.uid, getuid());
        CHECK_STR(info.comm, "a) (b");
        CHECK_STR(info.exe, exe);
        CHECK(info.cgroup != NULL);
        CHECK(info.started_realtime_ns > 0);
        CHECK_EQ(process_start_ticks(getpid(), &ticks), 0);
        CHECK_EQ(ticks, info.start_ticks);
        /* Ticks after boot: it has started, and not long ago. */
        CHECK(ticks > 0);
        process_info_done(&info);
        CHECK(!info.exe && !info.cgroup);
        CHECK_EQ(process_info_read(0x3fffffff, &info), -ESRCH);
}

int main(void)
{
        TEST(test_function_table);
        TEST(test_elf_functions);
        TEST(test_elf_refusals);
        TEST(test_ld_cache);
        TEST(test_maps_lines);
        TEST(test_maps_of_one_file);
        TEST(test_stat_text);
        TEST(test_own_process);
        return 0;
}
