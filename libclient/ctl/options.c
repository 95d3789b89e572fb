/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl.h"

void ctl_usage(const struct ctl_command *self, const char *format, ...)
{
        va_list args;

        fprintf(stderr, "gpuobsctl %s: ", self->name);
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fprintf(stderr, "\nTry: gpuobsctl %s --help\n", self->name);
        exit(CTL_USAGE);
}

static _Noreturn void print_help(const struct ctl_command *self)
{
        printf("gpuobsctl %s %s\n%s\n\n%s"
               "      --socket PATH   the daemon's socket (also $GPUOBS_SOCKET)\n"
               "      --json          one JSON object per line\n"
               "      --help\n",
               self->name, self->arguments, self->summary, self->help);
        exit(CTL_OK);
}

/* A whole number in a range. */
static uint32_t parse_number(const struct ctl_command *self, const char *option, const char *text)
{
        unsigned long long n;
        char *end;

        errno = 0;
        n = strtoull(text, &end, 10);
        if (errno || end == text || *end || text[0] == '-' || n > UINT32_MAX)
                ctl_usage(self, "--%s: \"%s\" is not a number that fits", option, text);
        return (uint32_t)n;
}

uint64_t ctl_duration_ns(const struct ctl_command *self, const char *option, const char *text)
{
        static const struct {
                const char *unit;
                double ns;
        } units[] = {{"us", 1e3}, {"ms", 1e6},   {"s", 1e9},    {"", 1e9},
                     {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
        double n;
        char *end;

        n = strtod(text, &end);
        for (size_t i = 0; end != text && n >= 0 && i < sizeof(units) / sizeof(units[0]); i++)
                if (strcmp(end, units[i].unit) == 0)
                        return n * units[i].ns >= 1e19 ? (uint64_t)1e19
                                                       : (uint64_t)(n * units[i].ns);
        ctl_usage(self, "--%s: \"%s\" is not a duration like 10s, 500ms, 5m", option, text);
}

/* A duration before now ("10s", "500ms"), as a CLOCK_MONOTONIC time. */
static uint64_t parse_ago(const struct ctl_command *self, const char *option, const char *text)
{
        uint64_t ago = ctl_duration_ns(self, option, text), now;
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
        return ago >= now ? 1 : now - ago;
}

static bool common_option(struct ctl *ctl, const struct ctl_command *self, int option)
{
        switch (option) {
        case OPTION_SOCKET:
                ctl->socket = optarg;
                return true;
        case OPTION_JSON:
                ctl->json = true;
                return true;
        case OPTION_HELP:
                print_help(self);
        default:
                return false;
        }
}

static bool filter_option(const struct ctl_command *self, struct ctl_filter *f, int option)
{
        switch (option) {
        case OPTION_SINCE:
                f->has_since = true;
                f->since_ns = parse_ago(self, "since", optarg);
                return true;
        case OPTION_UNTIL:
                f->has_until = true;
                f->until_ns = parse_ago(self, "until", optarg);
                return true;
        case OPTION_PID:
                f->has_pid = true;
                f->pid = parse_number(self, "pid", optarg);
                return true;
        case OPTION_GPU:
                f->has_gpu = true;
                f->gpu = parse_number(self, "gpu", optarg);
                return true;
        case OPTION_KERNEL:
                f->kernel = optarg;
                return true;
        case OPTION_LIMIT:
                f->has_limit = true;
                f->limit = parse_number(self, "limit", optarg);
                return true;
        default:
                return false;
        }
}

/* Both are times ago: what is to be older than its end is nothing, and a mistake. */
static void check_filter(const struct ctl_command *self, const struct ctl_filter *f)
{
        if (f->has_since && f->has_until && f->until_ns <= f->since_ns)
                ctl_usage(self, "nothing is between --since and --until: both say how long ago, "
                                "--until the shorter");
        if (f->has_pid && !f->pid)
                ctl_usage(self, "--pid: 0 is no process");
}

/* "+": what follows the first argument belongs to it (run -- CMD); ":": we complain ourselves. */
static const char *short_options(const struct option *options)
{
        for (; options->name; options++)
                if (options->val == 'f')
                        return "+:f";
        return "+:";
}

int ctl_option(struct ctl *ctl, const struct ctl_command *self, struct ctl_filter *filter, int argc,
               char **argv, const struct option *options)
{
        int option;

        opterr = 0;
        for (;;) {
                option = getopt_long(argc, argv, short_options(options), options, NULL);
                if (option == ':')
                        ctl_usage(self, "%s needs a value", argv[optind - 1]);
                if (option == '?' && optopt &&
                    optopt < OPTION_SOCKET) /* perhaps of several letters */
                        ctl_usage(self, "there is no option -%c", optopt);
                if (option == '?')
                        ctl_usage(self, "there is no option %s", argv[optind - 1]);
                if (option == -1) {
                        if (filter)
                                check_filter(self, filter);
                        return -1;
                }
                if (common_option(ctl, self, option))
                        continue;
                if (filter && filter_option(self, filter, option))
                        continue;
                return option;
        }
}

void ctl_no_arguments(const struct ctl_command *self, int argc, char **argv)
{
        if (optind < argc)
                ctl_usage(self, "does not take \"%s\"", argv[optind]);
}
