/* SPDX-License-Identifier: Apache-2.0 */
#include "policies.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "daemon.h"
#include "driver/calls.h"
#include "driver/uvm_process.h"
#include "free_memory.h"
#include "gpu_clocks.h"
#include "gpu_numbers.h"
#include "leftovers.h"
#include "managed.h"
#include "pacing.h"
#include "policy/driver_actuator.h"
#include "policy/engine.h"
#include "policy/recorder.h"
#include "policy/sim/trace.h"
#include "probe/cpu_probes.h"
#include "process_clocks.h"
#include "util/log.h"
#include "util/time.h"

#define TICK_MS           100
#define UNWRITTEN_SAID_NS (10 * NSEC_PER_SEC) /* not more often */
#define GATHERED_MAX      POLICY_ITEMS_MAX
#define PRESSURE_PART     16 /* of its memory, free: policies are told that little is left */

/* Items of one process that are told of in one go. */
struct gathered {
        uint64_t process;
        struct policy_fault faults[GATHERED_MAX];
        struct policy_moved moved[GATHERED_MAX];
        size_t fault_count, moved_count;
};

struct policies {
        struct policy_engine *engine;
        struct policy_worker *worker;
        struct driver_actuator_options actuator;
        struct free_memory *memory;
        struct gathered gathered;
        uint64_t shares_ns;               /* when shares were told of last; 0 never */
        struct policy_recorder *recorder; /* NULL: nothing is recorded */
        uv_poll_t results;
        uv_timer_t ticks;
        bool handles_open;
        struct undo_failures unwritten; /* in the journal, as last said */
        uint64_t unwritten_ns;          /* when that was */
        unsigned not_undone;            /* and not yet said */
        char not_undone_last[POLICY_NAME_MAX + 100];
        struct gpu_numbers gpus; /* that processes were seen to use */
};

/* ---- the actuator ---- */

static bool submit(void *data, const struct policy_order *order)
{
        struct policies *p = data;
        struct policy_result result = {.id = order->id};

        if (!pacing_is(order->action.kind))
                return policy_worker_submit(p->worker, order);
        result.error = pacing_apply(p->actuator.data, order, &result.before);
        policy_engine_done(p->engine, &result);
        return true;
}

static void hold(void *data, bool on)
{
        struct policies *p = data;

        policy_worker_hold(p->worker, on);
}

static void on_result(void *data, const struct policy_result *result)
{
        struct policies *p = data;

        policy_engine_done(p->engine, result);
}

static void flush(void *data)
{
        struct policies *p = data;

        policy_worker_flush(p->worker, on_result, p);
}

static void on_ejected(void *data, const char *policy, const char *reason)
{
        log_warning("policy %s was ejected: %s", policy, reason);
}

static const char *const action_names[] = {
#define X(name, value, class_) [value] = #name,
        POLICY_ACTIONS(X)
#undef X
};

static void on_not_undone(void *data, const char *policy, const struct policy_action *action,
                          int error)
{
        struct policies *p = data;

        p->not_undone++;
        snprintf(p->not_undone_last, sizeof(p->not_undone_last), "%s of policy %s: %s",
                 action_names[action->kind], policy,
                 error == -EINPROGRESS ? "a call of the driver for the process has not returned"
                                       : strerror(-error));
}

static void on_stuck(void *data, const char *policy, const struct policy_action *action,
                     uint32_t pid, bool returned)
{
        if (returned)
                log_pid(LOG_NOTICE, (pid_t)pid, "the driver has returned from the %s of policy %s",
                        action_names[action->kind], policy);
        else
                log_pid(LOG_WARNING, (pid_t)pid,
                        "the driver does not return from the %s of policy %s: policies leave this "
                        "process alone until it does; ending the process may free it",
                        action_names[action->kind], policy);
}

/* There may be many at once. */
static void say_not_undone(struct policies *p)
{
        if (p->not_undone)
                log_warning("%u settings of policies could not be set back, the last a %s; "
                            "the daemon tries again when it stops and when it starts, and when the "
                            "driver returns from a call that keeps it",
                            p->not_undone, p->not_undone_last);
        p->not_undone = 0;
}

/* What cannot be noted is not done: as often as policies ask for it. */
static void say_unwritten(struct policies *p)
{
        const struct gpuobsd *d = p->actuator.data;
        struct undo_failures f = {0};

        if (p->actuator.journal && now_ns() - p->unwritten_ns >= UNWRITTEN_SAID_NS)
                undo_journal_failures(p->actuator.journal, &f);
        if (f.entries <= p->unwritten.entries)
                return;
        log_warning("%s.undo cannot be written (%s): what policies ask for and would have to be "
                    "undone after a crash is not done; %s (%" PRIu64 " notes failed)",
                    d->config->database, strerror(-f.error),
                    f.error == -EEXIST ? "another is in its place: start the daemon again"
                                       : "make room on its disk",
                    f.entries - p->unwritten.entries);
        if (f.left > p->unwritten.left)
                log_warning("%" PRIu64 " of these notes are still in it: the next daemon may undo "
                            "what was never done",
                            f.left - p->unwritten.left);
        p->unwritten = f;
        p->unwritten_ns = now_ns();
}

static const struct policy_actuator_ops engine_ops = {
        .submit = submit,
        .hold = hold,
        .ejected = on_ejected,
        .not_undone = on_not_undone,
        .stuck = on_stuck,
        .flush = flush,
};

struct group_list {
        const struct gpuobsd *daemon;
        const struct observed *observed;
        struct actuator_process *process;
        int error;
};

/* Copy engines are not what kernels wait for. */
static bool runs_kernels(const struct call_group *g)
{
        return !g->has_engine || g->engine <= 8;
}

/* The UUID of the GPU it is on; NULL: not known, as of groups from before the daemon. */
static const uint8_t *uuid_of_group(const struct gpuobsd *d, const struct call_group *g)
{
        uint32_t gpu;

        if (!g->has_instance || !gpu_clocks_gpu_of_instance(d->clocks, g->instance, &gpu))
                return NULL;
        return gpu_clocks_uuid(d->clocks, gpu);
}

static int add_group(void *data, const struct call_group *g)
{
        struct group_list *l = data;
        const struct process_info *info = &l->observed->info;
        const uint8_t *uuid = uuid_of_group(l->daemon, g);
        struct tsg_target target = {
                .pid = (pid_t)info->pid,
                .start_ticks = info->start_ticks,
                .fd = g->fd,
                .client = g->client,
                .object = g->object,
                .slice_us = g->slice_us,
        };

        if (uuid)
                memcpy(target.gpu, uuid, sizeof(target.gpu));
        if (runs_kernels(g))
                l->error = actuator_process_add(l->process, &target);
        return l->error;
}

static int find_process(void *data, uint32_t pid, uint64_t start_ticks,
                        struct actuator_process *process)
{
        struct gpuobsd *d = data;
        const struct observed *o = observed_find(&d->observed, (pid_t)pid);
        struct group_list groups = {.daemon = d, .observed = o, .process = process};

        if (!o || o->info.start_ticks != start_ticks)
                return -ESRCH;
        if (o->managed)
                process->allocations = &o->managed->allocations;
        if (o->calls)
                calls_groups(o->calls, add_group, &groups);
        return groups.error;
}

static int find_gpu(void *data, uint32_t number, uint8_t ret_uuid[UVM_UUID_BYTES])
{
        const struct gpuobsd *d = data;
        const struct numbered_gpu *g = gpu_numbers_find(&d->policies->gpus, number);
        const uint8_t *uuid = g ? g->uuid : gpu_clocks_uuid(d->clocks, number);

        if (!uuid)
                return -ENODEV;
        memcpy(ret_uuid, uuid, UVM_UUID_BYTES);
        return 0;
}

/* ---- what has been gathered ---- */

static void tell_gathered(struct policies *p)
{
        struct gathered *g = &p->gathered;
        uint64_t now = now_ns();

        policy_engine_moved(p->engine, g->process, g->moved, g->moved_count, now);
        policy_engine_faults(p->engine, g->process, g->faults, g->fault_count, now);
        policy_recorder_faults(p->recorder, g->process, g->faults, g->fault_count, now);
        g->moved_count = g->fault_count = 0;
}

static void gather_for(struct policies *p, const struct observed *o)
{
        struct gathered *g = &p->gathered;

        if (g->process == o->info.process_key && g->moved_count < GATHERED_MAX &&
            g->fault_count < GATHERED_MAX)
                return;
        tell_gathered(p);
        g->process = o->info.process_key;
}

static uint32_t access_of(uint8_t access)
{
        switch (access) {
        case UVM_ACCESS_WRITE:
                return POLICY_WRITE;
        case UVM_ACCESS_ATOMIC:
                return POLICY_ATOMIC;
        case UVM_ACCESS_PREFETCH:
                return POLICY_PREFETCH;
        default:
                return POLICY_READ;
        }
}

static uint16_t cause_of(uint8_t cause)
{
        switch (cause) {
        case UVM_MIGRATED_COHERENCE:
        case UVM_MIGRATED_PREFETCH:
                return POLICY_BY_FAULT;
        case UVM_MIGRATED_USER:
                return POLICY_BY_REQUEST;
        case UVM_MIGRATED_EVICTION:
                return POLICY_BY_EVICTION;
        default:
                return POLICY_BY_OTHER;
        }
}

void policies_process_on(struct gpuobsd *d, struct observed *o, uint32_t gpu)
{
        if (gpu >= GPU_NUMBERS_MAX || o->gpus >> gpu & 1)
                return;
        if (!o->gpus)
                o->gpu = gpu;
        o->gpus |= 1ull << gpu;
        policy_engine_process_gpu(d->policies->engine, o->info.process_key, gpu, now_ns());
}

uint32_t policies_process_gpu(struct gpuobsd *d, struct observed *o, const uint8_t uuid[16])
{
        const struct numbered_gpu *g = gpu_numbers_add(&d->policies->gpus, d->clocks, uuid);

        if (!g)
                return o->gpu;
        policies_process_on(d, o, g->number);
        return g->number;
}

void policies_uvm_event(struct gpuobsd *d, struct observed *o, const struct uvm_event *e,
                        uint32_t source, uint32_t target, uint64_t at_ns)
{
        struct policies *p = d->policies;
        struct gathered *g = &p->gathered;

        gather_for(p, o);
        if (e->kind == UVM_KIND_MIGRATION)
                g->moved[g->moved_count++] = (struct policy_moved){.address = e->address,
                                                                   .bytes = e->bytes,
                                                                   .at_ns = at_ns,
                                                                   .to = target,
                                                                   .cause = cause_of(e->cause),
                                                                   .from = (uint16_t)source};
        else if (e->kind == UVM_KIND_GPU_FAULT || e->kind == UVM_KIND_CPU_FAULT)
                g->faults[g->fault_count++] = (struct policy_fault){.address = e->address,
                                                                    .at_ns = at_ns,
                                                                    .access = access_of(e->access),
                                                                    .gpu = source,
                                                                    .count = 1};
}

void policies_launch(struct gpuobsd *d, struct observed *o)
{
        o->launches_untold++;
}

static uint64_t depth_of(const struct gpuobsd *d, const struct observed *o)
{
        struct cpu_probes_depth depth;

        if (o->ring && cpu_probes_depth(d->probes, o->info.pid, &depth) == 0)
                return depth.depth;
        return POLICY_UNKNOWN;
}

void policies_arguments(struct gpuobsd *d, struct observed *o, uint32_t device, uint32_t launches,
                        const struct policy_range *ranges, size_t n)
{
        const uint8_t *uuid = o->clocks ? process_clocks_uuid(o->clocks, device) : NULL;
        uint32_t gpu = uuid ? policies_process_gpu(d, o, uuid) : o->gpu;

        tell_gathered(d->policies);
        policy_engine_launches(d->policies->engine, o->info.process_key, gpu, launches,
                               depth_of(d, o), ranges, n, now_ns());
        o->launches_told += launches;
}

bool policies_want_arguments(const struct gpuobsd *d, const struct observed *o)
{
        return policy_engine_wants_of(d->policies->engine, o->info.process_key,
                                      POLICY_EVENT_launch);
}

/* Those that were told of with their arguments are not told of again. */
static void tell_launches(struct gpuobsd *d, struct observed *o)
{
        struct policy_engine *e = d->policies->engine;
        uint32_t told =
                o->launches_told < o->launches_untold ? o->launches_told : o->launches_untold;

        if (!o->launches_untold)
                return;
        o->launches_untold -= told;
        o->launches_told -= told;
        if (o->launches_untold && policy_engine_wants(e, POLICY_EVENT_launch))
                policy_engine_launches(e, o->info.process_key, POLICY_GPUS_MAX, o->launches_untold,
                                       depth_of(d, o), NULL, 0, now_ns());
        o->launches_untold = 0;
}

void policies_turn(struct gpuobsd *d)
{
        struct observed *o, *next;

        tell_gathered(d->policies);
        HASH_ITER (by_pid, d->observed.by_pid, o, next) {
                arguments_turn(d, o);
                tell_launches(d, o);
        }
}

/* ---- shares ---- */

void policies_slice(struct observed *o, uint32_t gpu, uint64_t active_ns)
{
        if (gpu < POLICY_GPUS_MAX)
                o->active_untold_ns[gpu] += active_ns;
}

/* POLICY_GPUS_MAX: of all. */
static uint64_t active_on(const struct observed *o, uint32_t gpu)
{
        uint64_t sum = 0;

        if (gpu < POLICY_GPUS_MAX)
                return o->active_untold_ns[gpu];
        for (uint32_t i = 0; i < POLICY_GPUS_MAX; i++)
                sum += o->active_untold_ns[i];
        return sum;
}

/* POLICY_GPUS_MAX: not known. */
static uint32_t gpu_of_group(const struct gpuobsd *d, const struct call_group *g)
{
        const uint8_t *uuid = uuid_of_group(d, g);
        const struct numbered_gpu *n =
                uuid ? gpu_numbers_add(&d->policies->gpus, d->clocks, uuid) : NULL;

        return n ? n->number : POLICY_GPUS_MAX;
}

struct own_slice {
        const struct gpuobsd *daemon;
        uint32_t gpu;
        uint32_t slice_us;
};

static int take_slice(void *data, const struct call_group *g)
{
        struct own_slice *own = data;
        uint32_t gpu = own->gpu < POLICY_GPUS_MAX ? gpu_of_group(own->daemon, g) : own->gpu;

        if (runs_kernels(g) && (gpu == own->gpu || gpu == POLICY_GPUS_MAX))
                own->slice_us = g->slice_us;
        return own->slice_us != 0;
}

/*
 * That the process has set itself, of its first group that is not on another GPU; 0: it was not
 * seen to.
 */
static uint32_t own_slice(const struct gpuobsd *d, const struct observed *o, uint32_t gpu)
{
        struct own_slice own = {.daemon = d, .gpu = gpu};

        if (o->calls)
                calls_groups(o->calls, take_slice, &own);
        return own.slice_us;
}

static bool is_on(const struct observed *o, uint32_t gpu)
{
        return gpu == POLICY_GPUS_MAX || o->gpus >> gpu & 1;
}

/* Without an agent nobody knows what waits: who had the GPU is taken to have more to do. */
static uint32_t waiting_of(const struct gpuobsd *d, const struct observed *o, uint64_t active_ns)
{
        uint64_t depth = depth_of(d, o);

        return depth == POLICY_UNKNOWN ? active_ns > 0 : (uint32_t)depth;
}

/* Processes that had the GPU, or wait for one. */
static size_t collect_shares(struct gpuobsd *d, uint32_t gpu, uint64_t period_ns,
                             struct policy_share *shares, size_t max)
{
        struct observed *o, *next;
        size_t n = 0;

        HASH_ITER (by_pid, d->observed.by_pid, o, next) {
                struct policy_share share = {.process = o->info.process_key,
                                             .active_ns = active_on(o, gpu),
                                             .period_ns = period_ns,
                                             .slice_us = own_slice(d, o, gpu)};

                if (!is_on(o, gpu))
                        continue;
                share.waiting = waiting_of(d, o, share.active_ns);
                if (n < max && (share.active_ns || share.waiting))
                        shares[n++] = share;
        }
        return n;
}

static void tell_shares(struct gpuobsd *d, uint32_t gpu, uint64_t now)
{
        struct policy_share shares[POLICY_ITEMS_MAX];
        size_t n = collect_shares(d, gpu, now - d->policies->shares_ns, shares, POLICY_ITEMS_MAX);

        if (n)
                policy_engine_shares(d->policies->engine, gpu, shares, n, now);
}

void policies_shares(struct gpuobsd *d)
{
        struct policies *p = d->policies;
        struct observed *o, *next;
        uint64_t gpus = 0, now = now_ns();

        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                gpus |= o->gpus;
        for (uint32_t gpu = 0; p->shares_ns && policies_want_shares(d) && gpu <= POLICY_GPUS_MAX;
             gpu++)
                if (gpu == POLICY_GPUS_MAX || gpus >> gpu & 1)
                        tell_shares(d, gpu, now);
        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                memset(o->active_untold_ns, 0, sizeof(o->active_untold_ns));
        p->shares_ns = now;
}

bool policies_want_shares(const struct gpuobsd *d)
{
        return policy_engine_wants(d->policies->engine, POLICY_EVENT_share);
}

/* ---- processes ---- */

/* A process that has a group for kernels on a GPU uses it. */
void policies_driver_call(struct gpuobsd *d, struct observed *o, const struct driver_call_event *e)
{
        struct call_group g;
        uint32_t gpu;

        if (!calls_group_of(o->calls, e, &g) || !runs_kernels(&g))
                return;
        gpu = gpu_of_group(d, &g);
        policies_process_on(d, o, gpu);
        policy_engine_slices_changed(d->policies->engine, o->info.process_key, gpu);
}

void policies_process_start(struct gpuobsd *d, struct observed *o)
{
        char comm[sizeof(o->info.comm) + 1];
        const struct policy_process process = {.key = o->info.process_key,
                                               .start_ticks = o->info.start_ticks,
                                               .pid = o->info.pid,
                                               .uid = o->info.uid,
                                               .gpu = POLICY_GPUS_MAX,
                                               .comm = comm,
                                               .cgroup = o->info.cgroup};

        snprintf(comm, sizeof(comm), "%.16s", o->info.comm);
        if (policy_recorder_start(d->policies->recorder, o->info.process_key, comm) < 0)
                o->ledger.lost[LOSS_managed_unrecorded]++;
        if (policy_engine_process_start(d->policies->engine, &process, now_ns()) < 0)
                log_pid(LOG_WARNING, (pid_t)o->info.pid,
                        "policies cannot be told of the process: "
                        "out of memory");
}

bool policies_are_stuck_with(const struct gpuobsd *d, const struct process_info *process)
{
        return policy_worker_is_stuck(d->policies->worker, process->pid, process->start_ticks);
}

void policies_process_again(struct gpuobsd *d, const struct observed *o)
{
        policy_engine_process_again(d->policies->engine, o->info.process_key, now_ns());
}

void policies_process_end(struct gpuobsd *d, const struct observed *o)
{
        if (d->policies->gathered.process == o->info.process_key)
                tell_gathered(d->policies);
        policy_engine_process_exit(d->policies->engine, o->info.process_key, now_ns());
        policy_recorder_exit(d->policies->recorder, o->info.process_key);
        /* A daemon that stops knows its processes no more, but they live on. */
        if (d->policies->actuator.journal && !d->stopping)
                driver_actuator_forget(&d->policies->actuator, (pid_t)o->info.pid,
                                       o->info.start_ticks);
}

void policies_alloc(struct gpuobsd *d, struct observed *o, uint64_t address, uint64_t bytes)
{
        if (policy_engine_alloc(d->policies->engine, o->info.process_key, address, bytes,
                                now_ns()) < 0)
                o->ledger.lost[LOSS_policy_memory]++;
        if (policy_recorder_alloc(d->policies->recorder, o->info.process_key, address, bytes) < 0)
                o->ledger.lost[LOSS_managed_unrecorded]++;
}

void policies_free_memory(struct gpuobsd *d, const struct observed *o, uint64_t address)
{
        policy_engine_freed(d->policies->engine, o->info.process_key, address, now_ns());
        policy_recorder_freed(d->policies->recorder, o->info.process_key, address);
}

/* ---- time ---- */

static void on_free_memory(void *data, size_t index, const uint64_t *unused)
{
        struct policies *p = data;
        struct numbered_gpu *g = &p->gpus.list[index];

        if (!unused) {
                policy_engine_memory(p->engine, g->number,
                                     g->total_bytes ? g->total_bytes : POLICY_UNKNOWN,
                                     POLICY_UNKNOWN);
                return;
        }
        g->total_bytes = *unused > g->total_bytes ? *unused : g->total_bytes;
        policy_engine_memory(p->engine, g->number, g->total_bytes, *unused);
        if (*unused < g->total_bytes / PRESSURE_PART)
                policy_engine_pressure(p->engine, g->number, now_ns());
}

static void flush_recorder(struct policies *p)
{
        int r = policy_recorder_flush(p->recorder);

        if (r == 0)
                return;
        log_warning("managed memory is not recorded any more: %s", strerror(-r));
        p->recorder = policy_recorder_free(p->recorder);
}

static void on_tick(uv_timer_t *t)
{
        struct policies *p = t->data;

        policy_worker_watch(p->worker);
        flush_recorder(p);
        say_not_undone(p);
        say_unwritten(p);
        if (!policy_engine_count(p->engine))
                return;
        free_memory_ask(p->memory, &p->gpus);
        policy_engine_tick(p->engine, now_ns());
}

static void on_results(uv_poll_t *poll, int status, int events)
{
        struct policies *p = poll->data;

        policy_worker_collect(p->worker, on_result, p);
}

/* ---- life ---- */

static int open_handles(struct gpuobsd *d, struct policies *p)
{
        int r = uv_poll_init(d->loop, &p->results, policy_worker_fd(p->worker));

        if (r < 0)
                return r;
        uv_timer_init(d->loop, &p->ticks);
        p->handles_open = true;
        p->results.data = p->ticks.data = p;
        uv_poll_start(&p->results, UV_READABLE, on_results);
        uv_timer_start(&p->ticks, on_tick, TICK_MS, TICK_MS);
        return 0;
}

static void open_recorder(const struct gpuobsd *d, struct policies *p)
{
        const char *path = d->config->policy_trace;
        int r = *path ? policy_recorder_new(path, UVM_TRACE_RECORDS_MAX, &p->recorder) : 0;

        if (r < 0)
                log_warning("%s: %s; managed memory is not recorded", path, strerror(-r));
}

int policies_open(struct gpuobsd *d)
{
        struct policies *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        d->policies = p;
        p->actuator = (struct driver_actuator_options){.uvm = managed_ops(d),
                                                       .journal = managed_journal(d),
                                                       .notes = actuator_notes_new(),
                                                       .tsg = &tsg_system_default,
                                                       .process = find_process,
                                                       .gpu = find_gpu,
                                                       .data = d};
        p->memory = free_memory_new(d, on_free_memory, p);
        p->engine = policy_engine_new(&engine_ops, p);
        if (!p->memory || !p->engine || !p->actuator.notes)
                return -ENOMEM;
        r = policy_worker_new(&driver_actuator_ops, &p->actuator, WORKER_LIMIT_NS, &p->worker);
        if (r < 0)
                return r;
        if (p->actuator.journal)
                (void)leftovers_set_slices_back(&p->actuator, "left by a daemon that was killed");
        open_recorder(d, p);
        return open_handles(d, p);
}

void policies_close(struct gpuobsd *d)
{
        struct policies *p = d->policies;

        if (!p)
                return;
        if (p->handles_open) {
                uv_close((uv_handle_t *)&p->results, NULL);
                uv_close((uv_handle_t *)&p->ticks, NULL);
                p->handles_open = false;
        }
        if (!p->engine || !p->worker)
                return;
        policy_worker_hurry(p->worker);
        policy_engine_unload_all(p->engine);
        say_not_undone(p);
        /* What could not be set back, or was noted for orders that were not carried out any more.
         */
        if (p->actuator.journal)
                (void)leftovers_set_slices_back(&p->actuator,
                                                "of policies that end with the daemon");
        p->unwritten_ns = 0;
        say_unwritten(p);
}

void policies_end(struct gpuobsd *d)
{
        struct policies *p = d->policies;

        if (!p)
                return;
        if (p->worker)
                policy_engine_free(p->engine);
        p->worker = policy_worker_free(p->worker);
        p->recorder = policy_recorder_free(p->recorder);
}

void policies_free(struct gpuobsd *d)
{
        struct policies *p = d->policies;

        if (!p)
                return;
        free_memory_free(p->memory);
        /* A thread in a call that does not return may still use the actuator. */
        if (!policy_worker_abandoned()) {
                actuator_notes_free(p->actuator.notes);
                free(p);
        }
        d->policies = NULL;
}

struct policy_engine *policies_engine(const struct gpuobsd *d)
{
        return d->policies->engine;
}
