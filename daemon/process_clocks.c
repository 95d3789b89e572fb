/* SPDX-License-Identifier: Apache-2.0 */
#include "process_clocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_clocks.h"

/* Steps of the clock an agent reads through a kernel; the GPU's own is not known here. */
#define AGENT_CLOCK_STEP_NS 32

struct process_clocks {
        struct correlated_device devices[AGENT_DEVICES_MAX];
        struct clock_model *own[AGENT_DEVICES_MAX]; /* NULL: the daemon reads it */
        uint8_t uuids[AGENT_DEVICES_MAX][16];
        size_t count;
};

/*
 * Where the daemon knows no GPUs, the process's own ordinal is all there is to tell
 * its devices apart by; else a GPU that is not among them has no number.
 */
static int choose(struct process_clocks *c, uint32_t i, const struct gpu_clocks *gpus,
                  const uint8_t uuid[16])
{
        struct correlated_device *d = &c->devices[i];

        d->clock = gpu_clocks_find(gpus, uuid, &d->gpu);
        d->has_gpu = d->clock || gpu_clocks_count(gpus) == 0;
        if (d->clock)
                return 0;
        d->gpu = i;
        d->clock = c->own[i] = clock_model_new(AGENT_CLOCK_STEP_NS, gpu_clocks_map(gpus));
        return d->clock ? 0 : -ENOMEM;
}

int process_clocks_new(const struct gpu_clocks *gpus, const struct agent_hello *hello,
                       struct process_clocks **ret_clocks)
{
        struct process_clocks *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        for (; c->count < hello->device_count && c->count < AGENT_DEVICES_MAX; c->count++) {
                int r;

                memcpy(c->uuids[c->count], hello->device_uuids[c->count], sizeof(c->uuids[0]));
                r = choose(c, (uint32_t)c->count, gpus, hello->device_uuids[c->count]);

                if (r < 0) {
                        process_clocks_free(c);
                        return r;
                }
        }
        *ret_clocks = c;
        return 0;
}

struct process_clocks *process_clocks_free(struct process_clocks *c)
{
        if (!c)
                return NULL;
        for (size_t i = 0; i < AGENT_DEVICES_MAX; i++)
                clock_model_free(c->own[i]);
        free(c);
        return NULL;
}

const struct correlated_device *process_clocks_devices(const struct process_clocks *c,
                                                       size_t *ret_count)
{
        *ret_count = c->count;
        return c->devices;
}

const uint8_t *process_clocks_uuid(const struct process_clocks *c, uint32_t device)
{
        return device < c->count ? c->uuids[device] : NULL;
}

uint64_t process_clocks_asked(const struct process_clocks *c)
{
        uint64_t asked = 0;

        for (size_t i = 0; i < c->count; i++)
                asked |= (uint64_t)(c->own[i] != NULL) << i;
        return asked;
}

int process_clocks_add(struct process_clocks *c, uint32_t device, const struct clock_sample *sample)
{
        if (device >= c->count || !c->own[device])
                return -ENODEV;
        return clock_model_add(c->own[device], sample);
}
