/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A scheduler's view of the GPU, in one event loop: launches as they finish,
 * and every second the queue depth of each process. Prints the processes whose
 * work waits longest, which is where a scheduler would act.
 *
 *     cc scheduler.c $(pkg-config --cflags --libs libgpuobs) && ./a.out [seconds]
 */
#include <gpuobs.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t launches, waited_ns, unseen;

static void on_launches(void *data, int error, const struct gpuobs_launch_batch *batch)
{
        if (error) {
                *(int *)data = error;
                return;
        }
        unseen += batch->dropped; /* we were too slow: the numbers below are a sample */
        for (size_t i = 0; i < batch->n_launches; i++) {
                const struct gpuobs_launch *l = &batch->launches[i];

                launches++;
                if (l->has_gpu_start_ns && l->gpu_start_ns > l->cpu_return_ns)
                        waited_ns += l->gpu_start_ns - l->cpu_return_ns;
        }
}

static void on_processes(void *data, int error, const struct gpuobs_processes *p)
{
        if (error) {
                *(int *)data = error;
                return;
        }
        printf("%" PRIu64 " launches, %.2f us average queue delay, %" PRIu64 " unseen\n", launches,
               launches ? (double)waited_ns / (double)launches / 1000 : 0.0, unseen);
        for (size_t i = 0; i < p->n_processes; i++)
                if (p->processes[i].has_depth && p->processes[i].depth > 0)
                        printf("  pid %" PRIu32 ": %" PRIu64 " launches queued\n",
                               p->processes[i].pid, p->processes[i].depth);
        fflush(stdout);
        launches = waited_ns = unseen = 0;
}

int main(int argc, char **argv)
{
        time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 3600), next = time(NULL) + 1;
        int error = 0, r;
        struct gpuobs *g;
        struct pollfd p;

        r = gpuobs_connect(NULL, 0, &g);
        if (r < 0) {
                fprintf(stderr, "gpuobsd: %s\n", strerror(-r));
                return 1;
        }
        r = gpuobs_launches_subscribe(g, NULL, on_launches, &error, NULL);
        while (r >= 0 && !error && time(NULL) < end) {
                p = (struct pollfd){.fd = gpuobs_fd(g), .events = gpuobs_events(g)};
                poll(&p, 1, gpuobs_timeout_ms(g) == 0 ? 0 : 200);
                r = gpuobs_dispatch(g);
                if (r >= 0 && time(NULL) >= next++)
                        r = gpuobs_processes_list_async(g, NULL, on_processes, &error, NULL);
                else
                        next--;
        }
        if (r < 0 || error)
                fprintf(stderr, "gpuobsd: %s\n", gpuobs_error(g)->message);
        gpuobs_free(g);
        return r < 0 || error;
}
