/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/proc_maps.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "util/macro.h"
#include "util/slurp.h"

#define DELETED " (deleted)"

static void strip_deleted(char *path)
{
        size_t length = strlen(path), suffix = strlen(DELETED);

        if (length > suffix && strcmp(path + length - suffix, DELETED) == 0)
                path[length - suffix] = '\0';
}

int proc_maps_parse_line(char *line, const char *prefix, struct proc_mapping *ret_mapping)
{
        struct proc_mapping m;
        const char *name;
        int consumed = 0;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*4s %*x %*x:%*x %" SCNu64 " %n", &m.start,
                   &m.end, &m.inode, &consumed) != 3 ||
            !consumed || line[consumed] != '/')
                return 0;
        line[consumed + strcspn(line + consumed, "\n")] = '\0';
        strip_deleted(line + consumed);
        m.path = line + consumed;
        name = strrchr(m.path, '/') + 1;
        if (strncmp(name, prefix, strlen(prefix)) != 0)
                return 0;
        *ret_mapping = m;
        return 1;
}

/* once: only the first of a run of neighbouring mappings of one file. */
static int search(pid_t pid, const char *prefix, bool once,
                  void (*found)(void *data, pid_t pid, const struct proc_mapping *mapping),
                  void *data)
{
        _cleanup_free_ char *text = NULL;
        struct proc_mapping mapping;
        uint64_t last_inode = 0;
        char path[64], *rest, *line;
        size_t size;
        int r;

        snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
        r = slurp(path, &text, &size); /* it waits for the process's lock */
        if (r < 0)
                return r;
        for (rest = text; (line = strsep(&rest, "\n"));) {
                /* Most lines fall here, before anything is parsed. */
                if (!strstr(line, prefix) || !proc_maps_parse_line(line, prefix, &mapping))
                        continue;
                if (once && mapping.inode == last_inode)
                        continue;
                last_inode = mapping.inode;
                found(data, pid, &mapping);
        }
        return 0;
}

int proc_maps_search(pid_t pid, const char *prefix,
                     void (*found)(void *data, pid_t pid, const struct proc_mapping *mapping),
                     void *data)
{
        return search(pid, prefix, true, found, data);
}

int proc_maps_each(pid_t pid, const char *prefix,
                   void (*found)(void *data, pid_t pid, const struct proc_mapping *mapping),
                   void *data)
{
        return search(pid, prefix, false, found, data);
}

bool proc_mappings_hang(int error)
{
        return error == -ETIMEDOUT || error == -EBUSY;
}

int proc_mapping_open(pid_t pid, const struct proc_mapping *mapping)
{
        char path[PATH_MAX];
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid,
                 mapping->start, mapping->end);
        fd = slurp_open(path);
        if (fd >= 0 || proc_mappings_hang(fd))
                return fd;
        /* Without the privilege for that, or the mapping has moved since: by name. */
        if ((size_t)snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, mapping->path) >=
            sizeof(path))
                return -ENAMETOOLONG;
        return slurp_open(path);
}

/* A mapping that nobody has is looked for with the lock, by newer kernels as well. */
bool proc_mappings_locked(pid_t pid)
{
        char path[64];
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/map_files/0-0", (int)pid);
        fd = slurp_open(path);
        if (fd >= 0)
                close(fd);
        return proc_mappings_hang(fd);
}

int proc_for_each(void (*each)(void *data, pid_t pid), void *data)
{
        DIR *proc = opendir("/proc");
        struct dirent *entry;
        char *end;
        long pid;

        if (!proc)
                return -errno;
        while ((entry = readdir(proc))) {
                pid = strtol(entry->d_name, &end, 10);
                if (pid > 0 && *end == '\0')
                        each(data, (pid_t)pid);
        }
        closedir(proc);
        return 0;
}
