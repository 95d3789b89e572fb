/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl policy: load, look at, set and unload policies; try them in the simulator. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "format.h"
#include "json.h"
#include "need.h"
#include "table.h"

#define SETTINGS_MAX 64

enum {
        OPTION_NAME = OPTION_OWN,
        OPTION_PRECEDENCE,
        OPTION_CGROUP,
        OPTION_PROCESS,
        OPTION_SET,
        OPTION_MAX_RUNS,
        OPTION_MAX_RUN_MS,
        OPTION_MAX_ACTIONS,
        OPTION_MAX_MIB,
        OPTION_MAY_DISCARD,
};

/* ---- showing ---- */

static const struct table_column list_columns[] = {
        {"POLICY", 0},
        {"STATE", 0},
        {"PREC", TABLE_RIGHT},
        {"SCOPE", TABLE_SHRINK},
        {"EVENTS", TABLE_RIGHT},
        {"RUNS", TABLE_RIGHT},
        {"AVG", TABLE_RIGHT},
        {"ASKED", TABLE_RIGHT},
        {"DONE", TABLE_RIGHT},
        {"REFUSED", TABLE_RIGHT},
        {"MOVED", TABLE_RIGHT},
        {"IN FORCE", TABLE_RIGHT},
        {0},
};

static const struct table_column variable_columns[] = {
        {"VARIABLE", 0}, {"TYPE", 0}, {"VALUE", 0}, {"RANGE", 0}, {"MEANING", TABLE_SHRINK}, {0}};

static const char *scope_text(const struct gpuobs_policy *p)
{
        const char *gpu = p->has_gpu ? format_text(" gpu %" PRIu32, p->gpu) : "";
        const char *cgroup = p->cgroup ? format_text(" cgroup %s", p->cgroup) : "";
        const char *process = p->process ? format_text(" process %s", p->process) : "";
        const char *all = format_text("%s%s%s", gpu, cgroup, process);

        return *all ? all + 1 : "all";
}

static void add_row(struct table *t, const struct gpuobs_policy *p)
{
        table_cell(t, p->name);
        table_cell(t, gpuobs_policy_state_text(p->state));
        table_cell(t, format_text("%" PRId64, p->precedence));
        table_cell(t, scope_text(p));
        table_cell(t, format_count(p->events));
        table_cell(t, format_count(p->runs));
        table_cell(t, format_known_duration(p->runs > 0,
                                            p->runs ? (int64_t)(p->run_ns / p->runs) : 0));
        table_cell(t, format_count(p->asked));
        table_cell(t, format_count(p->done));
        table_cell(t, format_count(p->refused));
        table_cell(t, format_bytes(p->bytes));
        table_cell(t, format_count(p->settings));
}

static void print_stats(const struct gpuobs_policy *p)
{
        printf("%s: %s%s%s\n", p->name, gpuobs_policy_state_text(p->state), p->reason ? ", " : "",
               p->reason ? p->reason : "");
        printf("  scope %s, precedence %" PRId64 "%s\n", scope_text(p), p->precedence,
               p->may_discard ? ", may discard" : "");
        printf("  %s events, %s runs of %s on average, %s at most; %s events skipped\n",
               format_count(p->events), format_count(p->runs),
               format_known_duration(p->runs > 0, p->runs ? (int64_t)(p->run_ns / p->runs) : 0),
               format_duration((int64_t)p->longest_ns), format_count(p->skipped));
        printf("  %s actions asked for, %s done, %s refused, %s waiting; %s moved, %s seen\n",
               format_count(p->asked), format_count(p->done), format_count(p->refused),
               format_count(p->waiting), format_bytes(p->bytes), format_bytes(p->bytes_seen));
        for (size_t i = 0; i < p->n_refusals; i++)
                printf("    %s: %s (%s)\n", p->refusals[i].reason,
                       format_count(p->refusals[i].count), p->refusals[i].text);
        printf("  %s settings in force, %s set back; %s actions against lower policies\n",
               format_count(p->settings), format_count(p->undone), format_count(p->overrode));
        if (p->not_undone)
                printf("  %s of those set back could not be: see the journal\n",
                       format_count(p->not_undone));
        if (p->renewed || p->unrenewed)
                printf("  %s settings set again after others changed them, %s failed\n",
                       format_count(p->renewed), format_count(p->unrenewed));
        if (p->missed)
                printf("  %s channel groups failed, or were too many, in actions that reached "
                       "others\n",
                       format_count(p->missed));
        if (p->untold)
                printf("  %s refusals were too many at once for it to be told of\n",
                       format_count(p->untold));
        printf("  budget a second: %s runs, %s, %s actions, %s\n", format_count(p->max_runs),
               format_duration((int64_t)p->max_run_ns), format_count(p->max_actions),
               format_bytes(p->max_bytes));
}

static void print_variables(const struct gpuobs_policy_details *d)
{
        struct table *t = table_new(variable_columns);

        for (size_t i = 0; i < d->n_variables; i++) {
                const struct gpuobs_policy_variable *v = &d->variables[i];

                if (!v->parameter)
                        continue;
                table_cell(t, v->name);
                table_cell(t, v->type);
                table_cell(t, v->value);
                table_cell(t, v->has_low && v->has_high
                                      ? format_text("%" PRId64 " to %" PRId64, v->low, v->high)
                                      : NULL);
                table_cell(t, v->doc ? v->doc : "");
        }
        table_flush(t);
        table_free(t);
}

static int show(struct ctl *ctl, const char *name)
{
        const struct gpuobs_policy_name_params p = {name};
        struct gpuobs_policy_details *d;
        int r = gpuobs_policies_show(ctl->gpuobs, &p, &d);

        if (r < 0)
                return ctl_failed(ctl, r);
        if (ctl->json) {
                json_print(SCHEMA_OF(policy_details), d);
        } else {
                print_stats(&d->policy);
                print_variables(d);
        }
        gpuobs_policy_details_free(d);
        return CTL_OK;
}

static int run_list(struct ctl *ctl, const char *only)
{
        struct gpuobs_policies *p;
        struct table *t;
        int r = gpuobs_policies_list(ctl->gpuobs, NULL, &p);

        if (r < 0)
                return ctl_failed(ctl, r);
        t = table_new(list_columns);
        for (size_t i = 0; i < p->n_policies; i++) {
                if (ctl->json)
                        json_print(SCHEMA_OF(policy), &p->policies[i]);
                else if (!only)
                        add_row(t, &p->policies[i]);
                else
                        print_stats(&p->policies[i]);
        }
        if (!ctl->json && !only)
                table_flush(t);
        table_free(t);
        gpuobs_policies_free(p);
        return CTL_OK;
}

/* ---- loading ---- */

static void add_setting(const struct ctl_command *self, struct gpuobs_policy_load_params *p,
                        struct gpuobs_policy_setting *settings, char *text)
{
        char *equals = strchr(text, '=');

        if (!equals)
                ctl_usage(self, "--set: \"%s\" is not VARIABLE=VALUE", text);
        if (p->n_set == SETTINGS_MAX)
                ctl_usage(self, "--set: at most %d", SETTINGS_MAX);
        *equals = '\0';
        settings[p->n_set++] = (struct gpuobs_policy_setting){text, equals + 1};
}

static int64_t number(const struct ctl_command *self, const char *option, const char *text,
                      int64_t least)
{
        long long n;
        char *end;

        errno = 0;
        n = strtoll(text, &end, 10);
        if (errno || end == text || *end || n < least)
                ctl_usage(self, "--%s: \"%s\" is not a number that fits", option, text);
        return n;
}

static void load_option(const struct ctl_command *self, struct gpuobs_policy_load_params *p,
                        struct gpuobs_policy_setting *settings, int option)
{
        switch (option) {
        case OPTION_NAME:
                p->name = optarg;
                break;
        case OPTION_PRECEDENCE:
                p->has_precedence = true;
                p->precedence = number(self, "precedence", optarg, INT32_MIN);
                break;
        case OPTION_CGROUP:
                p->cgroup = optarg;
                break;
        case OPTION_PROCESS:
                p->process = optarg;
                break;
        case OPTION_SET:
                add_setting(self, p, settings, optarg);
                break;
        case OPTION_MAX_RUNS:
                p->has_max_runs = true;
                p->max_runs = (uint64_t)number(self, "max-runs", optarg, 1);
                break;
        case OPTION_MAX_RUN_MS:
                p->has_max_run_ns = true;
                p->max_run_ns = (uint64_t)number(self, "max-run-ms", optarg, 1) * 1000000;
                break;
        case OPTION_MAX_ACTIONS:
                p->has_max_actions = true;
                p->max_actions = (uint64_t)number(self, "max-actions", optarg, 1);
                break;
        case OPTION_MAX_MIB:
                p->has_max_bytes = true;
                p->max_bytes = (uint64_t)number(self, "max-mib", optarg, 1) << 20;
                break;
        case OPTION_MAY_DISCARD:
                p->has_may_discard = p->may_discard = true;
                break;
        }
}

static const struct option options[] = {
        CTL_COMMON_OPTIONS,
        {"gpu", required_argument, NULL, OPTION_GPU},
        {"name", required_argument, NULL, OPTION_NAME},
        {"precedence", required_argument, NULL, OPTION_PRECEDENCE},
        {"cgroup", required_argument, NULL, OPTION_CGROUP},
        {"process", required_argument, NULL, OPTION_PROCESS},
        {"set", required_argument, NULL, OPTION_SET},
        {"max-runs", required_argument, NULL, OPTION_MAX_RUNS},
        {"max-run-ms", required_argument, NULL, OPTION_MAX_RUN_MS},
        {"max-actions", required_argument, NULL, OPTION_MAX_ACTIONS},
        {"max-mib", required_argument, NULL, OPTION_MAX_MIB},
        {"may-discard", no_argument, NULL, OPTION_MAY_DISCARD},
        {0}};

static int run_load(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_policy_setting settings[SETTINGS_MAX];
        struct gpuobs_policy_load_params p = {.set = settings};
        struct gpuobs_policy_loaded *loaded;
        struct ctl_filter filter = {0};
        char name[64];
        void *object;
        int option, r;

        if (argc < 2 || argv[1][0] == '-')
                ctl_usage(self, "load: which file?");
        while ((option = ctl_option(ctl, self, &filter, argc - 1, argv + 1, options)) != -1)
                load_option(self, &p, settings, option);
        optind++;
        ctl_no_arguments(self, argc, argv);
        p.has_gpu = filter.has_gpu;
        p.gpu = filter.gpu;
        ctl_object_name(argv[1], name, sizeof(name));
        p.name = p.name ? p.name : name;
        object = ctl_read_object(self, GPUOBS_POLICY_PATH, argv[1], &p.n_object);
        if (!object)
                return CTL_FAILED;
        p.object = object;
        r = ctl_connect(ctl);
        if (!r) {
                r = gpuobs_policies_load(ctl->gpuobs, &p, &loaded);
                if (r == 0)
                        gpuobs_policy_loaded_free(loaded);
                r = r < 0 ? ctl_failed(ctl, r) : show(ctl, p.name);
        }
        free(object);
        return r;
}

/* ---- the other commands ---- */

static int change(struct ctl *ctl, const struct gpuobs_policy_change_params *p)
{
        struct gpuobs_policy_changed *changed;
        int r = ctl_connect(ctl);

        if (r)
                return r;
        r = gpuobs_policies_change(ctl->gpuobs, p, &changed);
        if (r < 0)
                return ctl_failed(ctl, r);
        gpuobs_policy_changed_free(changed);
        return show(ctl, p->name);
}

static int run_show(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        int r;

        ctl_arguments(ctl, self, argc, argv, 1);
        r = ctl_connect(ctl);
        return r ? r : show(ctl, argv[1]);
}

/* enable, disable */
static int run_switch(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_policy_change_params p = {.has_run = true, .run = argv[0][0] == 'e'};

        ctl_arguments(ctl, self, argc, argv, 1);
        p.name = argv[1];
        return change(ctl, &p);
}

static int run_unload(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_policy_name_params p = {0};
        struct gpuobs_policy_unloaded *unloaded;
        int r;

        ctl_arguments(ctl, self, argc, argv, 1);
        p.name = argv[1];
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_policies_unload(ctl->gpuobs, &p, &unloaded);
        if (r < 0)
                return ctl_failed(ctl, r);
        gpuobs_policy_unloaded_free(unloaded);
        return CTL_OK;
}

static int run_set(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_policy_setting setting;
        struct gpuobs_policy_change_params p = {.set = &setting, .n_set = 1};
        char *equals;

        ctl_arguments(ctl, self, argc, argv, 2);
        equals = strchr(argv[2], '=');
        if (!equals)
                ctl_usage(self, "set: \"%s\" is not VARIABLE=VALUE", argv[2]);
        *equals = '\0';
        p.name = argv[1];
        setting = (struct gpuobs_policy_setting){argv[2], equals + 1};
        return change(ctl, &p);
}

static int run_all(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        int r;

        ctl_arguments(ctl, self, argc, argv, 0);
        r = ctl_connect(ctl);
        return r ? r : run_list(ctl, strcmp(argv[0], "stats") ? NULL : argv[0]);
}

/* The simulator is a program of its own: it needs eBPF and no daemon. */
static int run_simulate(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        const char *path = getenv("GPUOBS_SIMULATE");
        char **arguments = need(calloc((size_t)argc + 2, sizeof(*arguments))), json[] = "--json";

        memcpy(arguments, argv, (size_t)argc * sizeof(*argv));
        if (ctl->json) /* it stood before the command */
                arguments[argc] = json;
        path = path && *path ? path : GPUOBS_SIMULATE_PATH;
        execv(path, arguments);
        fprintf(stderr,
                "gpuobsctl policy simulate: %s: %s; install gpuobsd whole, or name the simulator "
                "in GPUOBS_SIMULATE\n",
                path, strerror(errno));
        free(arguments);
        return CTL_FAILED;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct ctl_subcommand commands[] = {
                {"list", run_all},      {"stats", run_all},     {"load", run_load},
                {"show", run_show},     {"enable", run_switch}, {"disable", run_switch},
                {"unload", run_unload}, {"set", run_set},       {"simulate", run_simulate}};

        return ctl_run_subcommand(
                ctl, self, argc, argv, commands, sizeof(commands) / sizeof(commands[0]),
                "list, stats, load, show, set, enable, disable, unload or simulate?");
}

const struct ctl_command command_policy = {
        "policy", "COMMAND [OPTIONS]",
        "Load, watch, set and simulate policies (root or group gpuobs).",
        "  list                     loaded policies and what they did\n"
        "  stats                    the same at length, with reasons of refusals\n"
        "  load FILE                an eBPF object, or the name of one of gpuobsd's\n"
        "      --name NAME          default: the file's\n"
        "      --precedence N       of two that disagree the higher has its way\n"
        "      --gpu N              only this GPU\n"
        "      --cgroup GLOB        only processes of these control groups\n"
        "      --process GLOB       only processes of these short names\n"
        "      --set VARIABLE=VALUE before it is run; may be repeated\n"
        "      --max-runs N         budget for a second; likewise --max-run-ms,\n"
        "                           --max-actions, --max-mib\n"
        "      --may-discard        let it have contents of memory thrown away\n"
        "  show NAME                one policy with its parameters\n"
        "  set NAME VARIABLE=VALUE  change a parameter while it runs\n"
        "  disable NAME             stop it and undo what it set\n"
        "  enable NAME              run it again\n"
        "  unload NAME              undo what it set and forget it\n"
        "  simulate ...             compare policies without a GPU; simulate --help\n\n",
        run};
