/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl probe: device programs, eBPF that runs in the kernels of others. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl.h"
#include "demangle.h"
#include "format.h"
#include "json.h"
#include "table.h"

enum {
        OPTION_NAME = OPTION_OWN,
        OPTION_PROCESS,
        OPTION_ALL,
        OPTION_KERNELS,
        OPTION_PTX,
        OPTION_FOLLOW,
};

static const struct table_column list_columns[] = {{"PROBE", 0},
                                                   {"PROGRAM", 0},
                                                   {"EVENT", 0},
                                                   {"SCOPE", 0},
                                                   {"INSNS", TABLE_RIGHT},
                                                   {"MEMORY", TABLE_RIGHT},
                                                   {"ATOMICS", TABLE_RIGHT},
                                                   {"IN", TABLE_RIGHT},
                                                   {"FOR", TABLE_SHRINK},
                                                   {0}};

static const struct table_column attached_columns[] = {
        {"PID", TABLE_RIGHT},        {"COMMAND", 0},           {"STATE", 0},
        {"GPU MEMORY", TABLE_RIGHT}, {"REASON", TABLE_SHRINK}, {0}};

static const struct table_column map_columns[] = {{"MAP", 0},
                                                  {"KIND", 0},
                                                  {"PLACE", 0},
                                                  {"SPREAD", 0},
                                                  {"KEY", TABLE_RIGHT},
                                                  {"VALUE", TABLE_RIGHT},
                                                  {"ENTRIES", TABLE_RIGHT},
                                                  {"BYTES", TABLE_RIGHT},
                                                  {0}};

/* ---- showing ---- */

static const char *meant_for(const struct gpuobs_probe *p)
{
        return format_text("%s%s%s",
                           p->all       ? "all processes"
                           : p->process ? p->process
                                        : "-",
                           p->kernels ? ", kernels " : "", p->kernels ? p->kernels : "");
}

static size_t count_active(const struct gpuobs_probe *p)
{
        size_t n = 0;

        for (size_t i = 0; i < p->n_attached; i++)
                n += p->attached[i].state == GPUOBS_ATTACHED_ACTIVE;
        return n;
}

static void add_programs(struct table *t, const struct gpuobs_probe *p)
{
        for (size_t i = 0; i < p->n_programs; i++) {
                const struct gpuobs_probe_program *g = &p->programs[i];

                table_cell(t, i ? "" : p->name);
                table_cell(t, g->name);
                table_cell(t, gpuobs_probe_event_text(g->event));
                table_cell(t, gpuobs_probe_scope_text(g->scope));
                table_cell(t, format_count(g->instructions));
                table_cell(t, format_count(g->memory));
                table_cell(t, format_count(g->atomics));
                table_cell(t, i ? "" : format_count(count_active(p)));
                table_cell(t, i ? "" : meant_for(p));
        }
}

static int list(struct ctl *ctl, struct table *t, const struct ctl_filter *unused)
{
        struct gpuobs_probes *p;
        int r = gpuobs_probes_list(ctl->gpuobs, NULL, &p);

        if (r < 0)
                return ctl_failed(ctl, r);
        for (size_t i = 0; i < p->n_probes; i++)
                if (ctl->json)
                        json_print(SCHEMA_OF(probe), &p->probes[i]);
                else
                        add_programs(t, &p->probes[i]);
        gpuobs_probes_free(p);
        return CTL_OK;
}

static int run_list(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        ctl_arguments(ctl, self, argc, argv, 0);
        return ctl_list_table(ctl, list_columns, list, NULL);
}

static void print_attached(const struct gpuobs_probe *p)
{
        struct table *t = table_new(attached_columns);

        for (size_t i = 0; i < p->n_attached; i++) {
                const struct gpuobs_probe_attachment *a = &p->attached[i];
                bool only_ptx = a->state == GPUOBS_ATTACHED_ACTIVE && !a->code && a->reason;

                table_cell(t, format_text("%" PRIu32, a->pid));
                table_cell(t, a->comm);
                table_cell(t, gpuobs_attached_text(a->state));
                table_cell(t, format_bytes(a->gpu_bytes));
                table_cell(t, format_text("%s%s", only_ptx ? "only in PTX: " : "",
                                          a->reason ? a->reason : ""));
        }
        table_flush(t);
        table_free(t);
}

static void print_maps(const struct gpuobs_probe *p)
{
        struct table *t = table_new(map_columns);

        for (size_t i = 0; i < p->n_maps; i++) {
                const struct gpuobs_probe_map *m = &p->maps[i];

                table_cell(t, m->name);
                table_cell(t, gpuobs_map_kind_text(m->kind));
                table_cell(t, gpuobs_map_place_text(m->place));
                table_cell(t, gpuobs_map_spread_text(m->spread));
                table_cell(t, format_count(m->key_bytes));
                table_cell(t, format_count(m->value_bytes));
                table_cell(t, format_count(m->entries));
                table_cell(t, format_bytes(m->bytes));
        }
        table_flush(t);
        table_free(t);
}

static void print_probe(struct ctl *ctl, const struct gpuobs_probe *p, bool ptx)
{
        struct table *t;

        if (ctl->json) {
                json_print(SCHEMA_OF(probe), p);
                return;
        }
        for (size_t i = 0; ptx && i < p->n_programs; i++)
                printf("// %s\n%s\n", p->programs[i].name,
                       p->programs[i].ptx ? p->programs[i].ptx : "");
        if (ptx)
                return;
        t = table_new(list_columns);
        add_programs(t, p);
        table_flush(t);
        table_free(t);
        if (p->n_maps) {
                printf("\n");
                print_maps(p);
        }
        if (p->n_attached) {
                printf("\n");
                print_attached(p);
        }
}

/* ---- options of several commands ---- */

struct wanted {
        const char *name; /* NULL: not given */
        struct ctl_filter filter;
        const char *process, *kernels;
        bool all, ptx, follow;
};

static const struct option load_options[] = {CTL_COMMON_OPTIONS,
                                             {"name", required_argument, NULL, OPTION_NAME},
                                             {"pid", required_argument, NULL, OPTION_PID},
                                             {"process", required_argument, NULL, OPTION_PROCESS},
                                             {"all", no_argument, NULL, OPTION_ALL},
                                             {"kernels", required_argument, NULL, OPTION_KERNELS},
                                             {0}};
static const struct option attach_options[] = {CTL_COMMON_OPTIONS,
                                               {"pid", required_argument, NULL, OPTION_PID},
                                               {"process", required_argument, NULL, OPTION_PROCESS},
                                               {"all", no_argument, NULL, OPTION_ALL},
                                               {"kernels", required_argument, NULL, OPTION_KERNELS},
                                               {0}};
static const struct option detach_options[] = {
        CTL_COMMON_OPTIONS, {"pid", required_argument, NULL, OPTION_PID}, {0}};
static const struct option log_options[] = {CTL_COMMON_OPTIONS,
                                            {"pid", required_argument, NULL, OPTION_PID},
                                            {"follow", no_argument, NULL, OPTION_FOLLOW},
                                            {0}};
static const struct option show_options[] = {
        CTL_COMMON_OPTIONS, {"ptx", no_argument, NULL, OPTION_PTX}, {0}};

/* One argument, then options. */
static void take_wanted(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv,
                        const struct option *options, struct wanted *w)
{
        int option;

        if (argc < 2 || argv[1][0] == '-')
                ctl_usage(self, "%s: which one?", argv[0]);
        while ((option = ctl_option(ctl, self, &w->filter, argc - 1, argv + 1, options)) != -1)
                switch (option) {
                case OPTION_NAME:
                        w->name = optarg;
                        break;
                case OPTION_PROCESS:
                        w->process = optarg;
                        break;
                case OPTION_ALL:
                        w->all = true;
                        break;
                case OPTION_KERNELS:
                        w->kernels = optarg;
                        break;
                case OPTION_PTX:
                        w->ptx = true;
                        break;
                case OPTION_FOLLOW:
                        w->follow = true;
                        break;
                }
        optind++;
        ctl_no_arguments(self, argc, argv);
        if (w->filter.has_pid + (w->process != NULL) + w->all > 1)
                ctl_usage(self, "only one of --pid, --process and --all");
}

/* ---- the commands ---- */

static int run_show(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_probe_show_params p = {0};
        struct gpuobs_probe_details *d;
        struct wanted w = {0};
        int r;

        take_wanted(ctl, self, argc, argv, show_options, &w);
        p.name = argv[1];
        p.has_ptx = p.ptx = w.ptx;
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_probes_show(ctl->gpuobs, &p, &d);
        if (r < 0)
                return ctl_failed(ctl, r);
        print_probe(ctl, &d->probe, w.ptx);
        gpuobs_probe_details_free(d);
        return CTL_OK;
}

static int run_load(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_probe_load_params p = {0};
        struct gpuobs_probe_loaded *loaded;
        struct wanted w = {0};
        char name[64];
        void *object;
        int r;

        take_wanted(ctl, self, argc, argv, load_options, &w);
        ctl_object_name(argv[1], name, sizeof(name));
        p.name = w.name ? w.name : name;
        p.has_pid = w.filter.has_pid;
        p.pid = w.filter.pid;
        p.process = w.process;
        p.has_all = p.all = w.all;
        p.kernels = w.kernels;
        object = ctl_read_object(self, GPUOBS_DEVICE_PATH, argv[1], &p.n_object);
        if (!object)
                return CTL_FAILED;
        p.object = object;
        r = ctl_connect(ctl);
        if (r == 0) {
                r = gpuobs_probes_load(ctl->gpuobs, &p, &loaded);
                if (r == 0) {
                        print_probe(ctl, &loaded->probe, false);
                        gpuobs_probe_loaded_free(loaded);
                } else {
                        r = ctl_failed(ctl, r);
                }
        }
        free(object);
        return r;
}

static int run_attach(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_probe_attach_params p = {0};
        struct gpuobs_probe_attached *attached;
        struct wanted w = {0};
        int r;

        take_wanted(ctl, self, argc, argv, attach_options, &w);
        if (!w.filter.has_pid && !w.process && !w.all)
                ctl_usage(self, "attach: to which processes? --pid, --process or --all");
        p.name = argv[1];
        p.has_pid = w.filter.has_pid;
        p.pid = w.filter.pid;
        p.process = w.process;
        p.has_all = p.all = w.all;
        p.kernels = w.kernels;
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_probes_attach(ctl->gpuobs, &p, &attached);
        if (r < 0)
                return ctl_failed(ctl, r);
        print_probe(ctl, &attached->probe, false);
        gpuobs_probe_attached_free(attached);
        return CTL_OK;
}

static int run_detach(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_probe_detach_params p = {0};
        struct gpuobs_probe_detached *detached;
        struct wanted w = {0};
        int r;

        take_wanted(ctl, self, argc, argv, detach_options, &w);
        p.name = argv[1];
        p.has_pid = w.filter.has_pid;
        p.pid = w.filter.pid;
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_probes_detach(ctl->gpuobs, &p, &detached);
        if (r < 0)
                return ctl_failed(ctl, r);
        gpuobs_probe_detached_free(detached);
        return CTL_OK;
}

static int run_unload(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_probe_unload_params p = {0};
        struct gpuobs_probe_unloaded *unloaded;
        int r;

        ctl_arguments(ctl, self, argc, argv, 1);
        p.name = argv[1];
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_probes_unload(ctl->gpuobs, &p, &unloaded);
        if (r < 0)
                return ctl_failed(ctl, r);
        gpuobs_probe_unloaded_free(unloaded);
        return CTL_OK;
}

/* ---- messages ---- */

/* Times of the GPU's own clock, which is another one, begin with "gpu". */
static void print_message(const struct gpuobs_probe_message *m)
{
        uint64_t ns = m->has_time_ns ? m->time_ns : m->gpu_ns;

        printf("%s%" PRIu64 ".%09" PRIu64 "  ", m->has_time_ns ? "" : "gpu ", ns / 1000000000,
               ns % 1000000000);
        if (m->kernel)
                printf("%s", demangle(m->kernel));
        else
                printf("kernel %" PRIu32, m->kernel_id);
        printf("  grid %" PRIu64 "  %s\n", m->gridid, m->text);
}

static int print_messages(struct ctl *ctl, struct gpuobs_probe_log_params *p, uint64_t *suppressed)
{
        struct gpuobs_probe_log *log;
        int r = gpuobs_probes_log(ctl->gpuobs, p, &log);

        if (r < 0)
                return ctl_failed(ctl, r);
        for (size_t i = 0; i < log->n_messages; i++) {
                if (ctl->json)
                        json_print(SCHEMA_OF(probe_message), &log->messages[i]);
                else
                        print_message(&log->messages[i]);
        }
        fflush(stdout);
        if (log->lost)
                fprintf(stderr, "gpuobsctl: %" PRIu64 " messages were lost\n", log->lost);
        if (log->suppressed > *suppressed)
                fprintf(stderr, "gpuobsctl: %" PRIu64 " messages were too many at a time\n",
                        log->suppressed - *suppressed);
        *suppressed = log->suppressed;
        p->has_from = true;
        p->from = log->next;
        gpuobs_probe_log_free(log);
        return CTL_OK;
}

static int run_log(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct timespec pause = {.tv_nsec = 500000000};
        struct gpuobs_probe_log_params p = {0};
        struct wanted w = {0};
        uint64_t suppressed = 0;
        int r;

        take_wanted(ctl, self, argc, argv, log_options, &w);
        p.name = argv[1];
        p.has_pid = w.filter.has_pid;
        p.pid = w.filter.pid;
        r = ctl_connect(ctl);
        if (r)
                return r;
        do {
                r = print_messages(ctl, &p, &suppressed);
        } while (r == CTL_OK && w.follow && nanosleep(&pause, NULL) == 0);
        return r;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct ctl_subcommand commands[] = {
                {"list", run_list},     {"load", run_load},     {"show", run_show},
                {"attach", run_attach}, {"detach", run_detach}, {"unload", run_unload},
                {"log", run_log}};

        return ctl_run_subcommand(ctl, self, argc, argv, commands,
                                  sizeof(commands) / sizeof(commands[0]),
                                  "list, load, show, attach, detach, unload or log?");
}

const struct ctl_command command_probe = {
        "probe", "COMMAND [OPTIONS]",
        "Load eBPF into GPU kernels of processes (root or group gpuobs).",
        "  list                     what is loaded, what it costs, where it is\n"
        "  load FILE                an eBPF object, or the name of one of gpuobsd's\n"
        "      --name NAME          default: the file's\n"
        "      --pid, --process, --all, --kernels: attach it, too\n"
        "  show NAME                one of them, with its maps and processes\n"
        "      --ptx                what it was compiled to, with the lines of its source\n"
        "  attach NAME              put it into processes that have an agent\n"
        "      --pid PID            this one\n"
        "      --process GLOB       those of these short names, now and later\n"
        "      --all                all, now and later\n"
        "      --kernels GLOB       only into kernels of these (mangled) names\n"
        "  detach NAME              take it off everywhere\n"
        "      --pid PID            from this process only\n"
        "  unload NAME              take it off and forget it\n"
        "  log NAME                 what it printed with bpf_printk(), with times\n"
        "      --pid PID            in this process; needed when it is in several\n"
        "      --follow             and what it will print\n\n",
        run};
