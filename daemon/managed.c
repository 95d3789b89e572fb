/* SPDX-License-Identifier: Apache-2.0 */
#include "managed.h"

#include <errno.h>
#include <string.h>
#include <utlist.h>

#include "api/server.h"
#include "arguments.h"
#include "correlate/clock_model.h"
#include "cpu/cpu_abi.h"
#include "daemon.h"
#include "driver/gpu_memory.h"
#include "driver/undo_journal.h"
#include "driver/silence.h"
#include "driver/uvm_asker.h"
#include "driver/uvm_ops.h"
#include "driver/uvm_process.h"
#include "gpu_clocks.h"
#include "leftovers.h"
#include "policies.h"
#include "policies/policy_abi.h"
#include "policy/worker.h"
#include "probe/proc_maps.h"
#include "store/store.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

#define EVENTS_PER_TURN 16384
#define PUBLISH_BATCH   256
/* The driver answers within a millisecond; while it does not, nobody waits again. */
#define PATIENCE_NS (100 * NSEC_PER_MSEC)

/* What the daemon has of managed memory besides the processes. */
struct managed {
        struct undo_journal *journal;
        struct uvm_ops *ops;
        struct managed_watch *watches;
        struct managed_watch *ending; /* they belong to no process any more */
        struct api_uvm_event batch[PUBLISH_BATCH];
        size_t batch_count;
};

/* A process whose events are read. Lives until its handles and its tracker are closed. */
struct managed_watch {
        struct managed_watch *prev, *next;
        struct gpuobsd *daemon;
        struct observed *observed;
        struct uvm_asker *asker;
        struct uvm_tracker *tracker; /* NULL: it is not open yet */
        uv_poll_t queue_poll, process_poll;
        int handles; /* of the two that are open */
        bool queue_polled, process_polled, closing;
        int error;           /* of the opening */
        uint64_t flushed_at; /* events read when the driver was last asked to put out the rest */
        struct uvm_tracker_counts seen;   /* already in the process's record */
        struct uvm_tracker_counts stored; /* ... and in the database's seconds */
        struct {
                const struct clock_model *clock;
                int32_t gpu; /* minor number */
                bool asked;
                uint32_t place; /* to policies */
                bool placed;
        } processors[UVM_PROCESSORS_MAX];
};

/* ---- events in ---- */

/* NULL: not known, and if *ret_answered it will not be. */
static const uint8_t *uuid_of(struct managed_watch *w, unsigned index, bool *ret_answered)
{
        const uint8_t *uuid = uvm_tracker_uuid(w->tracker, index);

        *ret_answered = uuid || uvm_asker_learn(w->asker, now_ns() + PATIENCE_NS);
        return uuid ? uuid : uvm_tracker_uuid(w->tracker, index);
}

/* Which GPU an index means, asked of the driver once. */
static int32_t gpu_of(struct managed_watch *w, unsigned index)
{
        const uint8_t *uuid;
        uint32_t gpu;

        if (index == UVM_CPU)
                return API_UVM_CPU;
        if (w->processors[index].asked)
                return w->processors[index].gpu;
        w->processors[index].gpu = API_UVM_UNKNOWN;
        uuid = uuid_of(w, index, &w->processors[index].asked);
        if (uuid)
                w->processors[index].clock = gpu_clocks_find(w->daemon->clocks, uuid, &gpu);
        if (w->processors[index].clock)
                w->processors[index].gpu = (int32_t)gpu;
        return w->processors[index].gpu;
}

/* When it happened on the GPU; when the driver dealt with it, if that is all that is known. */
static struct uvm_when time_of(struct managed_watch *w, const struct uvm_event *e,
                               const struct uvm_when *when)
{
        unsigned index = e->source != UVM_CPU ? e->source : e->target;
        struct uvm_when better = *when;
        uint32_t error;

        if (!e->begin_gpu_ns || gpu_of(w, index) < 0 ||
            clock_model_to_cpu(w->processors[index].clock, e->begin_gpu_ns, &better.at_ns, &error) <
                    0)
                return *when;
        if (error > better.error_ns || !better.end_ns)
                better.error_ns = error;
        return better;
}

static void publish(struct managed *m, struct gpuobsd *d)
{
        if (m->batch_count && d->api)
                api_server_publish_uvm(d->api, m->batch, m->batch_count);
        m->batch_count = 0;
}

static void add_to_batch(struct managed_watch *w, const struct uvm_event *e,
                         const struct uvm_when *when)
{
        struct managed *m = w->daemon->managed;
        const struct uvm_allocation *a =
                uvm_allocations_find(&w->observed->managed->allocations, e->address);

        if (m->batch_count == PUBLISH_BATCH)
                publish(m, w->daemon);
        m->batch[m->batch_count++] = (struct api_uvm_event){
                .process = &w->observed->info,
                .event = *e,
                .when = *when,
                .allocation = a ? a->address : 0,
                .source = gpu_of(w, e->source),
                .target = gpu_of(w, e->target),
        };
}

/* What policies call a processor. */
static uint32_t place_of(struct managed_watch *w, unsigned index)
{
        const uint8_t *uuid;

        if (index == UVM_CPU)
                return POLICY_HOST;
        if (!w->processors[index].placed) {
                uuid = uuid_of(w, index, &w->processors[index].placed);
                w->processors[index].place =
                        uuid ? policies_process_gpu(w->daemon, w->observed, uuid) : 0;
        }
        return w->processors[index].place;
}

static void on_event(void *data, const struct uvm_event *e, const struct uvm_when *told)
{
        struct managed_watch *w = data;
        const struct uvm_when when = time_of(w, e, told);

        uvm_process_event(w->observed->managed, e, when.at_ns);
        policies_uvm_event(w->daemon, w->observed, e, place_of(w, e->source),
                           place_of(w, e->target), when.at_ns);
        if (w->daemon->api && api_server_has_uvm_subscribers(w->daemon->api))
                add_to_batch(w, e, &when);
}

static void settle_counts(struct managed_watch *w)
{
        struct uvm_tracker_counts now, *sum = &w->observed->managed->events;
        struct ledger *l = &w->observed->ledger;

        uvm_tracker_get_counts(w->tracker, &now);
        sum->read += now.read - w->seen.read;
        sum->garbage += now.garbage - w->seen.garbage;
        sum->dropped += now.dropped - w->seen.dropped;
        l->lost[LOSS_uvm_dropped] += now.dropped - w->seen.dropped;
        l->lost[LOSS_uvm_garbage] += now.garbage - w->seen.garbage;
        w->seen = now;
}

static size_t read_queue(struct managed_watch *w, size_t max)
{
        size_t n;

        if (!w->tracker)
                return 0;
        n = uvm_tracker_read(w->tracker, max, on_event, w);
        publish(w->daemon->managed, w->daemon);
        settle_counts(w);
        return n;
}

/* Those that are closed. */
static void collect_ending(struct managed *m)
{
        struct managed_watch *w, *next;

        DL_FOREACH_SAFE(m->ending, w, next)
        {
                uvm_asker_collect(w->asker);
                if (!uvm_asker_is_closed(w->asker))
                        continue;
                DL_DELETE(m->ending, w);
                uvm_asker_free(w->asker, now_ns() + SILENCE_END_NS);
                free(w);
        }
}

size_t managed_turn(struct gpuobsd *d, bool *more)
{
        struct managed_watch *w, *next;
        size_t n, sum = 0;

        collect_ending(d->managed);
        DL_FOREACH_SAFE(d->managed->watches, w, next)
        {
                uvm_asker_collect(w->asker); /* it may be refused */
                if (w->closing)
                        continue;
                n = read_queue(w, EVENTS_PER_TURN);
                sum += n;
                *more = *more || n == EVENTS_PER_TURN;
        }
        return sum;
}

void managed_catch_up(struct observed *o)
{
        if (o->managed_watch)
                (void)read_queue(o->managed_watch, EVENTS_PER_TURN);
}

/* What the last second brought, if anything, into the database. */
static void store_second(struct managed_watch *w, uint64_t at_ns)
{
        struct observed *o = w->observed;
        struct managed_second s = {.process_key = o->info.process_key,
                                   .end_ns = at_ns,
                                   .events = w->seen.read - w->stored.read,
                                   .dropped = w->seen.dropped - w->stored.dropped,
#define X(name) .name = o->managed->rate.name,
                                   MANAGED_COUNTS(X)
#undef X
        };

        w->stored = w->seen;
        if (s.events + s.dropped && store_put_managed(w->daemon->store, &s) < 0)
                o->ledger.lost[LOSS_managed_unstored]++;
}

/* ---- the life of a watch ---- */

static void close_when_idle(struct managed_watch *w)
{
        if (w->closing && !w->handles)
                uvm_asker_close(w->asker);
}

static void on_handle_closed(uv_handle_t *h)
{
        struct managed_watch *w = h->data;

        w->handles--;
        close_when_idle(w);
}

/* Takes the last events; afterwards the watch belongs to no process. */
static void stop_watch(struct managed_watch *w, enum uvm_watch state)
{
        size_t left = UVM_TRACKER_ENTRIES_MAX;

        if (w->closing)
                return;
        /* No more than a queue: a process that shares the memory may go on. */
        while (left > 0 && read_queue(w, EVENTS_PER_TURN) == EVENTS_PER_TURN)
                left -= EVENTS_PER_TURN;
        uvm_process_second(w->observed->managed, now_ns());
        store_second(w, now_ns());
        w->observed->managed->watch = state;
        w->observed->managed_watch = NULL;
        w->observed = NULL;
        w->closing = true;
        DL_DELETE(w->daemon->managed->watches, w);
        DL_APPEND(w->daemon->managed->ending, w);
        if (w->queue_polled)
                uv_close((uv_handle_t *)&w->queue_poll, on_handle_closed);
        if (w->process_polled)
                uv_close((uv_handle_t *)&w->process_poll, on_handle_closed);
        close_when_idle(w);
}

static void on_queue(uv_poll_t *p, int status, int events)
{
        struct managed_watch *w = p->data;

        /* An eighth of the queue is full: do not wait for the rings' turn. */
        if (status == 0)
                (void)read_queue(w, EVENTS_PER_TURN);
        else
                uv_poll_stop(p); /* the rings' turn reads it all the same */
}

static void on_process_end(uv_poll_t *p, int status, int events)
{
        if (status == 0)
                stop_watch(p->data, UVM_WATCH_ENDED);
        else
                uv_poll_stop(p); /* the end is heard of from elsewhere, later */
}

/* Copies' events are put out when something else is done on their channel: ask, if there were any.
 */
static void flush_if_active(struct managed_watch *w)
{
        if (w->seen.read == w->flushed_at)
                return;
        w->flushed_at = w->seen.read;
        uvm_asker_flush(w->asker);
}

static const char *refusal(int error)
{
        switch (error) {
        case -ENOENT:
                return "there is no UVM driver: /dev/nvidia-uvm-tools is missing";
        case -ENODEV:
                return "the process has no file of the UVM driver open";
        case -ESRCH:
                return "the process has ended";
        case -EPERM:
        case -EACCES:
                return "not permitted: the daemon needs CAP_SYS_PTRACE and access to "
                       "/dev/nvidia-uvm-tools";
        case -EINPROGRESS:
                return "the driver has not answered yet";
        case -ENOMEM:
                return "no memory for the queue, which the driver pins: see managed_queue_bytes";
        default:
                return NULL;
        }
}

static void refuse(struct uvm_process *p, int error)
{
        const char *text = refusal(error);

        p->watch = UVM_WATCH_REFUSED;
        snprintf(p->reason, sizeof(p->reason), "%s", text ? text : strerror(-error));
}

/* Poll both files; on failure the queue is read by turns alone. */
static void open_handles(struct managed_watch *w)
{
        w->queue_polled =
                uv_poll_init(w->daemon->loop, &w->queue_poll, uvm_tracker_fd(w->tracker)) == 0;
        w->process_polled =
                uv_poll_init(w->daemon->loop, &w->process_poll, uvm_tracker_pidfd(w->tracker)) == 0;
        w->handles = w->queue_polled + w->process_polled;
        w->queue_poll.data = w->process_poll.data = w;
        if (w->queue_polled)
                uv_poll_start(&w->queue_poll, UV_READABLE, on_queue);
        if (w->process_polled)
                uv_poll_start(&w->process_poll, UV_READABLE, on_process_end);
}

static void on_opened(void *data, int error, struct uvm_tracker *tracker)
{
        struct managed_watch *w = data;
        struct observed *o = w->observed;

        w->error = error;
        if (error) {
                stop_watch(w, UVM_WATCH_REFUSED);
                refuse(o->managed, error);
                return;
        }
        w->tracker = tracker;
        open_handles(w);
        o->managed->watch = UVM_WATCH_ON;
        o->managed->reason[0] = '\0';
        o->managed->since_ns = now_ns();
}

/* Somebody waits for the driver already. */
static bool is_opening(const struct managed *m)
{
        const struct managed_watch *w;

        DL_SEARCH_SCALAR(m->watches, w, tracker, NULL);
        return w;
}

/* -EINPROGRESS: the driver has not answered; it is watched when it does. */
static int start_watch(struct gpuobsd *d, struct observed *o)
{
        const struct uvm_tracker_options options = {
                .pid = (pid_t)o->info.pid,
                .start_ticks = o->info.start_ticks,
                .entries = d->config->managed_queue_bytes / UVM_ENTRY_BYTES,
                .map = gpu_clocks_map(d->clocks),
        };
        uint64_t until_ns = now_ns() + (is_opening(d->managed) ? 0 : PATIENCE_NS);
        struct managed_watch *w = calloc(1, sizeof(*w));
        int r;

        if (!w)
                return -ENOMEM;
        collect_ending(d->managed); /* of allocations before, where there is no UVM driver */
        w->daemon = d;
        w->observed = o;
        gpu_clocks_pair(d->clocks); /* events are later than this */
        r = uvm_asker_new(&uvm_system_default, &options, on_opened, w, &w->asker);
        if (r < 0) {
                refuse(o->managed, r);
                free(w);
                return r;
        }
        DL_APPEND(d->managed->watches, w);
        o->managed_watch = w;
        refuse(o->managed, -EINPROGRESS);
        return uvm_asker_wait(w->asker, until_ns) ? w->error : -EINPROGRESS;
}

static bool have_record(struct observed *o)
{
        if (!o->managed)
                o->managed = uvm_process_new();
        return o->managed;
}

/* ---- what the process does ---- */

static void add_allocation(struct gpuobsd *d, struct observed *o, uint64_t address, uint64_t bytes,
                           uint64_t at_ns)
{
        if (uvm_allocations_add(&o->managed->allocations, address, bytes, at_ns) < 0)
                o->ledger.lost[LOSS_managed_unlisted]++;
        policies_alloc(d, o, address, bytes);
}

static void on_allocation(struct gpuobsd *d, struct observed *o,
                          const struct cpu_operation_event *e)
{
        if (!have_record(o))
                return;
        add_allocation(d, o, e->address, e->bytes, e->enter_ns + e->duration_ns);
        arguments_memory_changed(o);
        if (!o->managed_watch && d->config->managed_memory)
                (void)start_watch(d, o); /* why not is in the record */
}

static void on_free(struct gpuobsd *d, struct observed *o, const struct cpu_operation_event *e)
{
        const struct uvm_allocation *a = uvm_allocations_find(&o->managed->allocations, e->address);

        if (!a || a->address != e->address)
                return;
        if (d->managed->ops)
                uvm_ops_forget(d->managed->ops, (pid_t)o->info.pid, o->info.start_ticks, a->address,
                               a->bytes);
        (void)uvm_allocations_remove(&o->managed->allocations, e->address);
        arguments_memory_changed(o);
        policies_free_memory(d, o, e->address);
}

void managed_operation(struct gpuobsd *d, struct observed *o, const struct cpu_operation_event *e)
{
        if (e->result != 0 || (!o->managed && e->operation != CPU_OP_ALLOC_MANAGED))
                return;
        switch (e->operation) {
        case CPU_OP_ALLOC_MANAGED:
                on_allocation(d, o, e);
                break;
        case CPU_OP_FREE:
                on_free(d, o, e);
                break;
        case CPU_OP_MEM_ADVISE:
                uvm_allocations_advised(&o->managed->allocations, e->address, e->bytes);
                break;
        default:
                break;
        }
}

void managed_launch(struct observed *o, const struct launch_record *r)
{
        const uint32_t both = LAUNCH_HAS_GPU_START | LAUNCH_HAS_GPU_END;

        if (o->managed && o->managed->since_ns && (r->has & both) == both)
                uvm_join_launch(o->managed->join, r->has & LAUNCH_HAS_KERNEL ? r->kernel_name : 0,
                                r->gpu_start_ns, r->gpu_end_ns);
}

void managed_second(struct gpuobsd *d)
{
        uint64_t now = now_ns();
        struct managed_watch *w;

        DL_FOREACH(d->managed->watches, w)
        {
                uvm_process_second(w->observed->managed, now);
                store_second(w, now);
                flush_if_active(w);
        }
}

void managed_process_ended(struct gpuobsd *d, struct observed *o)
{
        if (!o->managed)
                return;
        if (o->managed_watch)
                stop_watch(o->managed_watch, UVM_WATCH_ENDED);
        uvm_process_second(o->managed, UINT64_MAX);
        /* A daemon that stops knows its processes no more, but they live on. */
        if (d->managed->ops && !d->stopping)
                uvm_ops_forget(d->managed->ops, (pid_t)o->info.pid, o->info.start_ticks, 0, 0);
}

struct finding {
        struct gpuobsd *daemon;
        struct observed *observed;
};

/* A process that ran before the daemon: its mappings of the driver's file. */
static void on_mapping(void *data, pid_t pid, const struct proc_mapping *m)
{
        const struct finding *f = data;

        if (strcmp(strrchr(m->path, '/') + 1, "nvidia-uvm") == 0 && have_record(f->observed))
                add_allocation(f->daemon, f->observed, m->start, m->end - m->start, 0);
}

static void find_allocations(struct gpuobsd *d, struct observed *o)
{
        struct finding finding = {d, o};

        (void)proc_maps_each((pid_t)o->info.pid, "nvidia-uvm", on_mapping, &finding);
        arguments_memory_changed(o);
}

void managed_found(struct gpuobsd *d, struct observed *o)
{
        if (o->managed || o->gone)
                return;
        find_allocations(d, o);
        if (o->managed && d->config->managed_memory)
                (void)start_watch(d, o); /* why not is in the record */
}

int managed_watch(struct gpuobsd *d, struct observed *o, bool on)
{
        if (!on) {
                if (o->managed_watch)
                        stop_watch(o->managed_watch, UVM_WATCH_OFF);
                return 0;
        }
        if (o->gone)
                return -ESRCH;
        if (!have_record(o))
                return -ENOMEM;
        if (o->managed_watch)
                return 0;
        if (o->managed->allocations.count == 0)
                find_allocations(d, o);
        return start_watch(d, o);
}

/* ---- acting ---- */

static int free_bytes(void *data, const uint8_t gpu[UVM_UUID_BYTES], uint64_t *ret_bytes)
{
        return gpu_memory_unused(data, gpu, ret_bytes);
}

int managed_open(struct gpuobsd *d)
{
        struct managed *m = calloc(1, sizeof(*m));
        struct uvm_ops_options options = {.free_bytes = free_bytes};
        int r;

        if (!m)
                return -ENOMEM;
        d->managed = m;
        r = leftovers_open_journal(d->config, &m->journal);
        if (r < 0)
                return r == -ENOMEM ? r : 0;
        options.data = d->gpu_memory;
        r = uvm_ops_new(&uvm_system_default, m->journal, &options, &m->ops);
        if (r == 0)
                (void)leftovers_take_advice_back(m->ops, m->journal,
                                                 "left by a daemon that was killed");
        return r;
}

void managed_close(struct gpuobsd *d)
{
        struct managed_watch *w, *next;

        if (!d->managed)
                return;
        DL_FOREACH_SAFE(d->managed->watches, w, next)
        {
                stop_watch(w, UVM_WATCH_OFF);
        }
        if (d->managed->ops)
                (void)leftovers_take_advice_back(d->managed->ops, d->managed->journal,
                                                 "of policies that end with the daemon");
}

/* All together: those whose driver does not answer are left to it. */
static void free_ending(struct managed *m)
{
        uint64_t until_ns = now_ns() + SILENCE_END_NS;
        struct managed_watch *w, *next;

        DL_FOREACH_SAFE(m->ending, w, next)
        {
                uvm_asker_free(w->asker, until_ns);
                if (!silence_abandoned())
                        free(w);
        }
}

void managed_free(struct gpuobsd *d)
{
        if (!d->managed)
                return;
        free_ending(d->managed);
        /* A thread in a call that does not return may still use all of this. */
        if (policy_worker_abandoned()) {
                undo_journal_shut(d->managed->journal);
                d->managed = NULL;
                return;
        }
        uvm_ops_free(d->managed->ops);
        undo_journal_free(d->managed->journal);
        free(d->managed);
        d->managed = NULL;
}

struct uvm_ops *managed_ops(const struct gpuobsd *d)
{
        return d->managed->ops;
}

struct undo_journal *managed_journal(const struct gpuobsd *d)
{
        return d->managed->journal;
}
