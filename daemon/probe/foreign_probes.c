/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/foreign_probes.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe/proc_maps.h"
#include "util/macro.h"

/* enum bpf_link_type, Linux 5.15 and 6.6 */
#define LINK_PERF_EVENT   7u
#define LINK_UPROBE_MULTI 12u

/* enum bpf_perf_event_type, Linux 6.6 */
#define PERF_UNKNOWN   0u
#define PERF_UPROBE    1u
#define PERF_URETPROBE 2u

#define OFFSETS_MAX  65536u
#define LINKS_MAX    65536u
#define PROGRAMS_MAX 65536u

static const char cannot_tell[] = "this kernel does not say where others have probes";
static const char found_one[] = "somebody else has a probe on a launch function";

/* struct bpf_link_info as of Linux 6.8; the headers here are older. */
struct link_info {
        uint32_t type;
        uint32_t id;
        uint32_t prog_id;
        uint32_t pad;
        union {
                struct {
                        uint64_t path;
                        uint64_t offsets;
                        uint64_t ref_ctr_offsets;
                        uint64_t cookies;
                        uint32_t path_size;
                        uint32_t count;
                        uint32_t flags;
                        uint32_t pid;
                } multi;
                struct {
                        uint32_t type;
                        uint32_t pad;
                        uint64_t file_name;
                        uint32_t name_size;
                        uint32_t offset;
                        uint64_t cookie;
                } perf;
        };
};

struct search {
        const struct foreign_probes *f;
        uint32_t linked[256]; /* programs of others that have a link */
        size_t linked_count;
        bool found;
};

static int get_info(int fd, struct link_info *info)
{
        uint32_t size = sizeof(*info);

        return bpf_obj_get_info_by_fd(fd, info, &size);
}

static bool is_own(const struct foreign_probes *f, uint32_t program)
{
        for (size_t i = 0; i < f->own_count; i++)
                if (f->own[i] == program)
                        return true;
        return false;
}

static int look_at_multi(const struct foreign_probes *f, int fd, const char **ret_what)
{
        _cleanup_free_ uint64_t *offsets = NULL;
        struct link_info info = {0};
        char path[PATH_MAX] = "";
        uint32_t count;

        *ret_what = cannot_tell;
        if (get_info(fd, &info) < 0)
                return 1;
        count = info.multi.count;
        if (count == 0 || count > OFFSETS_MAX)
                return 1;
        offsets = calloc(count, sizeof(*offsets));
        if (!offsets)
                return 1;
        memset(&info, 0, sizeof(info));
        info.multi.path = (uintptr_t)path;
        info.multi.path_size = sizeof(path);
        info.multi.offsets = (uintptr_t)offsets;
        info.multi.count = count;
        if (get_info(fd, &info) < 0 || !path[0] || info.multi.count > count)
                return 1;
        path[sizeof(path) - 1] = '\0';
        *ret_what = found_one;
        for (uint32_t i = 0; i < info.multi.count; i++)
                if (f->places(f->data, path, offsets[i]))
                        return 1;
        return 0;
}

static int look_at_perf(const struct foreign_probes *f, int fd, const char **ret_what)
{
        struct link_info info = {0};
        char path[PATH_MAX] = "";

        *ret_what = cannot_tell;
        if (get_info(fd, &info) < 0 || info.perf.type == PERF_UNKNOWN)
                return 1;
        if (info.perf.type != PERF_UPROBE && info.perf.type != PERF_URETPROBE)
                return 0;
        memset(&info, 0, sizeof(info));
        info.perf.file_name = (uintptr_t)path;
        info.perf.name_size = sizeof(path);
        if (get_info(fd, &info) < 0 || !path[0])
                return 1;
        path[sizeof(path) - 1] = '\0';
        *ret_what = found_one;
        return f->places(f->data, path, info.perf.offset);
}

static int look_at_link(struct search *s, uint32_t id, const char **ret_what)
{
        _cleanup_close_ int fd = bpf_link_get_fd_by_id(id);
        struct link_info info = {0};

        if (fd < 0) {
                *ret_what = cannot_tell;
                return errno != ENOENT; /* gone meanwhile */
        }
        if (get_info(fd, &info) < 0) {
                *ret_what = cannot_tell;
                return 1;
        }
        if (is_own(s->f, info.prog_id))
                return 0;
        if (s->linked_count < ARRAY_SIZE(s->linked))
                s->linked[s->linked_count++] = info.prog_id;
        if (info.type == LINK_UPROBE_MULTI)
                return look_at_multi(s->f, fd, ret_what);
        return info.type == LINK_PERF_EVENT ? look_at_perf(s->f, fd, ret_what) : 0;
}

static int look_at_links(struct search *s, const char **ret_what)
{
        uint32_t id = 0;

        for (uint32_t n = 0; n < LINKS_MAX; n++) {
                if (bpf_link_get_next_id(id, &id) < 0) {
                        *ret_what = cannot_tell;
                        return errno != ENOENT;
                }
                if (look_at_link(s, id, ret_what))
                        return 1;
        }
        *ret_what = cannot_tell;
        return 1;
}

/* ---- perf events with a program but no link, as bcc and bpftrace make them ---- */

static bool is_linked(const struct search *s, uint32_t program)
{
        for (size_t i = 0; i < s->linked_count; i++)
                if (s->linked[i] == program)
                        return true;
        return false;
}

/* A program that could be on a uprobe, and is not by a link that has been looked at. */
static bool is_loose(const struct search *s, uint32_t id)
{
        _cleanup_close_ int fd = bpf_prog_get_fd_by_id(id);
        struct bpf_prog_info info = {0};
        uint32_t size = sizeof(info);

        if (fd < 0)
                return errno != ENOENT;
        return bpf_obj_get_info_by_fd(fd, &info, &size) < 0 || info.type == BPF_PROG_TYPE_KPROBE;
}

/* Looking through all descriptors of all processes takes long: only if there is such a program. */
static bool has_loose_program(const struct search *s)
{
        uint32_t id = 0;

        for (uint32_t n = 0; n < PROGRAMS_MAX; n++) {
                if (bpf_prog_get_next_id(id, &id) < 0)
                        return errno != ENOENT;
                if (!is_own(s->f, id) && !is_linked(s, id) && is_loose(s, id))
                        return true;
        }
        return true;
}

static bool is_perf_event(int directory, const char *name)
{
        static const char perf[] = "anon_inode:[perf_event]";
        char target[sizeof(perf) + 1];
        ssize_t n = readlinkat(directory, name, target, sizeof(target));

        return n == (ssize_t)sizeof(perf) - 1 && memcmp(target, perf, (size_t)n) == 0;
}

static bool is_place(const struct foreign_probes *f, pid_t pid, int fd)
{
        char path[PATH_MAX] = "";
        uint32_t size = sizeof(path), program = 0, type = 0;
        unsigned long long offset = 0, address;

        if (bpf_task_fd_query(pid, fd, 0, path, &size, &program, &type, &offset, &address) < 0)
                return false; /* no eBPF program is on it */
        if (is_own(f, program) || (type != BPF_FD_TYPE_UPROBE && type != BPF_FD_TYPE_URETPROBE))
                return false;
        return f->places(f->data, path, offset);
}

static void look_at_process(void *data, pid_t pid)
{
        struct search *s = data;
        const struct dirent *e;
        char path[32];
        DIR *d;

        if (s->found)
                return;
        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        d = opendir(path);
        if (!d)
                return; /* it has ended */
        while (!s->found && (e = readdir(d)))
                s->found =
                        is_perf_event(dirfd(d), e->d_name) && is_place(s->f, pid, atoi(e->d_name));
        closedir(d);
}

static int look_at_descriptors(struct search *s, const char **ret_what)
{
        *ret_what = cannot_tell;
        if (!has_loose_program(s))
                return 0;
        if (proc_for_each(look_at_process, s) < 0)
                return 1;
        *ret_what = found_one;
        return s->found;
}

/* ---- tracefs ---- */

/* p:group/name /a/path:0x1234(reference) arguments; a path may contain blanks. */
bool foreign_probes_parse(char *line, const char **ret_path, uint64_t *ret_offset)
{
        char *path, *colon, *end;

        if ((line[0] != 'p' && line[0] != 'r') || !(path = strchr(line, ' ')))
                return false;
        path++;
        for (colon = strstr(path, ":0x"); colon; colon = strstr(colon + 1, ":0x")) {
                unsigned long long offset = strtoull(colon + 1, &end, 16);

                if (end == colon + 3 ||
                    (*end && *end != ' ' && *end != '(' && *end != '%' && *end != '\n'))
                        continue;
                *colon = '\0';
                *ret_path = path;
                *ret_offset = offset;
                return true;
        }
        return false;
}

static int look_at_tracefs(const struct foreign_probes *f, const char **ret_what)
{
        _cleanup_fclose_ FILE *file = fopen("/sys/kernel/tracing/uprobe_events", "re");
        char line[PATH_MAX + 1024];
        const char *path;
        uint64_t offset;

        if (!file)
                file = fopen("/sys/kernel/debug/tracing/uprobe_events", "re");
        *ret_what = cannot_tell;
        if (!file)
                return errno != ENOENT; /* without tracefs there are none */
        *ret_what = found_one;
        while (fgets(line, sizeof(line), file))
                if (foreign_probes_parse(line, &path, &offset) && f->places(f->data, path, offset))
                        return 1;
        return 0;
}

int foreign_probes_find(const struct foreign_probes *f, const char **ret_what)
{
        struct search s = {.f = f};
        const char *what = NULL;

        if (look_at_links(&s, &what) || look_at_tracefs(f, &what) ||
            look_at_descriptors(&s, &what)) {
                *ret_what = what;
                return 1;
        }
        return 0;
}
