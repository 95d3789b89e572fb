/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Bring the agent into a process that runs already, and take it out again. The daemon
 * has no part in it: it needs no right to trace anybody.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/attach_abi.h"
#include "borrow.h"
#include "ctl.h"

#define AGENT_LIBRARY_ENV    "GPUOBS_AGENT_LIBRARY" /* another agent library; tests */
#define AGENT_SOCKET_ENV     "GPUOBS_AGENT_SOCKET"
#define AGENT_SOCKET_DEFAULT "/run/gpuobsd/agent.sock"
#define AGENT_FILE           "libgpuobs-agent.so"
#define STATE_MS             60000

enum { OPTION_AGENT_SOCKET = OPTION_OWN, OPTION_DETACH, OPTION_ALLOW_SECCOMP };

struct attaching {
        struct target target;
        const char *library;
        char socket[sizeof(((struct attach_block *)0)->socket)];
        uint64_t block; /* address of the agent's */
};

static int fail(struct attaching *a, int error, const char *reason)
{
        return target_refuse(&a->target, error, "%s", reason);
}

/* The library's path, with what stands for it in /proc/PID/maps. */
static uint64_t find_symbol(const struct attaching *a, const char *symbol)
{
        return target_symbol(&a->target, AGENT_FILE, symbol);
}

static int read_block(struct attaching *a, struct attach_block *ret_block)
{
        if (!a->block)
                a->block = find_symbol(a, ATTACH_BLOCK);
        if (!a->block || !target_read(&a->target, a->block, ret_block, sizeof(*ret_block)))
                return fail(a, -EIO, "the agent in the process cannot be read");
        if (ret_block->version != ATTACH_ABI_VERSION)
                return fail(a, -EPROTO, "the agent in the process is of another version");
        return 0;
}

static bool write_state(struct attaching *a, uint32_t state)
{
        return target_write(&a->target, a->block + offsetof(struct attach_block, state), &state,
                            sizeof(state));
}

/* Until the agent leaves a state. */
static int wait_while(struct attaching *a, uint32_t state, struct attach_block *ret_block)
{
        struct timespec nap = {.tv_nsec = 2000000};

        for (int ms = 0; ms < STATE_MS; ms += 2) {
                int r = read_block(a, ret_block);

                if (r < 0)
                        return fail(a, -ESRCH, "the process has ended");
                if (ret_block->state != state)
                        return 0;
                nanosleep(&nap, NULL);
        }
        return fail(a, -ETIMEDOUT, "the agent does not get on");
}

static int patch(struct attaching *a, const struct attach_block *b, bool in)
{
        struct borrow_patch patches[ATTACH_PATCHES];
        size_t count = b->patch_count;

        if (count > ATTACH_PATCHES)
                return fail(a, -EPROTO, "the agent in the process makes no sense");
        for (size_t i = 0; i < count; i++) {
                const struct attach_patch *p = &b->patches[i];

                patches[i] = (struct borrow_patch){.address = p->address,
                                                   .from = in ? p->original : p->jump,
                                                   .to = in ? p->jump : p->original,
                                                   .size = ATTACH_PATCH_BYTES,
                                                   .avoid = p->moved};
        }
        return borrow_patch(&a->target, patches, count);
}

static int ask_agent(struct attaching *a, int what)
{
        struct borrow_call call = {
                .library = a->library, .function = ATTACH_FUNCTION, .argument = what};
        int r = borrow_and_call(&a->target, &call);

        if (r < 0)
                return r;
        if (call.result)
                return fail(a, -call.result, strerror(call.result));
        return 0;
}

/* An agent that is in the process may forbid another. */
static int check_present(struct attaching *a)
{
        struct attach_block b;
        int r;

        if (!find_symbol(a, ATTACH_BLOCK))
                return 0;
        r = read_block(a, &b);
        if (r < 0)
                return r;
        switch (b.state) {
        case ATTACH_NONE:
        case ATTACH_DETACHED:
        case ATTACH_FAILED:
                return 0;
        case ATTACH_INJECTED:
                return fail(a, -EEXIST, "it has the agent since it started");
        default:
                return fail(a, -EEXIST, "it is attached to already");
        }
}

/* The library is loaded first, so that its block can be filled in; loading twice is nothing. */
static int load_library(struct attaching *a)
{
        int r = ask_agent(a, 0);

        if (r == 0)
                r = target_read_mappings(&a->target);
        if (r < 0)
                return r;
        a->block = find_symbol(a, ATTACH_BLOCK);
        if (!a->block)
                return fail(a, -EIO, "the agent in the process cannot be found");
        if (!target_write(&a->target, a->block + offsetof(struct attach_block, socket), a->socket,
                          sizeof(a->socket)))
                return fail(a, -EIO, "the agent in the process cannot be written to");
        return 0;
}

static int put_hooks(struct attaching *a, struct attach_block *b)
{
        int r;

        if (b->state == ATTACH_FAILED)
                return fail(a, -EIO, b->reason);
        r = patch(a, b, true);
        if (r < 0) {
                char why[TARGET_REASON_BYTES];

                snprintf(why, sizeof(why), "%s", a->target.reason);
                (void)write_state(a, ATTACH_FAILED);
                return fail(a, r, why);
        }
        if (!write_state(a, ATTACH_PATCHED))
                return fail(a, -ESRCH, "the process has ended");
        r = wait_while(a, ATTACH_PATCHED, b);
        if (r == 0 && b->state != ATTACH_READY) {
                (void)patch(a, b, false);
                r = fail(a, -EIO, b->reason[0] ? b->reason : "the agent gave up");
        }
        return r;
}

static int attach(struct attaching *a, struct attach_block *b)
{
        int r = target_reaches(&a->target, a->library, "the agent");

        if (r == 0)
                r = target_reaches(&a->target, a->socket, "gpuobsd's socket");
        if (r == 0)
                r = check_present(a);
        if (r == 0)
                r = load_library(a);
        if (r == 0)
                r = ask_agent(a, ATTACH_BEGIN);
        if (r == 0)
                r = wait_while(a, ATTACH_STARTING, b);
        return r == 0 ? put_hooks(a, b) : r;
}

static int detach(struct attaching *a, struct attach_block *b)
{
        int r;

        if (!find_symbol(a, ATTACH_BLOCK))
                return fail(a, -ENOENT, "the agent is not attached to it");
        r = read_block(a, b);
        if (r < 0)
                return r;
        if (b->state == ATTACH_INJECTED)
                return fail(a, -ENOTSUP,
                            "it was started with the agent, and its images hold programs as they "
                            "were loaded: they cannot be taken out while it runs");
        if (b->state != ATTACH_READY)
                return fail(a, -ENOENT, "the agent is not attached to it");
        r = ask_agent(a, ATTACH_END);
        if (r == 0)
                r = wait_while(a, ATTACH_LEAVING, b);
        if (r == 0)
                r = patch(a, b, false);
        if (r == 0 && !write_state(a, ATTACH_DETACHED))
                r = fail(a, -ESRCH, "the process has ended");
        return r;
}

/* ---- the commands ---- */

static void choose_socket(const struct ctl *ctl, const char *given, struct attaching *a)
{
        const char *slash = ctl->socket ? strrchr(ctl->socket, '/') : NULL;
        const char *from_env = getenv(AGENT_SOCKET_ENV);

        if (given)
                snprintf(a->socket, sizeof(a->socket), "%s", given);
        else if (slash)
                snprintf(a->socket, sizeof(a->socket), "%.*sagent.sock",
                         (int)(slash - ctl->socket) + 1, ctl->socket);
        else
                snprintf(a->socket, sizeof(a->socket), "%s",
                         from_env && *from_env ? from_env : AGENT_SOCKET_DEFAULT);
}

static const char *agent_library(void)
{
        const char *path = getenv(AGENT_LIBRARY_ENV);

        return path && *path ? path : GPUOBS_AGENT_PATH;
}

static int say(const struct ctl *ctl, const struct ctl_command *self, const struct attaching *a,
               int r, const struct attach_block *b, bool detached)
{
        const char *what = detached ? "detached" : "attached";

        if (r < 0) {
                fprintf(stderr, "gpuobsctl %s: process %d: %s\n", self->name, (int)a->target.pid,
                        a->target.reason[0] ? a->target.reason : strerror(-r));
                return r == -EPERM ? CTL_PERMISSION : CTL_FAILED;
        }
        if (ctl->json) {
                printf("{\"pid\":%d,\"state\":\"%s\",\"initialised\":%s}\n", (int)a->target.pid,
                       what, b->initialised ? "true" : "false");
                return CTL_OK;
        }
        printf("process %d (%s): %s\n", (int)a->target.pid, a->target.comm, what);
        if (detached && b->reason[0])
                printf("%s\n", b->reason);
        if (detached)
                printf("the library stays mapped and does nothing\n");
        else if (!b->initialised)
                printf("CUDA is not initialised in it yet; its kernels are seen from then on\n");
        return CTL_OK;
}

static pid_t parse_pid(const struct ctl_command *self, int argc, char **argv)
{
        char *end = NULL;
        long pid = optind < argc ? strtol(argv[optind], &end, 10) : 0;

        if (optind + 1 != argc || !end || *end || pid <= 0 || pid > INT32_MAX)
                ctl_usage(self, "needs the number of one process");
        return (pid_t)pid;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {
                CTL_COMMON_OPTIONS,
                {"agent-socket", required_argument, NULL, OPTION_AGENT_SOCKET},
                {"detach", no_argument, NULL, OPTION_DETACH},
                {"allow-seccomp", no_argument, NULL, OPTION_ALLOW_SECCOMP},
                {0}};
        bool leaving = strcmp(self->name, "detach") == 0, allow_seccomp = false;
        const char *agent_socket = NULL;
        struct attach_block b = {0};
        struct attaching a = {.library = agent_library()};
        int option, r;

        while ((option = ctl_option(ctl, self, NULL, argc, argv, options)) != -1) {
                if (option == OPTION_AGENT_SOCKET)
                        agent_socket = optarg;
                else if (option == OPTION_ALLOW_SECCOMP)
                        allow_seccomp = true;
                else
                        leaving = true;
        }
        choose_socket(ctl, agent_socket, &a);
        r = target_open(parse_pid(self, argc, argv), allow_seccomp, &a.target);
        if (r == 0)
                r = leaving ? detach(&a, &b) : attach(&a, &b);
        r = say(ctl, self, &a, r, &b, leaving);
        target_done(&a.target);
        return r;
}

#define ALLOW_SECCOMP_HELP                                                                         \
        "      --allow-seccomp       although it is under a seccomp filter: one that ends\n"       \
        "                            the process for a system call ends it for those of\n"         \
        "                            the agent\n"

const struct ctl_command command_attach = {
        "attach", "[OPTIONS] PID", "Bring the GPU agent into a running process.",
        "      --detach              take it out again\n"
        "      --agent-socket PATH   the daemon's socket for agents; default: agent.sock\n"
        "                            beside --socket\n" ALLOW_SECCOMP_HELP "\n",
        run};

const struct ctl_command command_detach = {
        "detach", "[OPTIONS] PID", "Take the GPU agent out of a process it was attached to.",
        ALLOW_SECCOMP_HELP "\n", run};
