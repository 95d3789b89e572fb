/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl: look at what gpuobsd knows, and run programs under the agent. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

static const struct ctl_command *const commands[] = {
        &command_status, &command_ps,     &command_launches, &command_kernels,  &command_coverage,
        &command_losses, &command_policy, &command_run,      &command_settings, &command_set,
        &command_flush,  &command_prune,  &command_calls,    &command_groups,   &command_share,
        &command_gpus,   &command_uvm,    &command_doctor,   &command_probe,    &command_map,
        &command_view,   &command_attach, &command_detach,
};

static void print_help(FILE *f)
{
        fprintf(f, "gpuobsctl [--socket PATH] [--json] COMMAND [OPTIONS]\n"
                   "Shows what the GPUs of this machine are doing.\n\n");
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
                fprintf(f, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
        fprintf(f, "  %-10s %s\n\n", "help", "this text; help COMMAND: the command's options");
        fprintf(f, "      --socket PATH   the daemon's socket (also $GPUOBS_SOCKET)\n"
                   "      --json          one JSON object per line\n"
                   "      --version\n\n"
                   "Exit status: 0 fine, 1 an error (the daemon's or here), 2 wrong usage,\n"
                   "3 the daemon does not run or answer, 4 not permitted. `run` ends with the\n"
                   "status of the command.\n");
}

static const struct ctl_command *find_command(const char *name)
{
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
                if (!strcmp(commands[i]->name, name))
                        return commands[i];
        fprintf(stderr, "gpuobsctl: there is no command \"%s\"\nTry: gpuobsctl help\n", name);
        exit(CTL_USAGE);
}

static int run_command(struct ctl *ctl, const char *name, int argc, char **argv)
{
        const struct ctl_command *command = find_command(name);
        int status;

        optind = 0; /* glibc: start over, with the command's own options */
        status = command->run(ctl, command, argc, argv);
        gpuobs_free(ctl->gpuobs);
        if (fflush(stdout) || ferror(stdout)) {
                fprintf(stderr, "gpuobsctl: cannot write the output\n");
                return status ? status : CTL_FAILED;
        }
        return status;
}

static int show_help(struct ctl *ctl, int argc, char **argv)
{
        char help[] = "--help";
        char *arguments[] = {argc > 1 ? argv[1] : NULL, help, NULL};

        if (argc > 1)
                return run_command(ctl, argv[1], 2, arguments);
        print_help(stdout);
        return CTL_OK;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                CTL_COMMON_OPTIONS, {"version", no_argument, NULL, 'V'}, {0}};
        struct ctl ctl = {0};
        int option;

        /* Kernel and process names are UTF-8, whatever the user's language. */
        if (!setlocale(LC_CTYPE, "C.UTF-8"))
                setlocale(LC_CTYPE, "");
        opterr = 0;
        while ((option = getopt_long(argc, argv, "+:", options, NULL)) != -1) {
                switch (option) {
                case OPTION_SOCKET:
                        ctl.socket = optarg;
                        break;
                case OPTION_JSON:
                        ctl.json = true;
                        break;
                case OPTION_HELP:
                        print_help(stdout);
                        return CTL_OK;
                case 'V':
                        printf("gpuobsctl %s\n", gpuobs_version());
                        return CTL_OK;
                default:
                        fprintf(stderr, "gpuobsctl: %s %s\nTry: gpuobsctl help\n", argv[optind - 1],
                                option == ':' ? "needs a value" : "is not an option");
                        return CTL_USAGE;
                }
        }
        if (optind == argc) {
                print_help(stderr);
                return CTL_USAGE;
        }
        argc -= optind;
        argv += optind;
        if (!strcmp(argv[0], "help"))
                return show_help(&ctl, argc, argv);
        return run_command(&ctl, argv[0], argc, argv);
}
