/* SPDX-License-Identifier: Apache-2.0 */

/* Events from the kernel and from the shared maps in, launch records out. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/agent_server.h"
#include "api/server.h"
#include "correlate/correlator.h"
#include "correlate/held.h"
#include "cpu/cpu_abi.h"
#include "daemon.h"
#include "device/device_abi.h"
#include "device/record_ring.h"
#include "driver_flow.h"
#include "gpu_clocks.h"
#include "gpu_switches.h"
#include "launches.h"
#include "managed.h"
#include "managed_decisions.h"
#include "pacing.h"
#include "policies.h"
#include "probe/cpu_probes.h"
#include "probe/process_info.h"
#include "process_clocks.h"
#include "store/store.h"
#include "trace.h"
#include "util/log.h"
#include "util/pid_namespace.h"
#include "util/proc_stat.h"
#include "util/time.h"

/*
 * Events and records taken in one go, so that clients get their turn. Launches are not to
 * fall behind the device records of theirs, which would have to wait for them.
 */
#define EVENTS_PER_TURN   4096
#define RECORDS_PER_TURN  8192
#define LAUNCHES_PER_STEP 256 /* between two looks at the clock */
#define RECORDS_PER_STEP  256
#define EVENTS_NS         (6 * NSEC_PER_MSEC) /* of a turn, with launches */
#define RECORDS_NS        (6 * NSEC_PER_MSEC)
#define LATE_TURNS_MAX    16 /* in which records are only saved, while launches are behind */

static struct observed *get_process(struct gpuobsd *d, pid_t pid, const struct process_info *told)
{
        struct observed *o;
        bool is_new;

        o = observed_get(&d->observed, pid, told, &is_new);
        if (!o || !is_new)
                return o;
        o->info.started_realtime_ns =
                o->info.started_realtime_ns ? o->info.started_realtime_ns : realtime_ns();
        o->correlated = correlator_add_process(d->correlator, o->info.process_key, &o->ledger, o);
        if (!o->correlated) {
                observed_set_gone(&d->observed, o);
                return NULL;
        }
        o->info_put = store_put_process(d->store, &o->info) == 0; /* else later: flow_settle() */
        policies_process_start(d, o);
        return o;
}

struct observed *flow_process(struct gpuobsd *d, pid_t pid)
{
        return get_process(d, pid, NULL);
}

struct observed *flow_process_named(struct gpuobsd *d, uint32_t pid)
{
        struct observed *o;

        if (pid == 0 || pid > INT32_MAX || !pid_namespace_is_initial())
                return NULL;
        o = observed_find(&d->observed, (pid_t)pid);
        if (!o)
                o = observed_find_gone(&d->observed, (pid_t)pid);
        return o || process_has_ended((pid_t)pid) ? o : flow_process(d, (pid_t)pid);
}

/* ---- device records ---- */

struct ring_turn {
        struct gpuobsd *daemon;
        struct observed *observed;
};

static void on_record(void *data, const struct device_record *r)
{
        struct ring_turn *t = data;

        trace_write(t->daemon->trace, TRACE_DEVICE_RECORD, t->observed->info.process_key, r,
                    sizeof(*r), NULL, 0);
        correlator_device_record(t->daemon->correlator, t->observed->correlated, r);
}

static void on_gap(void *data, uint64_t lost)
{
        struct ring_turn *t = data;

        trace_write(t->daemon->trace, TRACE_DEVICE_GAP, t->observed->info.process_key, &lost,
                    sizeof(lost), NULL, 0);
        correlator_device_gap(t->daemon->correlator, t->observed->correlated, lost);
}

static void count_ring_losses(struct observed *o)
{
        struct record_ring_losses l;

        record_ring_get_losses(o->ring, &l);
        o->ledger.lost[LOSS_device_ring_overrun] += l.overrun - o->ring_overrun;
        o->ledger.lost[LOSS_device_record_torn] += l.torn - o->ring_torn;
        o->ledger.lost[LOSS_device_record_garbage] += l.garbage - o->ring_garbage;
        o->ring_overrun = l.overrun;
        o->ring_torn = l.torn;
        o->ring_garbage = l.garbage;
}

static size_t read_ring(struct gpuobsd *d, struct observed *o, uint64_t at_ns, size_t max)
{
        struct ring_turn turn = {d, o};
        size_t n;

        if (!o->ring || !o->correlated)
                return 0;
        n = record_ring_read(o->ring, at_ns, max, on_record, on_gap, &turn);
        count_ring_losses(o);
        return n;
}

/* The turn of records has not come, but kernels go on writing. */
static size_t save_ring(struct gpuobsd *d, struct observed *o, uint64_t at_ns, size_t max)
{
        size_t n;

        if (!o->ring || !o->correlated)
                return 0;
        n = record_ring_save(o->ring, at_ns, max);
        count_ring_losses(o);
        return n;
}

/* ---- events of the CPU side ---- */

/* UINT64_MAX: never. */
static uint64_t add_ns(uint64_t at_ns, uint64_t ns)
{
        return ns < UINT64_MAX - at_ns ? at_ns + ns : UINT64_MAX;
}

static bool events_over(struct gpuobsd *d)
{
        d->events_late = d->events_late || now_ns() >= d->events_until_ns;
        return d->events_late;
}

/*
 * What the process has recorded by itself up to the event at hand; false: there is no time
 * for all of it, the event comes again. A map at most: it could be written to for ever.
 */
static bool launches_before(struct gpuobsd *d, struct observed *o, uint64_t at_ns)
{
        size_t n = o->launches ? LAUNCHES_PER_STEP : 0;

        while (n == LAUNCHES_PER_STEP && d->launches_before < LAUNCHES_MAX) {
                n = launches_take(d, o, at_ns, LAUNCHES_PER_STEP);
                d->launches_before += n;
                if (n == LAUNCHES_PER_STEP && events_over(d)) {
                        cpu_probes_put_back(d->probes);
                        return false;
                }
        }
        d->launches_before = 0;
        if (events_over(d))
                cpu_probes_stop_poll(d->probes);
        return true;
}

/* Likewise what is in its ring, when the event is its end. */
static bool records_before(struct gpuobsd *d, struct observed *o)
{
        uint64_t at_ns = now_ns();
        size_t n = RECORDS_PER_STEP;

        while (n == RECORDS_PER_STEP && d->records_before < DEVICE_RING_ENTRIES) {
                n = read_ring(d, o, at_ns, RECORDS_PER_STEP);
                d->records_before += n;
                if (n == RECORDS_PER_STEP && events_over(d)) {
                        cpu_probes_put_back(d->probes);
                        return false;
                }
        }
        d->records_before = 0;
        return true;
}

/*
 * The agent puts nothing into kernels before it records launches, where it does, and
 * never before it has said so: what it said before this launch can be read by now. Once
 * it records, this event may have been waiting since before: it says when it began.
 */
static bool is_before_probes(const struct observed *o, const struct cpu_launch_event *e)
{
        /* Longer than can be told: it may have returned much later. */
        if (e->duration_ns != UINT32_MAX && launches_before_probes(o, e->enter_ns + e->duration_ns))
                return true;
        if (!launches_awaited(o) || o->coverage.entry_count)
                return false;
        if (o->agent)
                agent_catch_up(o->agent);
        return launches_awaited(o) && !o->coverage.entry_count;
}

static void on_launch(void *data, const struct cpu_launch_event *e)
{
        struct gpuobsd *d = data;
        struct observed *o = flow_process(d, (pid_t)e->tgid);
        struct cpu_launch_event launch;

        if (!o || !launches_before(d, o, e->enter_ns + e->duration_ns))
                return;
        launch = *e;
        if (e->type == CPU_EVENT_LAUNCH && is_before_probes(o, e))
                launch.type |= CPU_EVENT_UNPROBED;
        trace_write(d->trace, TRACE_LAUNCH, o->info.process_key, &launch, sizeof(launch), NULL, 0);
        policies_launch(d, o);
        correlator_launch(d->correlator, o->correlated, &launch);
}

static void on_operation(void *data, const struct cpu_operation_event *e)
{
        struct gpuobsd *d = data;
        struct observed *o = flow_process(d, (pid_t)e->tgid);

        if (!o || !launches_before(d, o, e->enter_ns + e->duration_ns))
                return;
        trace_write(d->trace, TRACE_OPERATION, o->info.process_key, e, sizeof(*e), NULL, 0);
        managed_operation(d, o, e);
        allocations_operation(&o->allocations, e);
        correlator_operation(d->correlator, o->correlated, e);
}

static void on_handle(void *data, const struct cpu_handle_event *e)
{
        struct gpuobsd *d = data;
        struct observed *o = flow_process(d, (pid_t)e->tgid);

        if (!o || !launches_before(d, o, e->ts_ns))
                return;
        if (e->kind == CPU_HANDLE_CONTEXT)
                launches_contexts_changed(o);
        if (e->kind == CPU_HANDLE_CONTEXT && e->destroyed)
                allocations_context_gone(&o->allocations, e->context);
        trace_write(d->trace, TRACE_HANDLE, o->info.process_key, e, sizeof(*e), e->name,
                    e->name_length);
        correlator_handle(d->correlator, o->correlated, e);
}

static void count_kernel_losses(struct observed *o, uint64_t lost)
{
        if (lost <= o->kernel_lost)
                return;
        o->ledger.produced += lost - o->kernel_lost;
        o->ledger.lost[LOSS_cpu_ring_full] += lost - o->kernel_lost;
        o->kernel_lost = lost;
}

/* It may be gone before it is looked for in /proc. */
static void on_first_call(struct gpuobsd *d, const struct cpu_process_event *e)
{
        struct process_info told = {
                .uid = e->uid,
                .start_ticks = e->started_ns * (uint64_t)sysconf(_SC_CLK_TCK) / NSEC_PER_SEC,
        };

        snprintf(told.comm, sizeof(told.comm), "%.*s", CPU_COMM_BYTES, e->comm);
        get_process(d, (pid_t)e->tgid, &told);
}

static void on_process(void *data, const struct cpu_process_event *e)
{
        struct gpuobsd *d = data;
        struct observed *o;

        if (e->what == CPU_PROCESS_FIRST)
                on_first_call(d, e);
        if (e->what != CPU_PROCESS_EXIT && e->what != CPU_PROCESS_EXEC)
                return;
        o = observed_find(&d->observed, (pid_t)e->tgid);
        if (o && (!launches_before(d, o, e->ts_ns) || !records_before(d, o)))
                return;
        if (o) {
                /* The kernel's own count may be the next program's already. */
                count_kernel_losses(o, e->launches_lost);
                flow_process_ended(d, o);
        }
        cpu_probes_process_gone(d->probes, e->tgid);
}

static void on_attach_gap(void *data, uint32_t tgid, const char *path)
{
        struct gpuobsd *d = data;
        struct observed *o = flow_process(d, (pid_t)tgid);

        if (!o)
                return;
        o->ledger.lost[LOSS_attach_gap]++;
        managed_found(d, o);
}

static void on_library(void *data, const char *path, int error,
                       const struct cpu_probes_library *lib)
{
        if (lib)
                log_info("probing %s (%u functions)", path, lib->functions);
        else if (error == -EDEADLK)
                log_warning("%s gets no probes yet: a process hangs with its mappings locked, and "
                            "putting them on might wait for it, and with it each fork of the "
                            "machine",
                            path);
        else
                log_warning("%s cannot be probed: %s", path, strerror(-error));
}

const struct cpu_probes_ops flow_probe_ops = {
        .launch = on_launch,
        .operation = on_operation,
        .handle = on_handle,
        .process = on_process,
        .attach_gap = on_attach_gap,
        .library = on_library,
};

/* ---- the end ---- */

/* The last reading of a process that is gone. */
static void read_ring_to_the_end(struct gpuobsd *d, struct observed *o)
{
        struct ring_turn turn = {d, o};

        if (!o->ring || !o->correlated)
                return;
        record_ring_read_rest(o->ring, now_ns(), on_record, on_gap, &turn);
        count_ring_losses(o);
}

/* ---- records out ---- */

static void on_correlated(void *data, struct correlated_process *p, struct launch_record *record)
{
        struct gpuobsd *d = data;

        if (d->batch_count == BATCH_RECORDS)
                flow_flush(d);
        record->launch_id = d->next_launch_id++;
        managed_launch(correlated_process_user(p), record);
        d->batch_owner[d->batch_count] = correlated_process_user(p);
        d->batch[d->batch_count++] = *record;
}

const struct correlator_ops flow_correlator_ops = {
        .launch = on_correlated,
};

static void publish(struct gpuobsd *d)
{
        static struct store_launch rows[BATCH_RECORDS];

        if (!api_server_has_subscribers(d->api))
                return;
        for (size_t i = 0; i < d->batch_count; i++) {
                const struct observed *o = d->batch_owner[i];
                const struct launch_record *r = &d->batch[i];

                rows[i] = (struct store_launch){
                        .record = *r,
                        .kernel = r->kernel_name ? intern_text(d->names, r->kernel_name) : NULL,
                        .comm = o->info.comm,
                        .cgroup = o->info.cgroup,
                        .pid = o->info.pid,
                        .uid = o->info.uid,
                        .start_ticks = o->info.start_ticks,
                };
        }
        api_server_publish(d->api, rows, d->batch_count);
}

size_t flow_store(void *daemon, const struct launch_record *records, void *const *owners, size_t n)
{
        struct gpuobsd *d = daemon;

        return store_put_launches(d->store, records, n);
}

void flow_lose(void *daemon, void *owner)
{
        struct observed *o = owner;

        o->ledger.lost[LOSS_store_queue_full]++;
}

int flow_hold(struct gpuobsd *d)
{
        if (!d->held)
                d->held = held_new(gpu_switches_history(d->switches), flow_store, flow_lose, d);
        return d->held ? 0 : -ENOMEM;
}

static void store_batch(struct gpuobsd *d)
{
        size_t taken = flow_store(d, d->batch, d->batch_owner, d->batch_count);

        for (size_t i = taken; i < d->batch_count; i++)
                flow_lose(d, d->batch_owner[i]);
}

void flow_flush(struct gpuobsd *d)
{
        if (d->batch_count == 0)
                return;
        for (size_t i = 0; d->held && i < d->batch_count; i++)
                held_add(d->held, &d->batch[i], d->batch_owner[i]);
        if (!d->held)
                store_batch(d);
        if (d->api)
                publish(d);
        d->batch_count = 0;
}

/* The kernel's count of launches it could not write for this process. */
static void settle_kernel_losses(struct gpuobsd *d, struct observed *o)
{
        uint64_t lost;

        if (cpu_probes_process_lost(d->probes, o->info.pid, &lost) == 0)
                count_kernel_losses(o, lost);
}

void flow_process_ended(struct gpuobsd *d, struct observed *o)
{
        if (o->gone)
                return;
        pacing_end(o);
        launches_end(d, o);
        read_ring_to_the_end(d, o);
        trace_write(d->trace, TRACE_PROCESS_END, o->info.process_key, NULL, 0, NULL, 0);
        if (o->correlated) {
                correlator_remove_process(d->correlator, o->correlated);
                o->correlated = NULL;
        }
        flow_flush(d);
        policies_process_end(d, o);
        managed_process_ended(d, o); /* after its last launches */
        if (o->ring)
                cpu_probes_remove_agent_ring(d->probes, o->info.pid);
        o->had_agent = o->ring != NULL;
        o->ring = record_ring_free(o->ring);
        o->clocks = process_clocks_free(o->clocks);
        observed_set_gone(&d->observed, o);
        store_put_ledger(d->store, o->info.process_key, &o->ledger);
}

static void end_agent(struct gpuobsd *d, struct observed *o)
{
        o->agent_leaving = false;
        if (!o->ring)
                return;
        pacing_agent_left(o);
        launches_end(d, o);
        read_ring_to_the_end(d, o);
        trace_write(d->trace, TRACE_AGENT_LEFT, o->info.process_key, NULL, 0, NULL, 0);
        if (o->correlated)
                correlator_end_agent(d->correlator, o->correlated);
        flow_flush(d);
        cpu_probes_remove_agent_ring(d->probes, o->info.pid);
        o->had_agent = true;
        o->ring_overrun = o->ring_torn = o->ring_garbage = 0;
        o->ring = record_ring_free(o->ring);
        o->clocks = process_clocks_free(o->clocks);
        coverage_done(&o->coverage);
}

void flow_agent_left(struct observed *o)
{
        o->agent_leaving = !o->gone;
}

/* What was called before the agent left has been seen: no events wait. */
static void end_agents(struct gpuobsd *d)
{
        struct observed *o, *next;

        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                if (o->agent_leaving)
                        end_agent(d, o);
}

/* At most `max` from a process; how many. */
typedef size_t take_fn(struct gpuobsd *d, struct observed *o, uint64_t at_ns, size_t max);

/*
 * Each process in its turn, a step at a time, until `most` have been offered to each or it
 * is `over_ns`. True: there may be more.
 */
static bool take_in_turn(struct gpuobsd *d, take_fn *take, uint64_t at_ns, size_t step, size_t most,
                         uint64_t over_ns, size_t *work)
{
        struct observed *o, *next;
        bool more = true;

        for (size_t taken = 0; more && taken < most; taken += step) {
                more = false;
                HASH_ITER (by_pid, d->observed.by_pid, o, next) {
                        size_t n = take(d, o, at_ns, step);

                        *work += n;
                        more = more || n == step;
                }
                if (now_ns() >= over_ns)
                        break;
        }
        return more;
}

/* What returned before the events were looked at comes before any that is still to come. */
static bool take_launches(struct gpuobsd *d, uint64_t until_ns, size_t *work)
{
        bool more = take_in_turn(d, launches_take, until_ns, LAUNCHES_PER_STEP, LAUNCHES_MAX,
                                 d->events_until_ns, work);

        (void)events_over(d);
        return more;
}

static void settle_launches(struct gpuobsd *d)
{
        struct observed *o, *next;

        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                launches_settle(o);
}

static bool take_records(struct gpuobsd *d, bool due, uint64_t time_ns, size_t *work)
{
        uint64_t at_ns = now_ns();

        return take_in_turn(d, due ? read_ring : save_ring, at_ns, RECORDS_PER_STEP,
                            due ? RECORDS_PER_TURN : DEVICE_RING_ENTRIES, add_ns(at_ns, time_ns),
                            work);
}

static enum flow_work turn(struct gpuobsd *d, uint64_t events_ns, uint64_t records_ns)
{
        uint64_t at_ns = now_ns();
        size_t driver_calls, work = 0;
        bool more;
        int n;

        d->events_late = false;
        d->events_until_ns = add_ns(at_ns, events_ns);
        gpu_clocks_pair(d->clocks);
        if (d->agents)
                agent_server_catch_up(d->agents);
        /* Before the ends of processes, which are among the next. */
        driver_calls = driver_flow_turn(d, EVENTS_PER_TURN);
        n = cpu_probes_poll(d->probes, EVENTS_PER_TURN);
        if (!d->events_late)
                d->launches_before = d->records_before = 0;
        work += driver_calls + (n > 0 ? (size_t)n : 0);
        more = n >= EVENTS_PER_TURN || d->events_late || take_launches(d, at_ns, &work);
        settle_launches(d);
        d->late_turns = more ? d->late_turns + 1 : 0;
        if (!more) {
                end_agents(d);
                d->seen_ns = now_ns();
                correlator_now(d->correlator, d->seen_ns);
        }
        /* No record is to wait in vain for a launch that was not looked for. */
        more = take_records(d, d->late_turns % LATE_TURNS_MAX == 0, records_ns, &work) || more;
        more = more || driver_calls >= EVENTS_PER_TURN;
        work += managed_turn(d, &more);
        work += managed_decisions_turn(d->decisions, EVENTS_PER_TURN, &more);
        policies_turn(d);
        pacing_turn(d);
        correlator_tick(d->correlator, d->seen_ns);
        flow_flush(d);
        if (d->held)
                held_turn(d->held, at_ns, gpu_switches_count(d->switches) > 0);
        return more ? FLOW_MORE : work ? FLOW_SOME : FLOW_IDLE;
}

enum flow_work flow_turn(struct gpuobsd *d)
{
        return turn(d, EVENTS_NS, RECORDS_NS);
}

void flow_catch_up(struct gpuobsd *d)
{
        size_t turns =
                d->config->ring_bytes / sizeof(struct cpu_launch_event) / EVENTS_PER_TURN + 1;

        while (turns-- > 0 && turn(d, UINT64_MAX, UINT64_MAX) == FLOW_MORE)
                ;
}

/* ---- once a second ---- */

static void settle_stored(struct gpuobsd *d)
{
        struct store_outcome out[64];
        size_t n;

        do {
                n = store_collect(d->store, out, sizeof(out) / sizeof(out[0]));
                for (size_t i = 0; i < n; i++) {
                        struct observed *o = observed_find_key(&d->observed, out[i].process_key);
                        struct ledger *l = o ? &o->ledger : &d->observed.forgotten;

                        l->stored += out[i].stored;
                        l->stored -= out[i].vanished < l->stored ? out[i].vanished : l->stored;
                        l->lost[LOSS_store_failed] += out[i].failed + out[i].vanished;
                }
        } while (n == sizeof(out) / sizeof(out[0]));
}

/* Losses that the kernel cannot tell the process of: they go to the ledger of none. */
static void settle_unattributed(struct gpuobsd *d)
{
        static const enum ledger_loss where[CPU_LOSS_COUNT] = {
                [CPU_LOSS_RING_LAUNCH] = LOSS_COUNT, /* per process: settle_kernel_losses() */
                [CPU_LOSS_RING_OPERATION] = LOSS_cpu_ring_full_other,
                [CPU_LOSS_RING_HANDLE] = LOSS_cpu_ring_full_other,
                [CPU_LOSS_RING_PROCESS] = LOSS_cpu_ring_full_other,
                [CPU_LOSS_THREAD_STATE] = LOSS_thread_state,
                [CPU_LOSS_CONTEXT_FULL] = LOSS_context_full,
        };
        uint64_t losses[CPU_LOSS_COUNT];
        struct ledger *l = &d->observed.forgotten;

        if (cpu_probes_losses(d->probes, losses) < 0)
                return;
        for (size_t i = 0; i < CPU_LOSS_COUNT; i++) {
                uint64_t more = losses[i] - d->unattributed_seen[i];

                d->unattributed_seen[i] = losses[i];
                if (where[i] == LOSS_COUNT)
                        continue;
                l->lost[where[i]] += more;
                if (ledger_loss_is_launch[where[i]])
                        l->produced += more;
        }
}

/* Exits whose event was lost: the pid is gone or belongs to a later process. */
static bool is_dead(const struct observed *o)
{
        uint64_t ticks;

        if (process_has_ended((pid_t)o->info.pid))
                return true;
        return o->info.start_ticks && process_start_ticks((pid_t)o->info.pid, &ticks) == 0 &&
               ticks != o->info.start_ticks;
}

/*
 * What a process did last waits in the ring, and its end behind it: taken after an end that was
 * seen here, it would make the process known a second time.
 */
static void end_dead(struct gpuobsd *d)
{
        struct observed *o, *next;
        bool any = false;

        HASH_ITER (by_pid, d->observed.by_pid, o, next) {
                o->found_dead = is_dead(o);
                any |= o->found_dead;
        }
        if (!any)
                return;
        flow_catch_up(d);
        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                if (o->found_dead && !d->events_late) {
                        uint32_t pid = o->info.pid;

                        flow_process_ended(d, o);
                        cpu_probes_process_gone(d->probes, pid);
                }
}

void flow_settle(struct gpuobsd *d)
{
        struct observed *o, *next;

        settle_stored(d);
        settle_unattributed(d);
        HASH_ITER (by_key, d->observed.by_key, o, next) {
                if (!o->gone)
                        settle_kernel_losses(d, o);
                if (!o->info_put)
                        o->info_put = store_put_process(d->store, &o->info) == 0;
                if (memcmp(&o->ledger, &o->ledger_put, sizeof(o->ledger)) == 0)
                        continue;
                if (store_put_ledger(d->store, o->info.process_key, &o->ledger) == 0)
                        o->ledger_put = o->ledger;
        }
}

void flow_second(struct gpuobsd *d)
{
        driver_flow_second(d);
        managed_second(d);
        managed_decisions_second(d->decisions);
        flow_settle(d);
        end_dead(d);
        observed_trim(&d->observed);
}
