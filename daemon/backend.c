/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon's state as the API asks for it (api/backend.h). */
#include "api/backend.h"

#include <string.h>

#include "api/agent_server.h"
#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "daemon.h"
#include "doctor.h"
#include "driver/tsg.h"
#include "driver_silence.h"
#include "gpu_clocks.h"
#include "gpu_switches.h"
#include "group_slices.h"
#include "policies.h"
#include "managed.h"
#include "managed_decisions.h"
#include "probe/cpu_probes.h"
#include "programs.h"
#include "settings.h"
#include "util/macro.h"
#include "util/time.h"

/* GPUs and problems of the last answer; the API reads them before its next call. */
#define PROBLEMS_MAX 8
#define GPUS_MAX     64

static struct api_gpu gpus[GPUS_MAX];
static struct api_problem problems[PROBLEMS_MAX];
static char silence[DRIVER_SILENCE_TEXT];

static size_t collect_problems(const struct gpuobsd *d, const struct api_state *state)
{
        size_t n = 0;

        if (state->libraries == 0)
                problems[n++] = (struct api_problem){"no_cuda_library",
                                                     "no copy of libcuda.so.1 is probed yet; one "
                                                     "is picked up when a process maps it, "
                                                     "or name it with `library` in gpuobsd.conf"};
        if (!d->device_object)
                problems[n++] = (struct api_problem){"no_device_program", d->device_error};
        if (d->config->context_switches && gpu_clocks_count(d->clocks) &&
            !gpu_switches_count(d->switches) && gpu_switches_refusal(d->switches)[0])
                problems[n++] = (struct api_problem){
                        "no_context_switches", "the driver does not let gpuobsd trace the context "
                                               "switches of any GPU: the journal says why"};
        if (driver_silence_describe(d, silence))
                problems[n++] = (struct api_problem){"driver_silent", silence};
        if (state->store.failing)
                problems[n++] = (struct api_problem){"database", state->store.error};
        return n;
}

static void backend_state(void *data, struct api_state *ret_state)
{
        struct gpuobsd *d = data;
        const struct observed *o;
        const struct observed *next;
        struct api_state state = {
                .started_ns = d->started_ns,
                .libraries = (uint32_t)cpu_probes_library_count(d->probes),
                .processes = HASH_CNT(by_pid, d->observed.by_pid),
                .store_path = d->config->database,
                .gpus = gpus,
                .problems = problems,
        };

        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                state.agents += o->agent != NULL;
        store_get_status(d->store, &state.store);
        state.gpu_count = gpu_clocks_describe(d->clocks, gpus, GPUS_MAX);
        *ret_state = state;
        /* The problems' texts may be those of the answer, which is the caller's. */
        ret_state->problem_count = collect_problems(d, ret_state);
}

static enum gpuobs_agent agent_state(const struct observed *o)
{
        if (o->agent)
                return GPUOBS_AGENT_ACTIVE;
        if (o->ring || o->had_agent)
                return GPUOBS_AGENT_GONE;
        return o->note[0] ? GPUOBS_AGENT_REFUSED : GPUOBS_AGENT_NONE;
}

static void describe_process(struct gpuobsd *d, const struct observed *o, struct api_process *p)
{
        struct cpu_probes_depth depth;

        *p = (struct api_process){
                .info = &o->info,
                .ledger = &o->ledger,
                .alive = !o->gone,
                .agent = agent_state(o),
                .agent_reason = o->note[0] ? o->note : NULL,
                .pending = o->correlated ? correlated_process_pending(o->correlated) : 0,
                .images = (uint32_t)o->coverage.image_count,
                .kernels = (uint32_t)o->coverage.kernel_count,
                .kernels_start = o->coverage.entry_count,
                .kernels_end = o->coverage.exit_count,
                .calls = o->calls,
                .managed = o->managed,
                .limits = o->limits,
                .paced = o->paced,
        };
        if (!o->gone && o->ring && cpu_probes_depth(d->probes, o->info.pid, &depth) == 0) {
                p->contexts = depth.contexts;
                p->has_depth = true;
                p->depth = depth.depth;
        }
}

static void backend_processes(void *data, uint64_t after,
                              int (*row)(void *row_data, const struct api_process *p),
                              void *row_data)
{
        struct gpuobsd *d = data;
        const struct observed *o, *next;
        struct api_process p;

        /* Keys only grow and uthash keeps insertion order: this is ascending. */
        HASH_ITER (by_key, d->observed.by_key, o, next) {
                if (o->info.process_key <= after)
                        continue;
                describe_process(d, o, &p);
                if (row(row_data, &p))
                        return;
        }
}

static const char *text_or_null(const struct gpuobsd *d, uint64_t id)
{
        return id ? intern_text(d->names, id) : NULL;
}

static void backend_images(void *data, uint64_t process_key, uint32_t after,
                           int (*row)(void *row_data, const struct api_image *image),
                           void *row_data)
{
        struct gpuobsd *d = data;
        const struct observed *o = observed_find_key(&d->observed, process_key);
        const struct covered_image *c = o ? coverage_next_image(&o->coverage, after) : NULL;

        for (; c; c = coverage_next_image(&o->coverage, c->image_id)) {
                struct api_image image = {
                        .image_id = c->image_id,
                        .kernels = c->kernel_count,
                        .rewrite_us = c->rewrite_us,
                        .rewritten = c->status == AGENT_IMAGE_REWRITTEN,
                        .ptx = c->is_ptx,
                        .handle = c->handle,
                        .bytes = c->bytes,
                        .reason = text_or_null(d, c->reason),
                };

                if (row(row_data, &image))
                        return;
        }
}

static void backend_kernels(void *data, uint64_t process_key, uint32_t image_id, uint32_t after,
                            int (*row)(void *row_data, const struct api_kernel *kernel),
                            void *row_data)
{
        struct gpuobsd *d = data;
        const struct observed *o = observed_find_key(&d->observed, process_key);
        const struct covered_image *image = o ? coverage_image(&o->coverage, image_id) : NULL;
        const struct covered_kernel *c = NULL;

        while (image && (c = coverage_next_kernel(&o->coverage, image, c))) {
                struct api_kernel kernel = {
                        .kernel_id = c->kernel_id,
                        .start = (enum gpuobs_how)c->entry, /* same order as AGENT_PROBE_ */
                        .end = (enum gpuobs_how)c->exit,
                        .has_accesses = c->accesses != AGENT_ACCESSES_UNKNOWN,
                        .accesses_probed = c->accesses_probed,
                        .accesses = c->accesses,
                        .name = intern_text(d->names, c->name),
                        .reason = text_or_null(d, c->reason),
                };

                if (c->kernel_id > after && row(row_data, &kernel))
                        return;
        }
}

static void backend_losses(void *data, uint32_t uid, struct ledger *ret_ledger)
{
        struct gpuobsd *d = data;

        observed_losses(&d->observed, uid, ret_ledger);
}

static const struct process_info *backend_process(void *data, uint64_t process_key)
{
        struct gpuobsd *d = data;
        const struct observed *o = observed_find_key(&d->observed, process_key);

        return o ? &o->info : NULL;
}

static struct nvml *backend_nvml(void *data)
{
        struct gpuobsd *d = data;

        return d->nvml;
}

static struct slice_history *backend_slices(void *data)
{
        struct gpuobsd *d = data;

        return gpu_switches_history(d->switches);
}

static bool backend_gpu_of_instance(void *data, uint32_t instance, uint32_t *ret_gpu)
{
        struct gpuobsd *d = data;

        return gpu_clocks_gpu_of_instance(d->clocks, instance, ret_gpu);
}

static bool backend_time_slice(void *data, const struct process_info *process,
                               const struct call_group *group, uint64_t *ret_us)
{
        const struct gpuobsd *d = data;
        const struct tsg_target target = {.pid = (pid_t)process->pid,
                                          .start_ticks = process->start_ticks,
                                          .fd = group->fd,
                                          .client = group->client,
                                          .object = group->object};

        return !policies_are_stuck_with(d, process) &&
               group_slices_ask(d->group_slices, &target, ret_us);
}

static const char *backend_name(void *data, uint64_t id)
{
        struct gpuobsd *d = data;

        return text_or_null(d, id);
}

static int backend_watch(void *data, uint32_t pid, bool on, const struct uvm_process **ret_process)
{
        struct gpuobsd *d = data;
        struct observed *o = observed_find(&d->observed, (pid_t)pid);
        int r = o ? managed_watch(d, o, on) : -ESRCH;

        *ret_process = o ? o->managed : NULL;
        return r;
}

static void backend_subscriber_slow(void *data, uint64_t process_key, uint64_t n)
{
        struct gpuobsd *d = data;
        struct observed *o = observed_find_key(&d->observed, process_key);
        struct ledger *l = o ? &o->ledger : &d->observed.forgotten;

        l->lost[LOSS_subscriber_slow] += n;
}

static void backend_decisions(void *data, struct api_decisions *ret_decisions)
{
        struct gpuobsd *d = data;

        managed_decisions_describe(d->decisions, ret_decisions);
}

static struct policy_engine *backend_policies(void *data)
{
        return policies_engine(data);
}

static const struct config *backend_settings(void *data)
{
        return ((struct gpuobsd *)data)->config;
}

static int backend_set(void *data, const char *name, const char *value, char *error,
                       size_t error_size)
{
        return settings_set(data, name, value, error, error_size);
}

static void backend_probes(void *data, int (*row)(void *row_data, const struct api_probe *p),
                           void *row_data)
{
        programs_each(data, row, row_data);
}

static void backend_attachments(void *data, uint64_t id,
                                int (*row)(void *row_data, const struct api_attachment *a),
                                void *row_data)
{
        programs_attachments(data, id, row, row_data);
}

static int backend_probe_load(void *data, const char *name, const void *object, size_t size,
                              char *error, size_t error_size)
{
        return programs_load(data, name, object, size, error, error_size);
}

static int backend_probe_unload(void *data, const char *name, char *error, size_t error_size)
{
        return programs_unload(data, name, error, error_size);
}

static int backend_probe_attach(void *data, const char *name, const struct api_target *target,
                                char *error, size_t error_size)
{
        return programs_attach(data, name, target, error, error_size);
}

static int backend_probe_detach(void *data, const char *name, const struct api_target *target,
                                char *error, size_t error_size)
{
        return programs_detach(data, name, target, error, error_size);
}

static int backend_map_read(void *data, const struct api_map_request *request, api_map_done *done,
                            void *done_data, uint32_t *ret_pid, char *error, size_t error_size)
{
        return programs_read_map(data, request, done, done_data, ret_pid, error, error_size);
}

static int backend_map_write(void *data, const struct api_map_request *request, uint64_t offset,
                             const void *bytes, size_t size, api_map_done *done, void *done_data,
                             char *error, size_t error_size)
{
        return programs_write_map(data, request, offset, bytes, size, done, done_data, error,
                                  error_size);
}

static void backend_gpu_moment(void *data, uint32_t pid, uint16_t context, uint64_t gpu_ns,
                               uint32_t kernel_id, struct api_gpu_moment *ret_moment)
{
        struct gpuobsd *d = data;
        const struct observed *o = observed_find(&d->observed, (pid_t)pid);
        struct api_gpu_moment m = {.kernel = NULL};

        if (o && o->correlated) {
                m.kernel = text_or_null(d, correlated_process_kernel(o->correlated, kernel_id));
                m.has_time = correlated_process_time(o->correlated, context, gpu_ns, &m.time_ns,
                                                     &m.error_ns) == 0;
        }
        *ret_moment = m;
}

static enum gpuobs_allocation_kind kind_of(const struct allocation *a)
{
        switch (a->operation) {
        case CPU_OP_ALLOC_MANAGED:
                return GPUOBS_ALLOCATION_KIND_MANAGED;
        case CPU_OP_ALLOC_HOST:
                return GPUOBS_ALLOCATION_KIND_HOST;
        case CPU_OP_ALLOC_ASYNC:
                return GPUOBS_ALLOCATION_KIND_POOL;
        case CPU_OP_MAP:
                return GPUOBS_ALLOCATION_KIND_MAPPED;
        default:
                return GPUOBS_ALLOCATION_KIND_DEVICE;
        }
}

static void backend_allocations(void *data, uint64_t process_key, uint64_t from,
                                int (*row)(void *row_data, const struct api_allocation *a),
                                void *row_data, uint64_t *ret_unlisted)
{
        struct gpuobsd *d = data;
        const struct observed *o = observed_find_key(&d->observed, process_key);
        const struct allocation *a = o ? allocations_from(&o->allocations, from) : NULL;

        *ret_unlisted = o ? o->allocations.unlisted : 0;
        for (; a; a = allocations_from(&o->allocations, a->address + a->bytes)) {
                const struct api_allocation r = {.address = a->address,
                                                 .bytes = a->bytes,
                                                 .since_ns = a->since_ns,
                                                 .kind = kind_of(a)};

                if (row(row_data, &r))
                        return;
        }
}

static struct store *backend_store(void *data)
{
        return ((struct gpuobsd *)data)->store;
}

const struct api_backend backend_ops = {
        .state = backend_state,
        .processes = backend_processes,
        .images = backend_images,
        .kernels = backend_kernels,
        .losses = backend_losses,
        .process = backend_process,
        .slices = backend_slices,
        .nvml = backend_nvml,
        .gpu_of_instance = backend_gpu_of_instance,
        .time_slice = backend_time_slice,
        .name = backend_name,
        .watch = backend_watch,
        .subscriber_slow = backend_subscriber_slow,
        .doctor = doctor_examine,
        .decisions = backend_decisions,
        .policies = backend_policies,
        .settings = backend_settings,
        .set = backend_set,
        .probes = backend_probes,
        .attachments = backend_attachments,
        .probe_load = backend_probe_load,
        .probe_unload = backend_probe_unload,
        .probe_attach = backend_probe_attach,
        .probe_detach = backend_probe_detach,
        .map_read = backend_map_read,
        .map_write = backend_map_write,
        .gpu_moment = backend_gpu_moment,
        .allocations = backend_allocations,
        .store = backend_store,
};
