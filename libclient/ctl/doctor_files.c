/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"

void doctor_add(struct doctor *d, const char *name, enum gpuobs_check_state state,
                const char *advice, const char *format, ...)
{
        struct doctor_check *c = &d->checks[d->count];
        va_list arguments;

        if (d->count == DOCTOR_CHECKS_MAX)
                return;
        d->count++;
        c->name = name;
        c->state = state;
        c->advice = advice;
        va_start(arguments, format);
        vsnprintf(c->finding, sizeof(c->finding), format, arguments);
        va_end(arguments);
}

const char *doctor_path(const struct doctor *d, const char *path, char buffer[PATH_MAX])
{
        snprintf(buffer, PATH_MAX, "%s%s", d->root, path);
        return buffer;
}

bool doctor_exists(const struct doctor *d, const char *path)
{
        char full[PATH_MAX];

        /* A link that leads nowhere from here (into another root) is there. */
        return faccessat(AT_FDCWD, doctor_path(d, path, full), F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
               errno == EACCES;
}

bool doctor_may_use(const struct doctor *d, const char *path)
{
        char full[PATH_MAX];

        return faccessat(AT_FDCWD, doctor_path(d, path, full), R_OK | W_OK, AT_EACCESS) == 0;
}

int doctor_read(const struct doctor *d, const char *path, char *buffer, size_t size)
{
        char full[PATH_MAX];
        ssize_t n;
        int fd = open(doctor_path(d, path, full), O_RDONLY | O_CLOEXEC);

        buffer[0] = '\0';
        if (fd < 0)
                return -errno;
        n = read(fd, buffer, size - 1);
        close(fd);
        if (n < 0)
                return -EIO;
        while (n > 0 && (buffer[n - 1] == '\n' || buffer[n - 1] == '\0'))
                n--;
        buffer[n] = '\0';
        return 0;
}

size_t doctor_glob(const struct doctor *d, const char *pattern,
                   bool (*each)(const struct doctor *d, const char *path, void *data), void *data)
{
        char full[PATH_MAX];
        size_t n = 0, skip = strlen(d->root);
        glob_t found;

        if (glob(doctor_path(d, pattern, full), 0, NULL, &found) != 0)
                return 0;
        for (; n < found.gl_pathc; n++)
                if (each && !each(d, found.gl_pathv[n] + skip, data)) {
                        n++;
                        break;
                }
        globfree(&found);
        return n;
}

/* ---- libraries ---- */

struct search {
        const char *name;
        char *path;
        size_t size;
        bool found;
};

static bool look_in(const struct doctor *d, const char *directory, struct search *s)
{
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", directory, s->name);
        s->found = doctor_exists(d, path);
        if (s->found)
                snprintf(s->path, s->size, "%s", path);
        return s->found;
}

/* Lines of ld.so.conf that name a directory; those it includes are read on their own. */
static bool look_in_listed(const struct doctor *d, const char *file, void *data)
{
        struct search *s = data;
        char text[8192], *rest = text, *line;

        if (doctor_read(d, file, text, sizeof(text)) < 0)
                return true;
        while (!s->found && (line = strsep(&rest, "\n"))) {
                line[strcspn(line, "#")] = '\0';
                line[strcspn(line, " \t")] = '\0';
                if (line[0] == '/')
                        look_in(d, line, s);
        }
        return !s->found;
}

bool doctor_find_library(const struct doctor *d, const char *name, char *ret_path, size_t size)
{
        static const char *const usual[] = {
                "/lib/x86_64-linux-gnu",
                "/usr/lib/x86_64-linux-gnu",
                "/usr/local/lib",
                "/lib/aarch64-linux-gnu",
                "/usr/lib/aarch64-linux-gnu",
                "/lib64",
                "/usr/lib64",
                "/lib",
                "/usr/lib",
        };
        struct search s = {name, ret_path, size, false};

        look_in_listed(d, "/etc/ld.so.conf", &s);
        if (!s.found)
                doctor_glob(d, "/etc/ld.so.conf.d/*.conf", look_in_listed, &s);
        for (size_t i = 0; !s.found && i < sizeof(usual) / sizeof(usual[0]); i++)
                look_in(d, usual[i], &s);
        return s.found;
}
