/* SPDX-License-Identifier: Apache-2.0 */
#include "spinners.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

bool spinner_start(struct spinner *s, const char *program, const char *seconds)
{
        int pipes[2];

        *s = (struct spinner){0};
        if (pipe(pipes) < 0)
                return false;
        s->pid = fork();
        if (s->pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                dup2(pipes[1], STDOUT_FILENO);
                close(pipes[0]);
                close(pipes[1]);
                execl(program, program, seconds, (char *)NULL);
                _exit(127);
        }
        close(pipes[1]);
        s->output = fdopen(pipes[0], "r");
        return s->pid > 0 && s->output;
}

bool spinner_wait_ready(struct spinner *s)
{
        char line[64];

        while (fgets(line, sizeof(line), s->output))
                if (strcmp(line, "ready\n") == 0)
                        return true;
        return false;
}

static bool read_ends(struct spinner *s)
{
        size_t size = 0;
        unsigned long long ns;

        if (fscanf(s->output, " done") != 0)
                return false;
        while (fscanf(s->output, "%llu", &ns) == 1) {
                if (s->count == size) {
                        size = size ? 2 * size : 1024;
                        s->ends = realloc(s->ends, size * sizeof(*s->ends));
                        if (!s->ends)
                                return false;
                }
                s->ends[s->count++] = ns;
        }
        return s->count > 0;
}

bool spinner_finish(struct spinner *s)
{
        bool read = read_ends(s);
        int status = -1;

        waitpid(s->pid, &status, 0);
        fclose(s->output);
        return read && status == 0;
}

size_t spinner_kernels(const struct spinner *s, uint64_t from_ns, uint64_t until_ns)
{
        size_t n = 0;

        for (size_t i = 0; i < s->count; i++)
                n += s->ends[i] >= from_ns && s->ends[i] < until_ns;
        return n;
}
