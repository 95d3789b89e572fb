/* SPDX-License-Identifier: Apache-2.0 */

/* Agents: what they are given, and what they report. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "api/agent_server.h"
#include "arguments.h"
#include "attachment.h"
#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "daemon.h"
#include "device/program.h"
#include "device/record_ring.h"
#include "gpu_clocks.h"
#include "launches.h"
#include "policies.h"
#include "probe/cpu_probes.h"
#include "process_clocks.h"
#include "programs.h"
#include "trace.h"
#include "util/log.h"

static int load_object(const char *path, char *error, size_t error_size,
                       struct device_object **ret_object)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat st;
        void *elf;
        int r;

        if (fd < 0 || fstat(fd, &st) < 0) {
                r = -errno;
                snprintf(error, error_size, "%s: %s", path, strerror(-r));
                return r;
        }
        elf = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (elf == MAP_FAILED) {
                r = -errno;
                snprintf(error, error_size, "%s: %s", path, strerror(-r));
                return r;
        }
        r = device_object_load(elf, (size_t)st.st_size, NULL, error, error_size, ret_object);
        munmap(elf, (size_t)st.st_size);
        return r;
}

void agents_load_program(struct gpuobsd *d)
{
        const char *path = d->config->device_program;
        int r;

        d->blob_fd = -1;
        if (!path[0]) {
                snprintf(d->device_error, sizeof(d->device_error),
                         "no device program is configured (device_program in gpuobsd.conf)");
                return;
        }
        r = load_object(path, d->device_error, sizeof(d->device_error), &d->device_object);
        if (r == 0)
                r = device_object_blob(d->device_object, &d->blob_fd, &d->blob_bytes);
        if (r < 0) {
                d->device_object = device_object_free(d->device_object);
                log_warning("the device program was not loaded, GPU times will be missing: %s",
                            d->device_error[0] ? d->device_error : strerror(-r));
        }
}

static void trace_devices(struct gpuobsd *d, const struct observed *o,
                          const struct correlated_device *devices, size_t count, uint64_t own)
{
        struct trace_device traced[AGENT_DEVICES_MAX];

        for (size_t i = 0; i < count; i++)
                traced[i] = (struct trace_device){.gpu = devices[i].gpu,
                                                  .has_gpu = devices[i].has_gpu,
                                                  .own_clock = own >> i & 1};
        trace_write(d->trace, TRACE_AGENT, o->info.process_key, traced, count * sizeof(traced[0]),
                    NULL, 0);
}

/* The clocks of the agent's GPUs: read by us where possible, else from the agent's readings. */
static int choose_clocks(struct gpuobsd *d, struct observed *o, const struct agent_hello *hello,
                         uint64_t *ret_asked)
{
        const struct correlated_device *devices;
        size_t count;
        int r;

        r = process_clocks_new(d->clocks, hello, &o->clocks);
        if (r < 0)
                return r;
        devices = process_clocks_devices(o->clocks, &count);
        *ret_asked = process_clocks_asked(o->clocks);
        trace_devices(d, o, devices, count, *ret_asked);
        correlated_process_set_agent(o->correlated, devices, count);
        return 0;
}

static int on_hello(void *data, struct agent *a, pid_t pid, uid_t uid,
                    const struct agent_hello *hello, struct agent_offer *ret_offer, char *reason,
                    size_t reason_size)
{
        struct gpuobsd *d = data;
        struct observed *o;
        int r = -ENOMEM;

        if (!d->device_object) {
                snprintf(reason, reason_size, "gpuobsd has no device program: %s", d->device_error);
                return -ENOENT;
        }
        if (pid <= 0) {
                snprintf(reason, reason_size,
                         "gpuobsd cannot see this process: it runs in a PID namespace outside its "
                         "own");
                return -ESRCH;
        }
        flow_catch_up(d); /* an exec of this process may wait in the ring: it comes first */
        o = flow_process(d, pid);
        if (o && o->ring) {
                snprintf(reason, reason_size, "this process has an agent already");
                return -EEXIST;
        }
        if (o)
                r = record_ring_new(&o->ring);
        if (r == 0)
                r = cpu_probes_set_agent_ring(d->probes, (__u32)pid, record_ring_fd(o->ring));
        if (r == 0)
                r = choose_clocks(d, o, hello, &ret_offer->clock_devices);
        if (r < 0) {
                if (o)
                        o->ring = record_ring_free(o->ring);
                snprintf(reason, reason_size, "gpuobsd could not make the shared map: %s",
                         strerror(-r));
                return r;
        }
        policies_process_gpu(d, o, hello->device_uuids[hello->device]);
        o->agent = a;
        agent_set_user(a, o);
        ret_offer->attach_count = programs_count_for(d, o);
        if (launches_new(d, o, &ret_offer->launch_fd) < 0)
                ret_offer->launch_fd = -1;
        ret_offer->map_fd = record_ring_fd(o->ring);
        ret_offer->blob_fd = d->blob_fd;
        ret_offer->blob_bytes = d->blob_bytes;
        ret_offer->map_bytes = d->config->agent_map_bytes;
        log_pid(LOG_DEBUG, pid, "agent of process %d (%s) connected", (int)pid, o->info.comm);
        return 0;
}

static void on_image(void *data, struct agent *a, const struct agent_image *image)
{
        struct gpuobsd *d = data;
        struct observed *o = agent_user(a);

        if (!coverage_add_image(&o->coverage, d->names, image))
                o->ledger.lost[LOSS_coverage_full]++;
        if (image->status == AGENT_IMAGE_ORIGINAL)
                o->ledger.lost[LOSS_agent_refused]++;
}

static void on_kernel(void *data, struct agent *a, uint32_t image_id,
                      const struct agent_kernel *kernel, const char *name, const char *reason)
{
        struct gpuobsd *d = data;
        struct observed *o = agent_user(a);
        const struct covered_image *image = coverage_image(&o->coverage, image_id);
        struct correlated_kernel k = {
                .kernel_id = kernel->kernel_id,
                .image_handle = image ? image->handle : 0,
                .name = name,
                .name_length = kernel->name_bytes,
                .entry_probed = kernel->entry != AGENT_PROBE_NONE,
                .exit_probed = kernel->exit != AGENT_PROBE_NONE,
                .may_nest = image && image->launches,
        };

        struct trace_kernel traced = {
                .image_handle = k.image_handle,
                .kernel_id = k.kernel_id,
                .entry_probed = k.entry_probed,
                .exit_probed = k.exit_probed,
                .name_length = kernel->name_bytes,
        };

        if (!coverage_add_kernel(&o->coverage, d->names, image_id, kernel, name, reason)) {
                o->ledger.lost[LOSS_coverage_full]++;
                return;
        }
        if (!o->correlated)
                return;
        trace_write(d->trace, TRACE_KERNEL, o->info.process_key, &traced, sizeof(traced), name,
                    k.name_length);
        correlator_kernel(d->correlator, o->correlated, &k);
}

/* The form is right, so it is not cut off; but nobody has asked for it. */
static void unasked(struct observed *o)
{
        o->ledger.lost[LOSS_agent_protocol]++;
}

static void on_clock(void *data, struct agent *a, const struct agent_clock *clock)
{
        struct gpuobsd *d = data;
        struct observed *o = agent_user(a);
        struct trace_clock traced = {
                .sample = {.raw_before_ns = clock->raw_before_ns,
                           .gpu_ns = clock->gpu_ns,
                           .raw_after_ns = clock->raw_after_ns},
                .device = clock->device,
        };

        trace_write(d->trace, TRACE_CLOCK, o->info.process_key, &traced, sizeof(traced), NULL, 0);
        /*
         * A contradicting sample is the agent's problem; the model judges and starts over.
         * One of a device that was not asked for is of no use.
         */
        if (o->clocks && process_clocks_add(o->clocks, traced.device, &traced.sample) == -ENODEV)
                unasked(o);
}

static void on_handle(void *data, struct agent *a, uint64_t func)
{
        struct gpuobsd *d = data;
        struct observed *o = agent_user(a);

        if (!o->correlated)
                return;
        trace_write(d->trace, TRACE_OWN_FUNCTION, o->info.process_key, &func, sizeof(func), NULL,
                    0);
        correlator_own_function(d->correlator, o->correlated, func);
}

/* As if the call that gave it out had been seen. */
static void on_function(void *data, struct agent *a, uint64_t func, uint64_t image,
                        const char *name, size_t name_length)
{
        struct gpuobsd *d = data;
        struct observed *o = agent_user(a);
        _cleanup_free_ struct cpu_handle_event *e = NULL;

        if (!o->correlated || name_length >= CPU_NAME_MAX)
                return;
        e = calloc(1, sizeof(*e) + name_length + 1);
        if (!e)
                return;
        e->handle = func;
        e->parent = image;
        e->kind = CPU_HANDLE_FUNCTION;
        e->type = CPU_EVENT_HANDLE;
        e->tgid = o->info.pid;
        e->name_length = (__u16)name_length;
        memcpy(e->name, name, name_length);
        trace_write(d->trace, TRACE_HANDLE, o->info.process_key, e, sizeof(*e), e->name,
                    e->name_length);
        correlator_handle(d->correlator, o->correlated, e);
}

/* The process goes on without it, and may get another one. */
static void on_bye(void *data, struct agent *a)
{
        struct observed *o = agent_user(a);

        log_pid(LOG_DEBUG, agent_pid(a), "agent of process %d (%s) has left", (int)agent_pid(a),
                o->info.comm);
        flow_agent_left(o);
}

static void on_note(void *data, struct agent *a, uint32_t kind, const char *text)
{
        struct observed *o = agent_user(a);

        if (kind != AGENT_NOTE_INFO) {
                snprintf(o->note, sizeof(o->note), "%s", text);
                log_pid(LOG_NOTICE, agent_pid(a), "agent of process %d (%s): %s", (int)agent_pid(a),
                        o->info.comm, text);
        } else {
                log_pid(LOG_DEBUG, agent_pid(a), "agent of process %d (%s): %s", (int)agent_pid(a),
                        o->info.comm, text);
        }
}

static void on_wake(void *data, struct agent *a)
{
        arguments_wake(data, agent_user(a));
}

static void on_refused(void *data, struct agent *a, const char *reason)
{
        struct gpuobsd *d = data;
        struct observed *o = agent_pid(a) > 0 ? flow_process(d, agent_pid(a)) : NULL;
        struct ledger *l = o ? &o->ledger : &d->observed.forgotten;

        l->lost[LOSS_agent_refused]++;
        if (o && !o->agent)
                snprintf(o->note, sizeof(o->note), "%s", reason);
        log_pid(LOG_DEBUG, agent_pid(a), "agent of process %d was turned away: %s",
                (int)agent_pid(a), reason);
}

/* Before it was welcomed an agent belongs to no process that is known. */
static void on_protocol_error(void *data, struct agent *a, const char *what)
{
        struct gpuobsd *d = data;
        struct observed *o = agent_user(a);
        struct ledger *l = o ? &o->ledger : &d->observed.forgotten;

        l->lost[LOSS_agent_protocol]++;
        log_pid(LOG_WARNING, agent_pid(a), "agent of process %d sent nonsense and was cut off: %s",
                (int)agent_pid(a), what);
}

static void on_welcomed(void *data, struct agent *a)
{
        programs_welcomed(data, agent_user(a));
}

static void on_attached(void *data, struct agent *a, const struct agent_attached *m)
{
        if (!attachment_answered(agent_user(a), m))
                unasked(agent_user(a));
}

static void on_detached(void *data, struct agent *a, const struct agent_detached *m)
{
        if (!attachment_left(agent_user(a), m))
                unasked(agent_user(a));
}

static void on_map_done(void *data, struct agent *a, const struct agent_map_done *m)
{
        if (!attachment_map_done(agent_user(a), m))
                unasked(agent_user(a));
}

static void on_gone(void *data, struct agent *a)
{
        struct gpuobsd *d = data;
        struct observed *o = agent_user(a);

        if (!o)
                return;
        programs_agent_gone(d, o);
        o->agent = NULL;
}

const struct agent_server_ops agents_ops = {
        .hello = on_hello,
        .image = on_image,
        .kernel = on_kernel,
        .clock = on_clock,
        .handle = on_handle,
        .function = on_function,
        .bye = on_bye,
        .note = on_note,
        .welcomed = on_welcomed,
        .attached = on_attached,
        .detached = on_detached,
        .map_done = on_map_done,
        .refused = on_refused,
        .protocol_error = on_protocol_error,
        .gone = on_gone,
        .wake = on_wake,
};
