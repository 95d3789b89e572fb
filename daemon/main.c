/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsd: command line, then the daemon. See docs/gpuobsd.8 and docs/architecture.md. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <uv.h>

#include "gpuobsd.h"
#include "util/config.h"
#include "util/log.h"

#ifndef GPUOBS_VERSION
#define GPUOBS_VERSION "unknown"
#endif

static const char usage[] =
        "usage: gpuobsd [OPTION]...\n"
        "Watches GPU work system-wide with eBPF. Runs in the foreground, as root.\n"
        "\n"
        "  -c, --config FILE         settings (default " CONFIG_FILE_DEFAULT ")\n"
        "  -s, --set KEY=VALUE       one setting, over the file's; may be repeated\n"
        "      --help, --version\n"
        "\n"
        "Settings are described in gpuobsd.conf(5).\n";

static int set_option(struct config *c, const char *text)
{
        char error[256] = "", key[64];
        const char *equals = strchr(text, '=');

        if (!equals || (size_t)(equals - text) >= sizeof(key)) {
                fprintf(stderr, "gpuobsd: write --set KEY=VALUE, not \"%s\"\n", text);
                return -EINVAL;
        }
        memcpy(key, text, (size_t)(equals - text));
        key[equals - text] = '\0';
        if (config_set(c, key, equals + 1, error, sizeof(error)) < 0) {
                fprintf(stderr, "gpuobsd: %s: %s\n", key, error);
                return -EINVAL;
        }
        return 0;
}

/* A file named on the command line must exist; the default one may be missing. */
static int load_file(struct config *c, const char *path)
{
        char error[256] = "";
        int r = config_load(c, path ? path : CONFIG_FILE_DEFAULT, error, sizeof(error));

        if (r == 0 || (r == -ENOENT && !path && !error[0]))
                return 0;
        fprintf(stderr, "gpuobsd: %s: %s\n", path ? path : CONFIG_FILE_DEFAULT,
                error[0] ? error : strerror(-r));
        return -EINVAL;
}

/* Two passes, so that --set wins over the file wherever it stands. 0 run, 1 done, <0 usage. */
static int read_arguments(struct config *c, int argc, char **argv)
{
        static const struct option options[] = {
                {"config", required_argument, NULL, 'c'},
                {"set", required_argument, NULL, 's'},
                {"help", no_argument, NULL, 'h'},
                {"version", no_argument, NULL, 'v'},
                {0},
        };
        const char *file = NULL;
        int opt;

        while ((opt = getopt_long(argc, argv, "c:s:h", options, NULL)) != -1) {
                switch (opt) {
                case 'c':
                        file = optarg;
                        break;
                case 's':
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
        if (load_file(c, file) < 0)
                return -EINVAL;
        optind = 1;
        while ((opt = getopt_long(argc, argv, "c:s:h", options, NULL)) != -1)
                if (opt == 's' && set_option(c, optarg) < 0)
                        return -EINVAL;
        return 0;
}

static int run(struct config *config)
{
        char error[512] = "";
        struct gpuobsd *daemon = NULL;
        uv_loop_t *loop = uv_default_loop();
        int r;

        r = gpuobsd_new(loop, config, error, sizeof(error), &daemon);
        if (r < 0) {
                log_error("%s", error[0] ? error : strerror(-r));
                gpuobsd_stop(daemon);
        }
        uv_run(loop, UV_RUN_DEFAULT);
        gpuobsd_free(daemon);
        uv_loop_close(loop);
        return r < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
        struct config config;
        int r;

        signal(SIGPIPE, SIG_IGN);
        if (config_init(&config) < 0)
                return 1;
        r = read_arguments(&config, argc, argv);
        if (r == 0) {
                log_set_level(config.log_level);
                r = run(&config);
        } else {
                r = r < 0 ? 2 : 0;
        }
        config_done(&config);
        return r;
}
