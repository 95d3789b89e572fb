/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsd: command line, then the daemon. See docs/gpuobsd.8 and docs/architecture.md. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

#include "driver/silence.h"
#include "gpuobsd.h"
#include "leftovers.h"
#include "policy/worker.h"
#include "settings.h"
#include "util/config.h"
#include "util/log.h"
#include "util/macro.h"

#ifndef GPUOBS_VERSION
#define GPUOBS_VERSION "unknown"
#endif

#define FILES_WANTED 65536

static const char usage[] =
        "usage: gpuobsd [OPTION]...\n"
        "Watches GPU work system-wide with eBPF. Runs in the foreground, as root.\n"
        "\n"
        "  -c, --config FILE         settings (default " CONFIG_FILE_DEFAULT ")\n"
        "  -s, --set KEY=VALUE       one setting, over the file's; may be repeated\n"
        "      --undo                set back what a daemon that was killed left in other\n"
        "                            processes, and exit\n"
        "      --help, --version\n"
        "\n"
        "Settings are described in gpuobsd.conf(5).\n";

/* What the command line says; the texts stay argv's. 0 go on, 1 done, <0 usage. */
static int read_arguments(int argc, char **argv, struct settings_source *source, char **assignments,
                          bool *undo)
{
        static const struct option options[] = {
                {"config", required_argument, NULL, 'c'}, {"set", required_argument, NULL, 's'},
                {"undo", no_argument, NULL, 'u'},         {"help", no_argument, NULL, 'h'},
                {"version", no_argument, NULL, 'v'},      {0},
        };
        int opt;

        source->assignments = assignments;
        while ((opt = getopt_long(argc, argv, "c:s:h", options, NULL)) != -1) {
                switch (opt) {
                case 'c':
                        source->file = optarg;
                        break;
                case 's':
                        assignments[source->assignment_count++] = optarg;
                        break;
                case 'u':
                        *undo = true;
                        break;
                case 'h':
                        fputs(usage, stdout);
                        return 1;
                case 'v':
                        puts("gpuobsd " GPUOBS_VERSION);
                        return 1;
                default:
                        fputs(usage, stderr);
                        return -EINVAL;
                }
        }
        if (optind < argc) {
                fprintf(stderr, "gpuobsd: unexpected argument \"%s\"\n", argv[optind]);
                return -EINVAL;
        }
        return 0;
}

/* Each client and agent takes some, and before Linux 6.6 each probe: not the 1024 of a shell. */
static void raise_file_limit(void)
{
        struct rlimit files;

        if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur >= FILES_WANTED)
                return;
        files.rlim_cur = files.rlim_max < FILES_WANTED ? files.rlim_max : FILES_WANTED;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* `gpuobsctl doctor` tells of few */
}

static int undo(const struct config *config)
{
        char error[512] = "";
        int r;

        log_set_brief();
        r = leftovers_undo(config, error, sizeof(error));
        if (r < 0)
                log_error("%s", error);
        return r < 0 ? 1 : 0;
}

static int run(const struct settings_source *source, struct config *config)
{
        char error[512] = "";
        struct gpuobsd *daemon = NULL;
        uv_loop_t *loop = uv_default_loop();
        int r;

        r = gpuobsd_new(loop, source, config, error, sizeof(error), &daemon);
        if (r < 0) {
                log_error("%s", error[0] ? error : strerror(-r));
                gpuobsd_stop(daemon);
        }
        uv_run(loop, UV_RUN_DEFAULT);
        gpuobsd_free(daemon);
        uv_loop_close(loop);
        return r < 0 ? 1 : 0;
}

/* A thread in a call that does not return may hold what the end of a program waits for. */
static int leave(int status)
{
        if (silence_abandoned() || policy_worker_abandoned()) {
                (void)fflush(NULL);
                _exit(status);
        }
        return status;
}

int main(int argc, char **argv)
{
        _cleanup_free_ char **assignments = calloc((size_t)argc, sizeof(*assignments));
        struct settings_source source = {0};
        char error[512] = "";
        bool only_undo = false;
        struct config config;
        int r;

        signal(SIGPIPE, SIG_IGN);
        raise_file_limit();
        if (!assignments)
                return 1;
        r = read_arguments(argc, argv, &source, assignments, &only_undo);
        if (r)
                return r < 0 ? 2 : 0;
        if (settings_load(&source, &config, error, sizeof(error)) < 0) {
                fprintf(stderr, "gpuobsd: %s\n", error);
                return 2;
        }
        log_set_level(config.log_level);
        r = only_undo ? undo(&config) : run(&source, &config);
        config_done(&config);
        return leave(r);
}
