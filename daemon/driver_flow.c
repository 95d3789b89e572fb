/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_flow.h"

#include <string.h>

#include "daemon.h"
#include "driver/calls.h"
#include "managed.h"
#include "policies.h"
#include "probe/driver_probes.h"
#include "util/log.h"
#include "util/proc_stat.h"

void driver_flow_open(struct gpuobsd *d)
{
        const struct driver_probes_options options = {.but_own = true};
        int r;

        if (!d->config->driver_calls)
                return;
        r = driver_probes_new(&options, &d->driver_probes);
        d->driver_calls_error = r;
        if (r < 0)
                log_notice("calls of the driver are not seen: the ioctl programs could not be "
                           "attached (%s)",
                           strerror(-r));
}

/* A process whose end was dealt with already is not made known a second time for its last calls. */
static struct observed *process_of(struct gpuobsd *d, pid_t pid)
{
        struct observed *o = observed_find(&d->observed, pid);

        if (o || !process_has_ended(pid))
                return o ? o : flow_process(d, pid);
        d->observed.forgotten.lost[LOSS_driver_call_late]++;
        return NULL;
}

static void on_call(void *data, const struct driver_call_event *e)
{
        struct gpuobsd *d = data;
        struct observed *o;

        o = process_of(d, (pid_t)e->tgid);
        if (!o)
                return;
        if (e->device == DRIVER_DEVICE_UVM && !o->has_called_uvm) {
                o->has_called_uvm = true;
                managed_found(d, o);
        }
        if (!o->calls)
                o->calls = calls_new();
        if (o->calls && calls_add(o->calls, e))
                policies_driver_call(d, o, e);
        else
                o->ledger.lost[LOSS_driver_object]++;
}

size_t driver_flow_turn(struct gpuobsd *d, size_t max)
{
        int n = d->driver_probes ? driver_probes_poll(d->driver_probes, max, on_call, d) : 0;

        return n > 0 ? (size_t)n : 0;
}

void driver_flow_second(struct gpuobsd *d)
{
        uint64_t lost[DRIVER_LOSS_COUNT], sum = 0;

        if (!d->driver_probes)
                return;
        (void)driver_probes_find_devices(d->driver_probes); /* asked again in a second */
        if (driver_probes_losses(d->driver_probes, lost) < 0)
                return;
        for (size_t i = 0; i < DRIVER_LOSS_COUNT; i++)
                sum += lost[i];
        d->observed.forgotten.lost[LOSS_driver_call] += sum - d->driver_calls_lost;
        d->driver_calls_lost = sum;
}
