/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the commands of gpuobsctl share. */
#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuobs.h"

enum ctl_exit {
        CTL_OK = 0,
        CTL_FAILED = 1,      /* the daemon answered with an error, or something here failed */
        CTL_USAGE = 2,       /* the command line makes no sense */
        CTL_UNREACHABLE = 3, /* the daemon does not run or does not answer */
        CTL_PERMISSION = 4,
};

struct ctl {
        const char *socket; /* NULL: the library's default */
        bool json;
        struct gpuobs *gpuobs; /* after ctl_connect() */
};

struct ctl_command {
        const char *name;
        const char *arguments; /* for the usage line */
        const char *summary;
        const char *help; /* the options of its own, a line each; "" none */
        int (*run)(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv);
};

extern const struct ctl_command command_status;
extern const struct ctl_command command_ps;
extern const struct ctl_command command_launches;
extern const struct ctl_command command_kernels;
extern const struct ctl_command command_coverage;
extern const struct ctl_command command_losses;
extern const struct ctl_command command_calls;
extern const struct ctl_command command_groups;
extern const struct ctl_command command_share;
extern const struct ctl_command command_gpus;
extern const struct ctl_command command_policy;
extern const struct ctl_command command_probe;
extern const struct ctl_command command_map;
extern const struct ctl_command command_run;
extern const struct ctl_command command_attach;
extern const struct ctl_command command_detach;
extern const struct ctl_command command_uvm;
extern const struct ctl_command command_view;
extern const struct ctl_command command_settings;
extern const struct ctl_command command_set;
extern const struct ctl_command command_flush;
extern const struct ctl_command command_doctor;
extern const struct ctl_command command_prune;

/* ---- options (options.c) ---- */

/* Filters that several commands have. */
struct ctl_filter {
        bool has_since, has_until, has_pid, has_gpu, has_limit;
        uint64_t since_ns, until_ns; /* CLOCK_MONOTONIC */
        uint32_t pid, gpu, limit;
        const char *kernel;
};

/* Long options every command takes; to be the start of a command's own list. */
enum {
        OPTION_SOCKET = 256,
        OPTION_JSON,
        OPTION_HELP,
        OPTION_SINCE,
        OPTION_UNTIL,
        OPTION_PID,
        OPTION_GPU,
        OPTION_KERNEL,
        OPTION_LIMIT,
        OPTION_OWN, /* a command's own begin here */
};

/* clang-format off */
#define CTL_COMMON_OPTIONS                                                                         \
        {"socket", required_argument, NULL, OPTION_SOCKET},                                        \
        {"json", no_argument, NULL, OPTION_JSON},                                                  \
        {"help", no_argument, NULL, OPTION_HELP}
#define CTL_FILTER_OPTIONS                                                                         \
        {"since", required_argument, NULL, OPTION_SINCE},                                          \
        {"until", required_argument, NULL, OPTION_UNTIL},                                          \
        {"pid", required_argument, NULL, OPTION_PID},                                              \
        {"gpu", required_argument, NULL, OPTION_GPU},                                              \
        {"kernel", required_argument, NULL, OPTION_KERNEL},                                        \
        {"limit", required_argument, NULL, OPTION_LIMIT}
/* clang-format on */

/*
 * Next option of a command: its value (a letter or OPTION_), -1 at the end. The
 * common ones and the filters are handled here (filter NULL: the command has
 * none). A mistake prints what is wrong and ends with CTL_USAGE; --help prints
 * help and ends.
 */
int ctl_option(struct ctl *ctl, const struct ctl_command *self, struct ctl_filter *filter, int argc,
               char **argv, const struct option *options);

/* "10s", "500ms", "7d" as ns; anything else ends with CTL_USAGE. */
uint64_t ctl_duration_ns(const struct ctl_command *self, const char *option, const char *text);

/* End with CTL_USAGE after "gpuobsctl COMMAND: message". */
_Noreturn void ctl_usage(const struct ctl_command *self, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* Refuse arguments that are not options. */
void ctl_no_arguments(const struct ctl_command *self, int argc, char **argv);

/* ---- eBPF objects, and commands that have commands (object.c) ---- */

/*
 * An object's bytes, malloc'd. A name without a slash means one of those installed in the
 * directory, unless there is such a file here. NULL: it has been said why.
 */
void *ctl_read_object(const struct ctl_command *self, const char *directory, const char *file,
                      size_t *ret_size);

/* "dir/evict_lru.bpf.o" is evict_lru. */
void ctl_object_name(const char *file, char *name, size_t size);

/* A fixed number of arguments behind argv[0], then perhaps the common options. */
void ctl_arguments(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv,
                   int arguments);

struct ctl_subcommand {
        const char *name;
        int (*run)(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv);
};

/*
 * Run the one of n that argv[1] names, with its own arguments; else the common options, and
 * the question which one. The exit code.
 */
int ctl_run_subcommand(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv,
                       const struct ctl_subcommand *commands, size_t n, const char *question);

/* ---- talking to the daemon (connect.c) ---- */

/* Connect, or say why not. CTL_OK or the exit code. */
int ctl_connect(struct ctl *ctl);

/* Say what went wrong with a call, and the exit code for it. */
int ctl_failed(struct ctl *ctl, int error);

/* Tell on stderr that launches were lost, when any were: a hole in the data must not go unseen. */
void ctl_warn_losses(const struct gpuobs_losses *losses);

/* ---- what several commands do ---- */

struct table;
struct table_column;

/* Show all that passes the filter, in t or as JSON. CTL_OK or the exit code. */
typedef int (*ctl_list_fn)(struct ctl *ctl, struct table *t, const struct ctl_filter *f);

/* Connect and list in a table of these columns; filter may be NULL (list.c). The exit code. */
int ctl_list_table(struct ctl *ctl, const struct table_column *columns, ctl_list_fn list,
                   const struct ctl_filter *filter);

/* The whole of a command that lists, of all processes or of --pid. The exit code. */
int ctl_list(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv,
             const struct table_column *columns, ctl_list_fn list);

/* How far a command has come that shows lines as they arrive. */
struct ctl_so_far {
        uint64_t shown, limit; /* lines; limit 0: none */
        int error;             /* of the stream, -errno; 0 none */
};

bool ctl_wants_more(const struct ctl_so_far *s);

/*
 * Dispatch until enough is shown or something fails (follow.c); r: what subscribing
 * returned. The stream's callback keeps s. The exit code.
 */
int ctl_follow(struct ctl *ctl, int r, const struct ctl_so_far *s);
