/* SPDX-License-Identifier: Apache-2.0 */

/* Events to the policies that want them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "policy/internal.h"
#include "util/time.h"

struct usage *usage_now(struct policy *p, uint64_t now_ns)
{
        uint64_t second = now_ns / NSEC_PER_SEC;

        if (p->usage.second != second)
                p->usage = (struct usage){.second = second, .cpu_ns = thread_cpu_ns()};
        return &p->usage;
}

/* ---- memory of the GPUs ---- */

/* Bytes moved in the last second: of the running one, and the rest of the one before. */
static uint64_t moved_lately(const struct gpu_memory *g, uint64_t now_ns)
{
        uint64_t second = now_ns / NSEC_PER_SEC, passed = now_ns % NSEC_PER_SEC;
        uint64_t moved = 0, before = 0;

        if (second == g->second) {
                moved = g->moved;
                before = g->moved_before;
        } else if (second == g->second + 1) {
                before = g->moved;
        }
        return moved + before / 1000 * ((NSEC_PER_SEC - passed) / 1000000);
}

static void count_moved(struct gpu_memory *g, uint64_t bytes, uint64_t now_ns)
{
        uint64_t second = now_ns / NSEC_PER_SEC;

        if (second != g->second) {
                g->moved_before = second == g->second + 1 ? g->moved : 0;
                g->moved = 0;
                g->second = second;
        }
        g->moved += bytes;
}

void policy_engine_memory(struct policy_engine *e, uint32_t gpu, uint64_t total_bytes,
                          uint64_t free_bytes)
{
        if (gpu >= POLICY_GPUS_MAX)
                return;
        e->gpus[gpu].total_bytes = total_bytes;
        e->gpus[gpu].free_bytes = free_bytes;
}

/* ---- running ---- */

static struct policy_event event_of(const struct policy_engine *e, enum policy_event_type type,
                                    const struct target *t, uint32_t gpu)
{
        struct policy_event event = {.type = type, .now_ns = e->now_ns, .gpu = gpu};
        const struct gpu_memory *g = &e->gpus[event.gpu < POLICY_GPUS_MAX ? event.gpu : 0];

        event.total_bytes = g->total_bytes;
        event.free_bytes = g->free_bytes;
        event.moved_bytes = moved_lately(g, e->now_ns);
        event.depth = POLICY_UNKNOWN;
        if (t) {
                event.process = t->key;
                event.pid = t->pid;
                event.uid = t->uid;
                event.process_bytes = t->resident[event.gpu < POLICY_GPUS_MAX ? event.gpu : 0];
        }
        return event;
}

/*
 * Runs are timed by the clock, which costs less, and goes on while the thread does not get a CPU.
 * That is no fault of the policy: where it matters, no more counts than the thread can have run.
 */
static bool ran_too_long(const struct policy *p, struct usage *usage)
{
        uint64_t limit_ns = p->options.limits.run_ns, cpu_ns;

        if (usage->used.run_ns <= limit_ns)
                return false;
        cpu_ns = thread_cpu_ns() - usage->cpu_ns;
        if (usage->used.run_ns > cpu_ns)
                usage->used.run_ns = cpu_ns;
        return usage->used.run_ns > limit_ns;
}

/* What a run cost and said; this is where a policy that misbehaves is stopped. */
static void account(struct policy_engine *e, struct policy *p, int error,
                    const struct policy_run *run)
{
        struct usage *usage = usage_now(p, e->now_ns);

        if (error < 0) {
                engine_eject(e, p, "the kernel did not run it: %s", strerror(-error));
                return;
        }
        p->stats.runs++;
        p->stats.run_ns += run->run_ns;
        if (run->run_ns > p->stats.longest_ns)
                p->stats.longest_ns = run->run_ns;
        usage->used.run_ns += run->run_ns;
        if (run->value != 0)
                engine_eject(e, p, "it returned %d", run->value);
        else if (run->overran)
                engine_eject(e, p, "its loops wanted more than the %u steps a run has",
                             POLICY_STEPS_MAX);
        else if (run->unsaid)
                engine_eject(e, p,
                             "it asked for more actions in one run than there is room for (%u, "
                             "then %llu more)",
                             run->actions, (unsigned long long)run->unsaid);
        else if (ran_too_long(p, usage))
                engine_eject(e, p, "its programs ran for %llu us in one second, it may %llu us",
                             (unsigned long long)(usage->used.run_ns / 1000),
                             (unsigned long long)(p->options.limits.run_ns / 1000));
}

static void run(struct policy_engine *e, struct policy *p, struct policy_event *event,
                const struct target *t, const union policy_item *items, size_t n)
{
        struct policy_batch *batch = policy_object_batch(p->object);
        struct policy_limits *used = &usage_now(p, e->now_ns)->used;
        struct policy_run result = {0};
        int r;

        p->stats.events += n ? n : 1;
        if (used->runs >= p->options.limits.runs) {
                p->stats.skipped += n ? n : 1;
                return;
        }
        used->runs++;
        event->items = (uint32_t)n;
        if (n)
                memcpy(batch->items, items, n * sizeof(*items));
        if (event->type == POLICY_EVENT_process_start) {
                memcpy(batch->comm, t->comm, sizeof(batch->comm));
                memcpy(batch->cgroup, t->cgroup, sizeof(batch->cgroup));
        }
        e->running = p;
        if (e->ops->hold)
                e->ops->hold(e->data, true);
        r = policy_object_run(p->object, event, decide, e, &result);
        if (e->ops->hold)
                e->ops->hold(e->data, false);
        e->running = NULL;
        account(e, p, r, &result);
}

static void run_all_items(struct policy_engine *e, struct policy *p, struct policy_event *event,
                          const struct target *t, const union policy_item *items, size_t n)
{
        do {
                size_t some = n < POLICY_ITEMS_MAX ? n : POLICY_ITEMS_MAX;

                run(e, p, event, t, items, some);
                items += some;
                n -= some;
        } while (n && p->state == POLICY_ACTIVE);
}

static bool wants(const struct policy *p, enum policy_event_type type)
{
        return p->state == POLICY_ACTIVE && policy_object_wants(p->object, type);
}

/* What a policy is told that an event is about which by itself is of no GPU. */
static uint32_t gpu_to(const struct policy *p, const struct target *t)
{
        return p->options.has_gpu ? p->options.gpu : t->gpu;
}

/* An event about a process, of no GPU, with items. */
static void tell(struct policy_engine *e, enum policy_event_type type, const struct target *t,
                 const union policy_item *items, size_t n)
{
        struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                struct policy_event event = event_of(e, type, t, gpu_to(p, t));

                if (wants(p, type) && engine_in_scope(p, t))
                        run_all_items(e, p, &event, t, items, n);
        }
}

static const struct target *about(struct policy_engine *e, uint64_t process, uint64_t now_ns)
{
        e->now_ns = now_ns;
        return targets_find(&e->targets, process);
}

bool policy_engine_wants(const struct policy_engine *e, enum policy_event_type type)
{
        const struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                if (wants(p, type))
                        return true;
        }
        return false;
}

bool policy_engine_wants_of(const struct policy_engine *e, uint64_t process,
                            enum policy_event_type type)
{
        const struct target *t = targets_find(&e->targets, process);
        const struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                if (t && wants(p, type) && engine_in_scope(p, t))
                        return true;
        }
        return false;
}

/* ---- processes ---- */

static void copy_text(char *to, size_t size, const char *text)
{
        size_t length = text ? strnlen(text, size - 1) : 0;

        memset(to, 0, size);
        if (length)
                memcpy(to, text, length);
}

int policy_engine_process_start(struct policy_engine *e, const struct policy_process *process,
                                uint64_t now_ns)
{
        struct target *t = targets_add(&e->targets, process->key);

        if (!t)
                return -ENOMEM;
        e->now_ns = now_ns;
        t->start_ticks = process->start_ticks;
        t->pid = process->pid;
        t->uid = process->uid;
        t->gpu = process->gpu < POLICY_GPUS_MAX ? process->gpu : 0;
        t->gpus = process->gpu < POLICY_GPUS_MAX ? 1ull << process->gpu : 0;
        copy_text(t->comm, sizeof(t->comm), process->comm);
        copy_text(t->cgroup, sizeof(t->cgroup), process->cgroup);
        tell(e, POLICY_EVENT_process_start, t, NULL, 0);
        return 0;
}

void policy_engine_process_exit(struct policy_engine *e, uint64_t process, uint64_t now_ns)
{
        const struct target *t = about(e, process, now_ns);

        if (!t)
                return;
        tell(e, POLICY_EVENT_process_exit, t, NULL, 0);
        undo_forget_process(e, process);
        claims_drop_process(&e->claims, process);
        targets_remove(&e->targets, targets_find(&e->targets, process));
}

int policy_engine_alloc(struct policy_engine *e, uint64_t process, uint64_t address, uint64_t bytes,
                        uint64_t now_ns)
{
        union policy_item item = {.range = {address, bytes, now_ns, 0}};
        struct target *t;
        int r;

        e->now_ns = now_ns;
        t = targets_find(&e->targets, process);
        r = t ? target_add_range(t, address, bytes) : 0;
        if (!t || r < 0)
                return r;
        tell(e, POLICY_EVENT_alloc, t, &item, 1);
        return 0;
}

void policy_engine_freed(struct policy_engine *e, uint64_t process, uint64_t address,
                         uint64_t now_ns)
{
        union policy_item item = {.range = {address, 0, now_ns, 0}};
        struct target *t;

        e->now_ns = now_ns;
        t = targets_find(&e->targets, process);
        item.range.bytes = t ? target_remove_range(t, address) : 0;
        if (!item.range.bytes)
                return;
        undo_forget_memory(e, process, address, item.range.bytes);
        claims_drop_memory(&e->claims, process, address, address + item.range.bytes);
        tell(e, POLICY_EVENT_free, t, &item, 1);
}

/* ---- what processes do ---- */

/* POLICY_GPUS_MAX or more: the CPU's, which is of no GPU. */
static uint32_t gpu_of_fault(const union policy_item *item)
{
        return item->fault.gpu;
}

static uint32_t gpu_of_moved(const union policy_item *item)
{
        return item->moved.to < POLICY_GPUS_MAX ? item->moved.to : item->moved.from;
}

static bool fault_is_of(const union policy_item *item, uint32_t gpu)
{
        return item->fault.gpu == gpu || item->fault.gpu >= POLICY_GPUS_MAX;
}

static bool moved_is_of(const union policy_item *item, uint32_t gpu)
{
        return item->moved.to == gpu || item->moved.from == gpu;
}

/* What happened to memory, item by item. */
struct happened {
        enum policy_event_type type;
        const union policy_item *items;
        size_t count;
        uint32_t (*gpu_of)(const union policy_item *item);
        bool (*is_of)(const union policy_item *item, uint32_t gpu);
};

/* Of its GPU alone. */
static void tell_of_gpu(struct policy_engine *e, struct policy *p, const struct target *t,
                        const struct happened *h)
{
        union policy_item items[POLICY_ITEMS_MAX];
        size_t n = 0;

        for (size_t i = 0; i <= h->count && p->state == POLICY_ACTIVE; i++) {
                if (n == POLICY_ITEMS_MAX || (i == h->count && n)) {
                        struct policy_event event = event_of(e, h->type, t, p->options.gpu);

                        run(e, p, &event, t, items, n);
                        n = 0;
                }
                if (i < h->count && h->is_of(&h->items[i], p->options.gpu))
                        items[n++] = h->items[i];
        }
}

/* In runs of items that are about the same GPU, in order. */
static void tell_by_gpu(struct policy_engine *e, struct policy *p, const struct target *t,
                        const struct happened *h)
{
        size_t first = 0;

        for (size_t i = 1; i <= h->count && p->state == POLICY_ACTIVE; i++) {
                uint32_t gpu = h->gpu_of(&h->items[first]);
                struct policy_event event;

                if (i < h->count && h->gpu_of(&h->items[i]) == gpu)
                        continue;
                event = event_of(e, h->type, t, gpu < POLICY_GPUS_MAX ? gpu : t->gpu);
                run_all_items(e, p, &event, t, &h->items[first], i - first);
                first = i;
        }
}

static void tell_happened(struct policy_engine *e, const struct target *t, const struct happened *h)
{
        struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                if (!wants(p, h->type) || !engine_in_scope(p, t))
                        continue;
                if (p->options.has_gpu)
                        tell_of_gpu(e, p, t, h);
                else
                        tell_by_gpu(e, p, t, h);
        }
}

/* Launches whose GPU is not known are of a policy's GPU if the process uses no other. */
static bool hears_launch(const struct policy *p, const struct target *t, uint32_t gpu)
{
        if (!wants(p, POLICY_EVENT_launch) || !engine_in_scope(p, t))
                return false;
        if (!p->options.has_gpu || gpu == p->options.gpu)
                return true;
        return gpu >= POLICY_GPUS_MAX && (!t->gpus || t->gpus == 1ull << p->options.gpu);
}

void policy_engine_launches(struct policy_engine *e, uint64_t process, uint32_t gpu,
                            uint32_t launches, uint64_t depth, const struct policy_range *ranges,
                            size_t n, uint64_t now_ns)
{
        const struct target *t = about(e, process, now_ns);
        struct policy *p;

        if (!t)
                return;
        DL_FOREACH(e->policies, p)
        {
                struct policy_event event = event_of(e, POLICY_EVENT_launch, t,
                                                     gpu < POLICY_GPUS_MAX ? gpu : gpu_to(p, t));

                event.launches = launches;
                event.depth = depth;
                if (hears_launch(p, t, gpu))
                        run_all_items(e, p, &event, t, (const union policy_item *)ranges, n);
        }
}

void policy_engine_faults(struct policy_engine *e, uint64_t process,
                          const struct policy_fault *faults, size_t n, uint64_t now_ns)
{
        const struct target *t = about(e, process, now_ns);
        const struct happened h = {.type = POLICY_EVENT_fault,
                                   .items = (const union policy_item *)faults,
                                   .count = n,
                                   .gpu_of = gpu_of_fault,
                                   .is_of = fault_is_of};

        if (t)
                tell_happened(e, t, &h);
}

static void credit(void *data, uint32_t policy, uint64_t bytes)
{
        struct policy *p = engine_policy(data, policy);

        if (p)
                p->stats.bytes_seen += bytes;
}

void policy_engine_moved(struct policy_engine *e, uint64_t process,
                         const struct policy_moved *moved, size_t n, uint64_t now_ns)
{
        struct target *t = targets_find(&e->targets, process);
        const struct happened h = {.type = POLICY_EVENT_migration,
                                   .items = (const union policy_item *)moved,
                                   .count = n,
                                   .gpu_of = gpu_of_moved,
                                   .is_of = moved_is_of};

        e->now_ns = now_ns;
        if (!t)
                return;
        for (size_t i = 0; i < n; i++) {
                uint32_t gpu = gpu_of_moved(&h.items[i]);

                target_moved(t, &moved[i]);
                count_moved(&e->gpus[gpu < POLICY_GPUS_MAX ? gpu : 0], moved[i].bytes, now_ns);
                moves_seen(&e->moves, process, &moved[i], now_ns, credit, e);
        }
        tell_happened(e, t, &h);
}

/* ---- what is not about one process ---- */

static bool scope_has_gpu(const struct policy *p, uint32_t gpu)
{
        return !p->options.has_gpu || p->options.gpu == gpu;
}

static struct policy_share complete_share(const struct policy_engine *e,
                                          const struct policy_share *share, uint32_t gpu)
{
        struct policy_share complete = *share;
        uint32_t in_force_us = undo_slice_us(e, share->process, gpu);

        if (in_force_us)
                complete.slice_us = in_force_us;
        return complete;
}

/* Of the shares, those of processes that the policy may look at. */
static size_t select_shares(const struct policy_engine *e, const struct policy *p, uint32_t gpu,
                            const struct policy_share *shares, size_t n, union policy_item *items)
{
        size_t selected = 0;

        for (size_t i = 0; i < n && selected < POLICY_ITEMS_MAX; i++) {
                const struct target *t = targets_find(&e->targets, shares[i].process);

                if (t && engine_in_scope(p, t))
                        items[selected++].share = complete_share(e, &shares[i], gpu);
        }
        return selected;
}

static bool hears_shares(const struct policy *p, uint32_t gpu)
{
        return gpu < POLICY_GPUS_MAX ? p->options.has_gpu && p->options.gpu == gpu
                                     : !p->options.has_gpu;
}

void policy_engine_shares(struct policy_engine *e, uint32_t gpu, const struct policy_share *shares,
                          size_t n, uint64_t now_ns)
{
        union policy_item items[POLICY_ITEMS_MAX];
        struct policy *p;

        e->now_ns = now_ns;
        DL_FOREACH(e->policies, p)
        {
                struct policy_event event =
                        event_of(e, POLICY_EVENT_share, NULL, gpu < POLICY_GPUS_MAX ? gpu : 0);
                size_t selected;

                if (!wants(p, POLICY_EVENT_share) || !hears_shares(p, gpu))
                        continue;
                selected = select_shares(e, p, gpu, shares, n, items);
                if (selected)
                        run(e, p, &event, NULL, items, selected);
        }
}

/* A GPU of which nothing is known is told of to policies that are for it alone. */
static void tell_gpu(struct policy_engine *e, enum policy_event_type type, uint32_t gpu)
{
        bool known = gpu == 0 || e->gpus[gpu].total_bytes != POLICY_UNKNOWN;
        struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                struct policy_event event = event_of(e, type, NULL, gpu);

                if (wants(p, type) && scope_has_gpu(p, gpu) && (known || p->options.has_gpu))
                        run(e, p, &event, NULL, NULL, 0);
        }
}

void policy_engine_pressure(struct policy_engine *e, uint32_t gpu, uint64_t now_ns)
{
        e->now_ns = now_ns;
        tell_gpu(e, POLICY_EVENT_pressure, gpu);
}

/* ---- refusals ---- */

static bool has_room(struct refusals *r)
{
        size_t room = r->room ? 2 * r->room : 64;
        union policy_item *grown;

        if (r->count < r->room)
                return true;
        grown = room <= REFUSALS_MAX ? realloc(r->items, room * sizeof(*grown)) : NULL;
        if (!grown)
                return false;
        r->items = grown;
        r->room = room;
        return true;
}

void dispatch_refused(struct policy_engine *e, struct policy *p, const struct policy_action *a,
                      enum policy_refusal reason, bool retried)
{
        struct refusals *r = &p->refused;

        if (reason < POLICY_REFUSED_over_budget || !wants(p, POLICY_EVENT_refused))
                return;
        if (!has_room(r)) {
                p->stats.untold++;
                return;
        }
        if (retried && !r->not_before_ns)
                r->not_before_ns = e->now_ns + NSEC_PER_SEC;
        r->items[r->count++].refused = (struct policy_refused){.process = a->process,
                                                               .address = a->address,
                                                               .bytes = (uint32_t)a->bytes,
                                                               .value = (uint32_t)a->value,
                                                               .to = a->to,
                                                               .kind = (uint16_t)a->kind,
                                                               .reason = (uint16_t)reason};
}

/*
 * Not before it has a budget again: what it asks for now is refused as well. One that asks for the
 * same again and again, though there is no room, does so once a second.
 */
static void tell_refused(struct policy_engine *e)
{
        struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                struct policy_event event = event_of(e, POLICY_EVENT_refused, NULL, 0);
                struct refusals told = p->refused;

                if (!told.count || e->now_ns < told.not_before_ns ||
                    usage_now(p, e->now_ns)->exceeded)
                        continue;
                p->refused = (struct refusals){0};
                e->tells_refused = true;
                run_all_items(e, p, &event, NULL, told.items, told.count);
                e->tells_refused = false;
                free(told.items);
        }
}

/* Not at once: another policy may be running. */
static void tell_losers(struct policy_engine *e)
{
        struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                if (!p->has_lost)
                        continue;
                p->has_lost = false;
                dispatch_processes(e, p);
        }
}

void policy_engine_tick(struct policy_engine *e, uint64_t now_ns)
{
        e->now_ns = now_ns;
        (void)order_backlog(e);
        tell_losers(e);
        tell_refused(e);
        for (uint32_t gpu = 0; gpu < POLICY_GPUS_MAX; gpu++)
                tell_gpu(e, POLICY_EVENT_tick, gpu);
}

/* ---- late comers ---- */

static void introduce_process(struct policy_engine *e, struct policy *p, const struct target *t)
{
        struct policy_event event = event_of(e, POLICY_EVENT_process_start, t, gpu_to(p, t));

        if (wants(p, POLICY_EVENT_process_start))
                run(e, p, &event, t, NULL, 0);
}

void policy_engine_process_again(struct policy_engine *e, uint64_t process, uint64_t now_ns)
{
        const struct target *t = targets_find(&e->targets, process);
        struct policy *p;

        e->now_ns = now_ns;
        if (!t)
                return;
        DL_FOREACH(e->policies, p)
        {
                if (engine_in_scope(p, t))
                        introduce_process(e, p, t);
        }
}

static void introduce_memory(struct policy_engine *e, struct policy *p, const struct target *t)
{
        struct policy_event event = event_of(e, POLICY_EVENT_alloc, t, gpu_to(p, t));

        for (size_t i = 0; i < t->range_count && wants(p, POLICY_EVENT_alloc); i++) {
                const struct target_range *r = &t->ranges[i];
                union policy_item item = {.range = {r->start, r->end - r->start, e->now_ns, 0}};

                run(e, p, &event, t, &item, 1);
        }
}

static void introduce(struct policy_engine *e, struct policy *p, const struct target *t)
{
        introduce_process(e, p, t);
        introduce_memory(e, p, t);
}

/* It may come into the scope of policies by this, and is another process to those it was known to.
 */
void policy_engine_process_gpu(struct policy_engine *e, uint64_t process, uint32_t gpu,
                               uint64_t now_ns)
{
        struct target *t = targets_find(&e->targets, process), before;
        struct policy *p;

        if (!t || gpu >= POLICY_GPUS_MAX || (t->gpus && target_uses(t, gpu)))
                return;
        e->now_ns = now_ns;
        before = *t;
        t->gpu = t->gpus ? t->gpu : gpu;
        t->gpus |= 1ull << gpu;
        undo_beyond_reach(e, t);
        DL_FOREACH(e->policies, p)
        {
                if (!engine_in_scope(p, t))
                        continue;
                if (!engine_in_scope(p, &before))
                        introduce(e, p, t);
                else if (t->gpu != before.gpu && !p->options.has_gpu)
                        introduce_process(e, p, t);
        }
}

static void each_in_scope(struct policy_engine *e, struct policy *p,
                          void (*tell_of)(struct policy_engine *e, struct policy *p,
                                          const struct target *t))
{
        struct target *t, *next;

        HASH_ITER (hh, e->targets.by_key, t, next) {
                if (engine_in_scope(p, t))
                        tell_of(e, p, t);
        }
}

void dispatch_processes(struct policy_engine *e, struct policy *p)
{
        each_in_scope(e, p, introduce_process);
}

void dispatch_introduce(struct policy_engine *e, struct policy *p)
{
        each_in_scope(e, p, introduce_process);
        each_in_scope(e, p, introduce_memory);
}
