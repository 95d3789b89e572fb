/* SPDX-License-Identifier: Apache-2.0 */

/* eBPF objects that are given to the daemon, and arguments of commands that have commands. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

#define OBJECT_BYTES_MAX (768u << 10)

static FILE *open_object(const char *directory, const char *file)
{
        char path[512];
        FILE *f = fopen(file, "re");

        if (f || strchr(file, '/'))
                return f;
        snprintf(path, sizeof(path), "%s/%s%s", directory, file,
                 strstr(file, ".bpf.o") ? "" : ".bpf.o");
        return fopen(path, "re");
}

void *ctl_read_object(const struct ctl_command *self, const char *directory, const char *file,
                      size_t *ret_size)
{
        FILE *f = open_object(directory, file);
        char *bytes = f ? malloc(OBJECT_BYTES_MAX + 1) : NULL;

        if (!bytes) {
                fprintf(stderr, "gpuobsctl %s: %s: %s", self->name, file, strerror(errno));
                if (!f && !strchr(file, '/'))
                        fprintf(stderr, ", neither here nor in %s", directory);
                fputc('\n', stderr);
                if (f)
                        fclose(f);
                return NULL;
        }
        *ret_size = fread(bytes, 1, OBJECT_BYTES_MAX + 1, f);
        if (ferror(f) || *ret_size > OBJECT_BYTES_MAX) {
                fprintf(stderr, "gpuobsctl %s: %s: it cannot be read, or is larger than %u KiB\n",
                        self->name, file, OBJECT_BYTES_MAX >> 10);
                free(bytes);
                bytes = NULL;
        }
        fclose(f);
        return bytes;
}

void ctl_object_name(const char *file, char *name, size_t size)
{
        const char *slash = strrchr(file, '/');
        char *dot;

        snprintf(name, size, "%s", slash ? slash + 1 : file);
        dot = strstr(name, ".bpf.o");
        if (dot)
                *dot = '\0';
}

void ctl_arguments(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv,
                   int arguments)
{
        static const struct option common[] = {CTL_COMMON_OPTIONS, {0}};

        for (int i = 1; i <= arguments; i++)
                if (i >= argc || argv[i][0] == '-')
                        ctl_usage(self, arguments == 1 ? "%s: which one?" : "%s: too few arguments",
                                  argv[0]);
        ctl_option(ctl, self, NULL, argc - arguments, argv + arguments, common);
        optind += arguments;
        ctl_no_arguments(self, argc, argv);
}

int ctl_run_subcommand(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv,
                       const struct ctl_subcommand *commands, size_t n, const char *question)
{
        static const struct option none[] = {CTL_COMMON_OPTIONS, {0}};

        for (size_t i = 0; argc > 1 && i < n; i++)
                if (!strcmp(argv[1], commands[i].name))
                        return commands[i].run(ctl, self, argc - 1, argv + 1);
        ctl_option(ctl, self, NULL, argc, argv, none);
        if (optind < argc)
                ctl_usage(self, "there is no command \"%s\": %s", argv[optind], question);
        ctl_usage(self, "%s", question);
}
