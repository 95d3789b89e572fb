/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sim/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "util/macro.h"
#include "util/time.h"

#define RANGES_MAX      POLICY_ITEMS_MAX
#define TICK_NS         (100 * NSEC_PER_MSEC)
#define ORDER_QUEUE     4096
#define PRESSURE_BLOCKS 16 /* free ones at which policies are told that little is left */

struct replayer {
        const struct uvm_trace *trace;
        const struct replay_options *options;
        struct uvm_model *model;
        struct policy_engine *engine; /* NULL: none */
        struct replay_result *result;
        uint64_t *next_use;
        struct policy_order queue[ORDER_QUEUE];
        size_t queue_first, queue_count;
        size_t announced; /* record up to which launches have been told of */
        uint64_t ahead;   /* launches told of and not yet begun */
        uint64_t tick_ns;
        bool settling;
        const struct uvm_trace_record *running; /* launch, NULL none */
};

/* ---- the engine's orders, carried out when the model is at rest ---- */

static bool submit(void *data, const struct policy_order *order)
{
        struct replayer *r = data;

        if (r->queue_count == ORDER_QUEUE)
                return false;
        r->queue[(r->queue_first + r->queue_count++) % ORDER_QUEUE] = *order;
        return true;
}

static int perform(struct replayer *r, const struct policy_action *a, uint64_t *ret_bytes)
{
        bool on = a->value != 0;

        *ret_bytes = 0;
        switch (a->kind) {
        case POLICY_ACTION_migrate:
                return uvm_model_migrate(r->model, a->process, a->address, a->bytes, a->to,
                                         ret_bytes);
        case POLICY_ACTION_prefer:
                uvm_model_prefer(r->model, a->process, a->address, a->bytes, a->to);
                return 0;
        case POLICY_ACTION_read_duplicate:
                uvm_model_read_duplicate(r->model, a->process, a->address, a->bytes, on);
                return 0;
        case POLICY_ACTION_discard:
                uvm_model_discard(r->model, a->process, a->address, a->bytes);
                return 0;
        case POLICY_ACTION_accessed_by:
                return 0; /* in the model the GPU can reach the host's memory anyway */
        default:
                return -EOPNOTSUPP; /* nothing here shares time: see share_model.h */
        }
}

static uint32_t gpu_count(const struct replayer *r)
{
        return r->options->gpus ? r->options->gpus : 1;
}

static void update_memory(struct replayer *r)
{
        for (uint32_t gpu = 0; gpu < gpu_count(r); gpu++)
                policy_engine_memory(r->engine, gpu, r->options->gpu_bytes,
                                     uvm_model_free_bytes(r->model, gpu));
}

static void flush(void *data)
{
        struct replayer *r = data;
        struct policy_result result;
        struct policy_order order;

        while (r->queue_count) {
                order = r->queue[r->queue_first];
                r->queue_first = (r->queue_first + 1) % ORDER_QUEUE;
                r->queue_count--;
                result = (struct policy_result){.id = order.id};
                result.error = perform(r, &order.action, &result.bytes);
                r->result->requested_bytes += result.bytes;
                update_memory(r);
                policy_engine_done(r->engine, &result);
        }
}

static const struct policy_actuator_ops actuator = {.submit = submit, .flush = flush};

/* ---- what the model tells ---- */

static void on_faults(void *data, uint64_t process, const struct policy_fault *faults, size_t n)
{
        struct replayer *r = data;

        update_memory(r);
        policy_engine_faults(r->engine, process, faults, n, uvm_model_now(r->model));
}

static void on_moved(void *data, uint64_t process, const struct policy_moved *moved, size_t n)
{
        struct replayer *r = data;

        update_memory(r);
        policy_engine_moved(r->engine, process, moved, n, uvm_model_now(r->model));
}

static void settle(void *data)
{
        struct replayer *r = data;

        if (r->settling)
                return;
        r->settling = true;
        update_memory(r);
        for (uint32_t gpu = 0; gpu < gpu_count(r); gpu++)
                if (uvm_model_free_bytes(r->model, gpu) <
                    PRESSURE_BLOCKS * (uint64_t)POLICY_BLOCK_BYTES)
                        policy_engine_pressure(r->engine, gpu, uvm_model_now(r->model));
        flush(r);
        r->settling = false;
}

static const struct uvm_model_ops model_ops = {
        .faults = on_faults, .moved = on_moved, .settle = settle};

/* ---- the offline optimum ---- */

struct last_use {
        UT_hash_handle hh;
        uint64_t key;
        uint64_t touch;
        uint32_t gpu;
};

static uint64_t blocks_of(const struct uvm_trace_record *t)
{
        return (t->address + t->bytes - 1) / POLICY_BLOCK_BYTES - t->address / POLICY_BLOCK_BYTES +
               1;
}

/*
 * The touch of a block that comes after the one numbered so; UINT64_MAX when none does, or one by
 * another GPU, for which the block has to leave this one anyway.
 */
static bool note_use(struct last_use **seen, uint64_t key, uint32_t gpu, uint64_t number,
                     uint64_t *ret_next)
{
        struct last_use *u;

        HASH_FIND(hh, *seen, &key, sizeof(key), u);
        *ret_next = u && u->gpu == gpu ? u->touch : UINT64_MAX;
        if (!u) {
                u = calloc(1, sizeof(*u));
                if (!u)
                        return false;
                u->key = key;
                HASH_ADD(hh, *seen, key, sizeof(u->key), u);
        }
        u->touch = number;
        u->gpu = gpu;
        return true;
}

static void forget_uses(struct last_use **seen)
{
        struct last_use *u, *next;

        HASH_ITER (hh, *seen, u, next) {
                HASH_DEL(*seen, u);
                free(u);
        }
}

/* The GPU of the launch that each record comes after; NULL on no memory. */
static uint8_t *find_gpus(const struct uvm_trace *t)
{
        uint8_t *gpus = calloc(t->count + 1, sizeof(*gpus));
        uint8_t gpu = 0;

        for (size_t i = 0; gpus && i < t->count; i++) {
                if (t->records[i].kind == UVM_TRACE_LAUNCH)
                        gpu = t->records[i].gpu;
                gpus[i] = gpu;
        }
        return gpus;
}

/* For each touch of a block, in order, when that block is touched next: found from the end. */
static int find_next_uses(struct replayer *r)
{
        _cleanup_free_ uint8_t *gpus = find_gpus(r->trace);
        struct last_use *seen = NULL;
        uint64_t n = 0;
        bool ok;

        for (size_t i = 0; i < r->trace->count; i++)
                if (r->trace->records[i].kind == UVM_TRACE_TOUCH)
                        n += blocks_of(&r->trace->records[i]);
        r->next_use = calloc(n + 1, sizeof(*r->next_use));
        ok = gpus && r->next_use;
        for (size_t i = r->trace->count; i-- > 0 && ok;) {
                const struct uvm_trace_record *t = &r->trace->records[i];
                uint64_t blocks = t->kind == UVM_TRACE_TOUCH ? blocks_of(t) : 0;

                while (blocks-- > 0 && ok) {
                        uint64_t key = (uint64_t)t->process << 32 |
                                       (t->address / POLICY_BLOCK_BYTES + blocks);

                        n--;
                        ok = note_use(&seen, key, gpus[i], n, &r->next_use[n]);
                }
        }
        forget_uses(&seen);
        return ok ? 0 : -ENOMEM;
}

/* ---- records ---- */

/* Process keys are never 0. */
static uint64_t key_of(const struct uvm_trace_record *t)
{
        return (uint64_t)t->process + 1;
}

static void start_process(struct replayer *r, const struct uvm_trace_record *t)
{
        char name[17] = {0};
        struct policy_process p = {.key = key_of(t),
                                   .start_ticks = 1,
                                   .pid = 1000u + t->process,
                                   .gpu = gpu_count(r) > 1 ? POLICY_GPUS_MAX : 0,
                                   .comm = name,
                                   .cgroup = name};

        memcpy(name, &t->address, 8);
        memcpy(name + 8, &t->bytes, 8);
        if (r->engine)
                (void)policy_engine_process_start(r->engine, &p, uvm_model_now(r->model));
}

/* Tell of one launch and the ranges after it. */
static void announce(struct replayer *r, size_t at)
{
        const struct uvm_trace_record *launch = &r->trace->records[at];
        struct policy_range ranges[RANGES_MAX];
        size_t n = 0;

        for (size_t i = at + 1; i < r->trace->count && n < RANGES_MAX; i++) {
                const struct uvm_trace_record *t = &r->trace->records[i];

                if (t->kind != UVM_TRACE_RANGE)
                        break;
                ranges[n++] = (struct policy_range){t->address, t->bytes, uvm_model_now(r->model),
                                                    launch->kernel};
        }
        policy_engine_process_gpu(r->engine, key_of(launch), launch->gpu, uvm_model_now(r->model));
        policy_engine_launches(r->engine, key_of(launch), launch->gpu, 1, r->ahead, ranges, n,
                               uvm_model_now(r->model));
}

/* Tell of launches until the CPU is as far ahead as it may be. It waits at anything it has to. */
static void announce_ahead(struct replayer *r, size_t at)
{
        if (r->announced < at)
                r->announced = at;
        while (r->announced < r->trace->count && r->ahead <= r->options->ahead) {
                const struct uvm_trace_record *t = &r->trace->records[r->announced];

                if (t->kind == UVM_TRACE_LAUNCH) {
                        r->ahead++;
                        announce(r, r->announced);
                } else if (t->kind != UVM_TRACE_RANGE && t->kind != UVM_TRACE_TOUCH) {
                        break;
                }
                r->announced++;
        }
        settle(r);
}

static void end_kernel(struct replayer *r)
{
        struct replay_process *p;
        uint64_t stall;

        if (!r->running)
                return;
        p = &r->result->processes[r->running->process];
        uvm_model_pass(r->model, r->running->ns);
        stall = uvm_model_kernel_end(r->model);
        p->launches++;
        p->stall_ns += stall;
        p->longest_ns = stall > p->longest_ns ? stall : p->longest_ns;
        r->running = NULL;
}

static void begin_kernel(struct replayer *r, size_t at)
{
        r->running = &r->trace->records[at];
        r->result->launches++;
        uvm_model_kernel_begin(r->model, r->running->gpu);
        if (!r->engine)
                return;
        announce_ahead(r, at);
        r->ahead--;
}

static void memory_record(struct replayer *r, const struct uvm_trace_record *t)
{
        uint64_t now_ns = uvm_model_now(r->model);

        if (t->kind == UVM_TRACE_ALLOC && r->engine)
                (void)policy_engine_alloc(r->engine, key_of(t), t->address, t->bytes, now_ns);
        if (t->kind == UVM_TRACE_FREE) {
                if (r->engine)
                        policy_engine_freed(r->engine, key_of(t), t->address, now_ns);
                uvm_model_forget(r->model, key_of(t), t->address, t->bytes);
        }
        if (t->kind == UVM_TRACE_HOST)
                uvm_model_host_touch(r->model, key_of(t), t->address, t->bytes);
}

static void play(struct replayer *r, size_t at)
{
        const struct uvm_trace_record *t = &r->trace->records[at];

        if (t->kind != UVM_TRACE_TOUCH && t->kind != UVM_TRACE_RANGE)
                end_kernel(r);
        switch (t->kind) {
        case UVM_TRACE_PROCESS:
                start_process(r, t);
                break;
        case UVM_TRACE_EXIT:
                if (r->engine)
                        policy_engine_process_exit(r->engine, key_of(t), uvm_model_now(r->model));
                break;
        case UVM_TRACE_LAUNCH:
                begin_kernel(r, at);
                break;
        case UVM_TRACE_TOUCH:
                uvm_model_touch(r->model, key_of(t), t->address, t->bytes, t->write);
                break;
        case UVM_TRACE_IDLE:
                uvm_model_pass(r->model, t->ns);
                break;
        default:
                memory_record(r, t);
        }
}

static void tick(struct replayer *r)
{
        uint64_t now_ns = uvm_model_now(r->model);

        if (!r->engine || now_ns < r->tick_ns)
                return;
        r->tick_ns = now_ns + TICK_NS;
        update_memory(r);
        policy_engine_tick(r->engine, now_ns);
        settle(r);
}

/* ---- the whole ---- */

static int open_parts(struct replayer *r)
{
        struct uvm_model_options options = {.gpus = gpu_count(r),
                                            .gpu_bytes = r->options->gpu_bytes,
                                            .costs = r->options->costs,
                                            .data = r};
        int e;

        if (uvm_trace_gpus(r->trace) > gpu_count(r) || gpu_count(r) > UVM_MODEL_GPUS_MAX)
                return -ENODEV;

        if (r->options->optimum) {
                e = find_next_uses(r);
                if (e < 0)
                        return e;
                options.next_use = r->next_use;
        } else if (r->options->prepare) {
                r->engine = policy_engine_new(&actuator, r);
                if (!r->engine)
                        return -ENOMEM;
                options.ops = &model_ops;
        }
        r->model = uvm_model_new(&options);
        if (!r->model)
                return -ENOMEM;
        return r->engine ? r->options->prepare(r->engine, r->options->data) : 0;
}

static void sum_up(struct replayer *r)
{
        struct uvm_model_stats *sum = &r->result->memory;

        for (uint32_t gpu = 0; gpu < gpu_count(r); gpu++) {
                const struct uvm_model_stats *s = uvm_model_get_stats(r->model, gpu);

                r->result->gpus[gpu] = *s;
#define X(name) sum->name += s->name;
                UVM_MODEL_STATS(X)
#undef X
        }
}

static int run(struct replayer *r)
{
        int e = open_parts(r);

        for (size_t i = 0; i < r->trace->count && e == 0; i++) {
                play(r, i);
                tick(r);
        }
        if (e < 0)
                return e;
        end_kernel(r);
        sum_up(r);
        r->result->time_ns = uvm_model_now(r->model);
        if (r->engine && r->options->finish)
                r->options->finish(r->engine, r->options->data);
        return 0;
}

int replay(const struct uvm_trace *trace, const struct replay_options *options,
           struct replay_result *ret_result)
{
        struct replayer *r = calloc(1, sizeof(*r));
        struct replay_result *result = calloc(1, sizeof(*result));
        int e = -ENOMEM;

        if (r && result) {
                r->trace = trace;
                r->options = options;
                r->result = result;
                e = run(r);
                policy_engine_free(r->engine);
                uvm_model_free(r->model);
                free(r->next_use);
        }
        if (e == 0)
                *ret_result = *result;
        free(r);
        free(result);
        return e;
}
