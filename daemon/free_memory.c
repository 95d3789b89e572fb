/* SPDX-License-Identifier: Apache-2.0 */
#include "free_memory.h"

#include <stdlib.h>
#include <string.h>

#include "daemon.h"
#include "driver/driver_thread.h"
#include "driver/gpu_memory.h"
#include "driver/silence.h"
#include "gpu_numbers.h"

/* About one GPU. */
struct answer {
        uint8_t uuid[GPU_NUMBERS_BYTES];
        uint64_t unused;
        int error;
};

struct free_memory {
        struct driver_thread *driver;
        struct gpu_memory *memory;
        free_memory_told *told;
        void *data;
        struct driver_task question;
        struct answer answers[GPU_NUMBERS_MAX]; /* the thread's while it is asked */
        size_t count;
};

/* In the thread. */
static void ask(void *data)
{
        struct free_memory *f = data;

        for (size_t i = 0; i < f->count; i++) {
                struct answer *a = &f->answers[i];

                silence_begin(driver_thread_silence(f->driver));
                a->error = gpu_memory_unused(f->memory, a->uuid, &a->unused);
        }
}

static void tell(void *data)
{
        struct free_memory *f = data;

        for (size_t i = 0; i < f->count; i++)
                if (f->answers[i].error == 0)
                        f->told(f->data, i, &f->answers[i].unused);
}

struct free_memory *free_memory_new(struct gpuobsd *d, free_memory_told *told, void *data)
{
        struct free_memory *f = calloc(1, sizeof(*f));

        if (!f)
                return NULL;
        f->driver = d->driver;
        f->memory = d->gpu_memory;
        f->told = told;
        f->data = data;
        f->question = (struct driver_task){.run = ask, .done = tell, .data = f};
        return f;
}

struct free_memory *free_memory_free(struct free_memory *f)
{
        if (!silence_abandoned())
                free(f);
        return NULL;
}

/* What was told before is not so any more. */
static void say_silent(const struct free_memory *f, size_t count)
{
        for (size_t i = 0; i < count; i++)
                f->told(f->data, i, NULL);
}

void free_memory_ask(struct free_memory *f, const struct gpu_numbers *gpus)
{
        if (f->question.under_way) {
                if (silence_lasts_ns(driver_thread_silence(f->driver)) >= SILENCE_NS)
                        say_silent(f, gpus->count);
                return;
        }
        f->count = gpus->count;
        for (size_t i = 0; i < f->count; i++)
                memcpy(f->answers[i].uuid, gpus->list[i].uuid, sizeof(f->answers[i].uuid));
        if (f->count)
                (void)driver_thread_give(f->driver, &f->question);
}
