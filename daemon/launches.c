/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launches that processes record by themselves (agent/launch_abi.h), brought
 * into the same order with the kernel's events as if they had been among them:
 * before an event is dealt with, the process's launches that returned earlier
 * are.
 */
#include "launches.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/launch_abi.h"
#include "arguments.h"
#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "daemon.h"
#include "policies.h"
#include "probe/cpu_probes.h"
#include "probe/launch_ring.h"
#include "trace.h"
#include "util/log.h"
#include "util/time.h"

/*
 * The correlator keeps a place for every number in the order of entry, also for
 * those it never sees. A process can skip some for good reasons; one that skips
 * more than this between two looks loses its order.
 */
#define SKIPPED_MAX (1u << 20)

/* How often a context that is not known is looked for. */
#define UNKNOWN_NS (100 * NSEC_PER_MSEC)

struct launch_context {
        uint64_t handle;
        uint64_t looked_ns;
        uint32_t index; /* 0: not known */
        uint32_t before;
        uint32_t seq; /* the last one */
};

struct launches {
        struct launch_ring *ring;
        struct launch_ring_losses seen; /* already in the ledger */
        struct launch_context contexts[AGENT_LAUNCH_CONTEXTS];
        uint32_t skipped; /* since the last turn */
        uint64_t taken;
};

int launches_new(struct gpuobsd *d, struct observed *o, int *ret_fd)
{
        struct launches *l;
        const char *what;
        int r;

        if (!d->config->agent_launches)
                return -ENOTSUP;
        if (cpu_probes_shared(d->probes, &what)) {
                log_pid(LOG_INFO, (pid_t)o->info.pid,
                        "launches of process %d (%s) are left to the kernel: %s", (int)o->info.pid,
                        o->info.comm, what);
                return -EBUSY;
        }
        l = calloc(1, sizeof(*l));
        if (!l)
                return -ENOMEM;
        r = launch_ring_new(&l->ring);
        if (r == 0)
                r = cpu_probes_set_launch_ring(d->probes, o->info.pid, launch_ring_fd(l->ring));
        if (r < 0) {
                launches_free(l);
                return r;
        }
        o->launches = l;
        o->arguments = arguments_new(launch_ring_wishes(l->ring), launch_ring_arguments(l->ring));
        *ret_fd = launch_ring_fd(l->ring);
        return 0;
}

struct launches *launches_free(struct launches *l)
{
        if (!l)
                return NULL;
        launch_ring_free(l->ring);
        free(l);
        return NULL;
}

struct agent_launch_map *launches_map(const struct observed *o)
{
        return o->launches ? launch_ring_map(o->launches->ring) : NULL;
}

void launches_contexts_changed(struct observed *o)
{
        for (size_t i = 0; o->launches && i < AGENT_LAUNCH_CONTEXTS; i++)
                o->launches->contexts[i].handle = 0;
}

static struct launch_context *context_of(struct gpuobsd *d, struct observed *o,
                                         const struct agent_launch *launch, uint64_t handle,
                                         uint64_t at_ns)
{
        unsigned slot = (unsigned)(launch->turn >> AGENT_LAUNCH_SLOT_SHIFT);
        struct launch_context *c;

        if (!handle || slot >= AGENT_LAUNCH_CONTEXTS)
                return NULL;
        c = &o->launches->contexts[slot];
        if (c->handle != handle || (!c->index && at_ns - c->looked_ns > UNKNOWN_NS)) {
                *c = (struct launch_context){
                        .handle = handle, .looked_ns = at_ns, .seq = launch->seq};
                (void)cpu_probes_find_context(d->probes, o->info.pid, handle, &c->index,
                                              &c->before);
        }
        return c->index ? c : NULL;
}

/* Its place in the order of entry; false: that is not to be believed. */
static bool take_place(struct launches *l, struct launch_context *c, uint32_t seq)
{
        int32_t ahead = (int32_t)(seq - c->seq);
        uint32_t distance = ahead < 0 ? 0u - (uint32_t)ahead : (uint32_t)ahead;

        if (distance > SKIPPED_MAX - l->skipped)
                return false;
        l->skipped += distance;
        if (ahead > 0)
                c->seq = seq;
        return true;
}

static void pass_on(struct gpuobsd *d, struct observed *o, const struct agent_launch *launch,
                    uint64_t handle, uint64_t at_ns)
{
        struct launch_context *c = context_of(d, o, launch, handle, at_ns);
        struct cpu_launch_event e = {
                .enter_ns = launch->enter_ns,
                .func = launch->func,
                .stream = launch->stream,
                .duration_ns = launch->duration_ns,
                .tgid = o->info.pid,
                .tid = launch->tid,
                .grid_x = launch->grid_x,
                .grid_y = launch->grid_y,
                .grid_z = launch->grid_z,
                .shared_bytes = launch->shared_bytes,
                .block_x = launch->block_x,
                .block_y = launch->block_y,
                .type = launch->type & (uint8_t) ~(AGENT_LAUNCH_OWN | AGENT_LAUNCH_UNPROBED),
                .block_z = launch->block_z,
                .result = launch->result,
        };

        if (launch->type & AGENT_LAUNCH_UNPROBED && e.type == CPU_EVENT_LAUNCH)
                e.type |= CPU_EVENT_UNPROBED;
        if (c && launch->seq && take_place(o->launches, c, launch->seq)) {
                e.context = c->index;
                e.seq = c->before + launch->seq;
        }
        /* Its HANDLE message may be on the way still. */
        if (launch->type & AGENT_LAUNCH_OWN) {
                if (!e.context)
                        return;
                trace_write(d->trace, TRACE_OWN_FUNCTION, o->info.process_key, &e.func,
                            sizeof(e.func), NULL, 0);
                correlator_own_function(d->correlator, o->correlated, e.func);
        }
        trace_write(d->trace, TRACE_LAUNCH, o->info.process_key, &e, sizeof(e), NULL, 0);
        policies_launch(d, o);
        correlator_launch(d->correlator, o->correlated, &e);
}

bool launches_awaited(const struct observed *o)
{
        return o->launches && !launch_ring_recording(o->launches->ring);
}

bool launches_before_probes(const struct observed *o, uint64_t return_ns)
{
        uint64_t probed_ns;

        if (!o->launches || !launch_ring_recording(o->launches->ring))
                return false;
        probed_ns = launch_ring_probed_ns(o->launches->ring);
        return !probed_ns || return_ns <= probed_ns;
}

void launches_settle(struct observed *o)
{
        struct launches *l = o->launches;
        struct launch_ring_losses now;

        if (!l)
                return;
        l->skipped = 0;
        launch_ring_release(l->ring);
        launch_ring_get_losses(l->ring, &now);
        o->ledger.produced += now.overrun - l->seen.overrun + now.torn - l->seen.torn;
        o->ledger.lost[LOSS_agent_ring_overrun] += now.overrun - l->seen.overrun;
        o->ledger.lost[LOSS_agent_record_torn] += now.torn - l->seen.torn;
        l->seen = now;
}

/* last: the process writes no more. */
static size_t take(struct gpuobsd *d, struct observed *o, uint64_t until_ns, size_t max, bool last)
{
        struct agent_launch launch;
        uint64_t handle;
        size_t n = 0;

        if (!o->launches || !o->correlated)
                return 0;
        while (n < max && launch_ring_take(o->launches->ring, until_ns, last, &launch, &handle)) {
                pass_on(d, o, &launch, handle, until_ns);
                n++;
        }
        o->launches->taken += n;
        return n;
}

size_t launches_take(struct gpuobsd *d, struct observed *o, uint64_t until_ns, size_t max)
{
        return take(d, o, until_ns, max, false);
}

void launches_end(struct gpuobsd *d, struct observed *o)
{
        if (!o->launches)
                return;
        /* A whole ring at most: a child that shares the map could keep writing to it. */
        take(d, o, now_ns(), LAUNCHES_MAX, true);
        launches_settle(o);
        if (launch_ring_recording(o->launches->ring))
                log_pid(LOG_DEBUG, (pid_t)o->info.pid,
                        "process %d (%s) recorded %llu launches by itself", (int)o->info.pid,
                        o->info.comm, (unsigned long long)o->launches->taken);
        arguments_turn(d, o);
        o->arguments = arguments_free(o->arguments);
        o->launches = launches_free(o->launches);
}
