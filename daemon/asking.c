/* SPDX-License-Identifier: Apache-2.0 */
#include "asking.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon.h"
#include "driver/driver_thread.h"
#include "driver/gpu_memory.h"
#include "driver/silence.h"
#include "policy/worker.h"

static void on_answers(uv_poll_t *p, int status, int events)
{
        struct gpuobsd *d = p->data;

        driver_thread_collect(d->driver);
}

int asking_open(struct gpuobsd *d)
{
        int r = driver_thread_new("gpuobsd-driver", &d->driver);

        if (r < 0)
                return r;
        d->gpu_memory = gpu_memory_new(&rm_system_default);
        if (!d->gpu_memory)
                return -ENOMEM;
        r = uv_poll_init(d->loop, &d->answers, driver_thread_fd(d->driver));
        if (r < 0)
                return r;
        d->answers_polled = true;
        d->answers.data = d;
        return uv_poll_start(&d->answers, UV_READABLE, on_answers);
}

void asking_close(struct gpuobsd *d)
{
        if (d->answers_polled)
                uv_close((uv_handle_t *)&d->answers, NULL);
        d->answers_polled = false;
}

static void close_memory(void *data)
{
        gpu_memory_free(data);
}

void asking_free(struct gpuobsd *d)
{
        struct driver_task *closing = calloc(1, sizeof(*closing));

        if (!d->driver)
                return (void)free(closing);
        /* Unless a thread in a call that does not return may still ask. */
        if (closing && !policy_worker_abandoned()) {
                *closing = (struct driver_task){.run = close_memory, .data = d->gpu_memory};
                (void)driver_thread_give(d->driver, closing);
        }
        d->driver = driver_thread_free(d->driver);
        d->gpu_memory = NULL;
        if (!silence_abandoned())
                free(closing);
}
