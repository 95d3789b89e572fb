/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "memory_map.h"

/* PROCMAP_QUERY of linux/fs.h, Linux 6.11: newer than the headers of Debian 12. */
struct map_query {
        uint64_t size, flags, address;
        uint64_t start, end, permissions;
        uint64_t page_size, offset, inode;
        uint32_t device_major, device_minor;
        uint32_t name_bytes, build_id_bytes;
        uint64_t name, build_id;
};
_Static_assert(sizeof(struct map_query) == 104, "as the kernel has it");
#define MAP_QUERY            _IOWR('f', 17, struct map_query)
#define MAP_QUERY_READABLE   1 /* in permissions */
#define MAP_QUERY_WRITABLE   2
#define MAP_QUERY_EXECUTABLE 4

/* One line of /proc/self/maps. The path is the rest of the line, blanks included. */
static bool parse_line(const char *line, struct memory_mapping *ret_mapping)
{
        struct memory_mapping m = {0};
        char permissions[5];
        int path_at = 0;
        size_t length;

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &m.start,
                   &m.end, permissions, &m.offset, &m.device_major, &m.device_minor, &m.inode,
                   &path_at) < 7)
                return false;
        m.readable = permissions[0] == 'r';
        m.writable = permissions[1] == 'w';
        m.executable = permissions[2] == 'x';
        length = path_at ? strcspn(line + path_at, "\n") : 0;
        if (length >= sizeof(m.path))
                length = sizeof(m.path) - 1;
        memcpy(m.path, line + path_at, length);
        *ret_mapping = m;
        return true;
}

static FILE *open_maps(void)
{
        return fopen("/proc/self/maps", "re");
}

/*
 * Only "start-end r": mappings are asked for with every image and every function that is
 * hooked, in processes with thousands of them (a millisecond each time, where the kernel does
 * not answer for single ones and all of each line is read).
 */
static bool parse_range(const char *line, uintptr_t *ret_start, uintptr_t *ret_end,
                        bool *ret_readable)
{
        char *at;

        *ret_start = strtoull(line, &at, 16);
        if (*at != '-')
                return false;
        *ret_end = strtoull(at + 1, &at, 16);
        *ret_readable = at[0] == ' ' && at[1] == 'r';
        return at[0] == ' ';
}

/* 0; -ENOENT nothing is mapped there; other -errno: the kernel does not answer such questions. */
static int query_mapping(int maps, uintptr_t address, struct memory_mapping *m)
{
        struct map_query q = {.size = sizeof(q),
                              .address = address,
                              .name = (uintptr_t)m->path,
                              .name_bytes = sizeof(m->path)};

        m->path[0] = '\0';
        if (ioctl(maps, MAP_QUERY, &q) < 0)
                return -errno;
        m->start = q.start;
        m->end = q.end;
        m->offset = q.offset;
        m->device_major = q.device_major;
        m->device_minor = q.device_minor;
        m->inode = q.inode;
        m->readable = q.permissions & MAP_QUERY_READABLE;
        m->writable = q.permissions & MAP_QUERY_WRITABLE;
        m->executable = q.permissions & MAP_QUERY_EXECUTABLE;
        return 0;
}

static int read_mapping(FILE *maps, uintptr_t address, struct memory_mapping *m)
{
        char line[PATH_MAX + 128];
        uintptr_t start, end;
        bool readable;

        while (fgets(line, sizeof(line), maps))
                if (parse_range(line, &start, &end, &readable) && address >= start && address < end)
                        return parse_line(line, m) ? 0 : -ENOENT;
        return -ENOENT;
}

int memory_mapping_find(uintptr_t address, struct memory_mapping *ret_mapping)
{
        struct memory_mapping m;
        FILE *maps = open_maps();
        int r;

        if (!maps)
                return -errno;
        r = query_mapping(fileno(maps), address, &m);
        if (r < 0 && r != -ENOENT)
                r = read_mapping(maps, address, &m);
        fclose(maps);
        if (r == 0)
                *ret_mapping = m;
        return r;
}

const char *memory_file_path(const void *address, char *buffer, size_t size)
{
        struct memory_mapping *m = address ? malloc(sizeof(*m)) : NULL;

        buffer[0] = '\0';
        if (m && memory_mapping_find((uintptr_t)address, m) == 0 && m->inode)
                snprintf(buffer, size, "%s", m->path);
        free(m);
        return buffer;
}

void memory_mappings_each(bool (*visit)(void *data, const struct memory_mapping *m), void *data)
{
        struct memory_mapping m;
        char line[PATH_MAX + 128];
        FILE *maps = open_maps();

        if (!maps)
                return;
        while (fgets(line, sizeof(line), maps))
                if (parse_line(line, &m) && !visit(data, &m))
                        break;
        fclose(maps);
}

uintptr_t memory_mapping_named(const char *name)
{
        struct memory_mapping m;
        char line[PATH_MAX + 128];
        FILE *maps = open_maps();
        uintptr_t start = 0;

        if (!maps)
                return 0;
        while (!start && fgets(line, sizeof(line), maps))
                if (parse_line(line, &m) && strcmp(m.path, name) == 0)
                        start = m.start;
        fclose(maps);
        return start;
}

/* Ask the kernel for single mappings. False: it does not answer such questions. */
static bool query_readable_end(int maps, uintptr_t at, size_t enough, uintptr_t *ret_end)
{
        struct map_query q;
        uintptr_t end = at;

        while (end - at < enough) {
                q = (struct map_query){.size = sizeof(q), .address = end};
                if (ioctl(maps, MAP_QUERY, &q) < 0) {
                        if (errno != ENOENT)
                                return false;
                        break;
                }
                if (!(q.permissions & MAP_QUERY_READABLE))
                        break;
                end = q.end;
        }
        *ret_end = end;
        return true;
}

static uintptr_t read_readable_end(FILE *maps, uintptr_t at, size_t enough)
{
        char line[PATH_MAX + 128];
        uintptr_t end = at, start, stop;
        bool readable;

        while (end - at < enough && fgets(line, sizeof(line), maps)) {
                if (!parse_range(line, &start, &stop, &readable) || stop <= end)
                        continue;
                if (start > end || !readable)
                        break;
                end = stop;
        }
        return end;
}

size_t memory_readable_bytes(const void *address, size_t enough)
{
        uintptr_t at = (uintptr_t)address, end = at;
        FILE *maps = open_maps();

        if (!maps)
                return 0;
        if (!query_readable_end(fileno(maps), at, enough, &end))
                end = read_readable_end(maps, at, enough);
        fclose(maps);
        return end - at;
}

static int open_mapped_file(const struct memory_mapping *m)
{
        char path[80];
        int fd;

        snprintf(path, sizeof(path), "/proc/self/map_files/%" PRIxPTR "-%" PRIxPTR, m->start,
                 m->end);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
                return fd;
        /* Reading map_files takes a privilege; without it the path must do. */
        fd = open(m->path, O_RDONLY | O_CLOEXEC);
        return fd >= 0 ? fd : -ESTALE;
}

ssize_t memory_file_bytes(uintptr_t address, void *buffer, size_t size)
{
        struct memory_mapping m;
        ssize_t n;
        int fd, r;

        r = memory_mapping_find(address, &m);
        if (r < 0)
                return r;
        if (!m.inode)
                return -ENOENT;
        if (size > m.end - address)
                size = m.end - address;
        fd = open_mapped_file(&m);
        if (fd < 0)
                return fd;
        n = pread(fd, buffer, size, (off_t)(m.offset + (address - m.start)));
        r = -errno;
        close(fd);
        return n < 0 ? r : n;
}
