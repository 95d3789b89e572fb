/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The devices of a process. Each has a clock of its own and counts its own grid ids,
 * so neither times nor ids of two devices can be compared as they come. A record does
 * not say its device, only the number of its context; whose number that is has to be
 * learned (match.c). Until then a record has no CPU time: it is tried as if it were of
 * the device of the launch it is held against. Under the wrong clock its time is off by
 * as much as the clocks are apart: before the launch was entered, or still to come.
 */
#include "correlate/join.h"

#include <errno.h>
#include <stdlib.h>

#define COARSE_NS 5000 /* of a clock that is about to become better known */

void devices_set(struct correlated_process *p, const struct correlated_device *devices,
                 size_t count)
{
        p->device_count = count < DEVICES_MAX ? (uint32_t)count : DEVICES_MAX;
        for (uint32_t i = 0; i < p->device_count; i++)
                p->devices[i].is = devices[i];
}

void devices_done(struct correlated_process *p)
{
        for (size_t i = 0; i < DEVICES_MAX; i++)
                free(p->devices[i].proven);
}

uint32_t context_device(const struct context *c)
{
        return c->process->device_count == 1 ? 0 : c->device;
}

bool same_device(const struct context *a, const struct context *b)
{
        uint32_t device = context_device(a);

        return a == b || (device != DEVICE_UNKNOWN && device == context_device(b));
}

bool several_devices(const struct correlated_process *p)
{
        const struct context *c, *next;

        if (p->device_count <= 1)
                return false;
        HASH_ITER (hh, p->contexts, c, next)
                if (!same_device(c, p->contexts))
                        return true;
        return false;
}

struct device *device_get(struct correlated_process *p, uint32_t ordinal)
{
        return ordinal < DEVICES_MAX ? &p->devices[ordinal] : NULL;
}

uint32_t tag_device(struct correlated_process *p, uint16_t tag)
{
        const struct context *c;
        uint32_t index;

        if (p->device_count <= 1)
                return 0;
        index = tag < CONTEXTS_MAX ? p->tags[tag].index : 0;
        c = index ? context_find(p, index) : NULL;
        return c ? context_device(c) : DEVICE_UNKNOWN;
}

void device_fill(const struct correlated_process *p, const struct context *c,
                 struct launch_record *r)
{
        uint32_t ordinal = c ? context_device(c) : p->device_count == 1 ? 0 : DEVICE_UNKNOWN;

        if (ordinal == DEVICE_UNKNOWN)
                return;
        if (p->has_agent && (ordinal >= p->device_count || !p->devices[ordinal].is.has_gpu))
                return;
        r->gpu = p->has_agent ? p->devices[ordinal].is.gpu : ordinal;
        r->has |= LAUNCH_HAS_GPU;
}

/* ---- times ---- */

int device_time(struct correlated_process *p, uint32_t ordinal, uint64_t gpu_ns,
                uint64_t *ret_cpu_ns, uint32_t *ret_error_ns)
{
        const struct device *d = device_get(p, ordinal);

        if (!d || !d->is.clock)
                return -ENODATA;
        return clock_model_to_cpu(d->is.clock, gpu_ns, ret_cpu_ns, ret_error_ns);
}

int correlated_process_time(struct correlated_process *p, uint16_t context, uint64_t gpu_ns,
                            uint64_t *ret_cpu_ns, uint32_t *ret_error_ns)
{
        uint32_t device = tag_device(p, context);

        /* Several devices, of which the process uses one. */
        if (device == DEVICE_UNKNOWN && p->contexts && !several_devices(p))
                device = context_device(p->contexts);
        return device == DEVICE_UNKNOWN ? -ENODATA
                                        : device_time(p, device, gpu_ns, ret_cpu_ns, ret_error_ns);
}

/* A clock that its time may need is not known yet. */
static bool clocks_missing(struct correlated_process *p)
{
        const struct context *c, *next;
        uint32_t error_ns;
        uint64_t cpu_ns;

        HASH_ITER (hh, p->contexts, c, next)
                if (device_time(p, context_device(c), 0, &cpu_ns, &error_ns) == -EAGAIN)
                        return true;
        return false;
}

/* What was waited for while the clock was not known begins now. */
static int waited(const struct correlated_process *p, struct held *h, int r)
{
        if (r != -EAGAIN && h->unclocked)
                h->arrived_ns = p->correlator->now_ns;
        h->unclocked = r == -EAGAIN;
        return h->unclocked ? r : 0;
}

int record_convert(struct correlated_process *p, struct held *h, uint32_t device)
{
        int r;

        if (h->converted && h->device == device && h->error_ns < COARSE_NS)
                return 0;
        h->device = device;
        h->converted = false;
        if (device == DEVICE_UNKNOWN)
                return waited(p, h, clocks_missing(p) ? -EAGAIN : 0);
        r = device_time(p, device, h->time_ns, &h->cpu_ns, &h->error_ns);
        h->converted = r == 0;
        return waited(p, h, r);
}

bool record_time(const struct held *h, const struct context *c, uint64_t *ret_cpu_ns,
                 uint32_t *ret_error_ns)
{
        uint32_t device = context_device(c);

        if (h->converted && h->device == device) {
                *ret_cpu_ns = h->cpu_ns;
                *ret_error_ns = h->error_ns;
                return true;
        }
        return device_time(c->process, device, h->time_ns, ret_cpu_ns, ret_error_ns) == 0;
}

/* Only a tick says what time it is, and it must be later than the record's arrival. */
static bool to_come(const struct correlated_process *p, const struct held *h, uint64_t cpu_ns,
                    uint32_t error_ns)
{
        const struct correlator *c = p->correlator;

        return c->ticks != h->tick && (int64_t)(cpu_ns - c->now_ns) > (int64_t)error_ns;
}

bool device_possible(const struct held *h, const struct context *c)
{
        uint64_t cpu_ns;
        uint32_t error_ns;

        if (h->device == context_device(c))
                return true;
        return !record_time(h, c, &cpu_ns, &error_ns) || !to_come(c->process, h, cpu_ns, error_ns);
}

bool device_certain(const struct held *h, const struct context *c)
{
        const struct correlated_process *p = c->process;

        if (h->tag || !several_devices(p))
                return true;
        return p->correlator->ticks != h->tick && device_possible(h, c);
}
