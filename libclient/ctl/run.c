/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Run a program with the GPU agent: the CUDA driver loads the library that
 * CUDA_INJECTION64_PATH names. The program replaces gpuobsctl, so its exit
 * status, signals and terminal are its own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"

#define INJECTION_ENV     "CUDA_INJECTION64_PATH"
#define AGENT_LIBRARY_ENV "GPUOBS_AGENT_LIBRARY" /* another agent library; tests */
#define AGENT_SOCKET_ENV  "GPUOBS_AGENT_SOCKET"  /* the agent reads it */
#define AGENT_SOCKET_NAME "agent.sock"

enum { OPTION_AGENT_SOCKET = OPTION_OWN };

/* The agents' socket lies beside the clients'. */
static void derive_agent_socket(const char *socket)
{
        const char *slash = strrchr(socket, '/');
        char path[4096];

        snprintf(path, sizeof(path), "%.*s" AGENT_SOCKET_NAME,
                 slash ? (int)(slash - socket) + 1 : 0, socket);
        setenv(AGENT_SOCKET_ENV, path, 1);
}

static int check_injection(void)
{
        const char *injected = getenv(INJECTION_ENV);

        if (!injected || !*injected)
                return CTL_OK;
        fprintf(stderr,
                "gpuobsctl run: " INJECTION_ENV
                " is set to %s already, and CUDA loads only one such "
                "library; unset it first\n",
                injected);
        return CTL_USAGE;
}

static const char *agent_library(void)
{
        const char *path = getenv(AGENT_LIBRARY_ENV);

        return path && *path ? path : GPUOBS_AGENT_PATH;
}

static int set_agent(void)
{
        const char *library = agent_library();

        if (access(library, R_OK) < 0) {
                fprintf(stderr,
                        "gpuobsctl run: the agent %s cannot be read: %s; install gpuobsd whole, "
                        "or name the agent's library in " AGENT_LIBRARY_ENV "\n",
                        library, strerror(errno));
                return CTL_FAILED;
        }
        setenv(INJECTION_ENV, library, 1);
        return CTL_OK;
}

/* Without the daemon the program runs all the same, unobserved; that should not go unnoticed. */
static void warn_without_daemon(struct ctl *ctl, const char *program)
{
        struct gpuobs *g;

        if (gpuobs_connect(ctl->socket, 0, &g) == 0)
                gpuobs_free(g);
        else
                fprintf(stderr, "gpuobsctl run: gpuobsd is not running; %s will not be observed\n",
                        program);
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {
                CTL_COMMON_OPTIONS,
                {"agent-socket", required_argument, NULL, OPTION_AGENT_SOCKET},
                {0}};
        const char *agent_socket = NULL;
        int r;

        while (ctl_option(ctl, self, NULL, argc, argv, options) == OPTION_AGENT_SOCKET)
                agent_socket = optarg;
        if (optind == argc)
                ctl_usage(self, "needs a program to run");
        r = check_injection();
        if (!r)
                r = set_agent();
        if (r)
                return r;
        if (agent_socket)
                setenv(AGENT_SOCKET_ENV, agent_socket, 1);
        else if (ctl->socket)
                derive_agent_socket(ctl->socket);
        if (!agent_socket)
                warn_without_daemon(ctl, argv[optind]);
        execvp(argv[optind], argv + optind);
        fprintf(stderr, "gpuobsctl run: %s: %s\n", argv[optind], strerror(errno));
        return errno == ENOENT ? 127 : 126;
}

const struct ctl_command command_run = {
        "run", "[OPTIONS] -- PROGRAM [ARGUMENTS]",
        "Run a program with the GPU agent; ends with its exit status.",
        "      --agent-socket PATH   the daemon's socket for agents; default: agent.sock\n"
        "                            beside --socket\n\n",
        run};
