/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A context's launches in order of entry.
 *
 * Events come in order of return, seq gives the order of entry. A launch goes on
 * only when all before it have: so queues are complete up to their last launch,
 * and n-th can mean something. A place in the order stays empty while a call has
 * not returned, or for ever when its event was lost. It is given up when launches were
 * lost and every thread that was at work lately has returned from a later call, or after
 * a while: from then on a launch of any kernel in any stream is missing there.
 */
#include "correlate/join.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_abi.h"

#define BEHIND_FIRST  256
#define LATELY_NS     (100 * NSEC_PER_MSEC)
#define AT_WORK_NS    HOLE_PATIENCE_NS /* a machine may stand still meanwhile */
#define BLUR_NS       NSEC_PER_MSEC    /* longer than most calls */
#define BARE_MAX      65536 /* launches that may be awaited since the last one without an agent */
#define UNDER_WAY_MAX 64    /* calls that the one seen first may overlap with */
#define BIRTH_SEQ_MAX 1024  /* a later first seq: the context was not seen from birth */

/* Those whose turn has come, and as many more as there are too many. */
void syncs_run(struct context *c, size_t too_many)
{
        struct sync *sync;

        while ((sync = STAILQ_FIRST(&c->syncs)) && (sync->seq < c->next_seq || too_many > 0)) {
                too_many -= too_many > 0;
                STAILQ_REMOVE_HEAD(&c->syncs, in_list);
                c->sync_count--;
                synced(c, sync);
                free(sync);
        }
}

/* ---- threads ---- */

static void threads_purge(struct context *c)
{
        uint64_t now = c->process->correlator->now_ns;
        struct thread *t, *next;

        HASH_ITER (hh, c->threads, t, next) {
                if (t->last_ns + NSEC_PER_SEC > now || t->captures)
                        continue;
                HASH_DELETE(hh, c->threads, t);
                free(t);
        }
}

struct thread *thread_get(struct context *c, uint32_t tid)
{
        struct thread *t;

        HASH_FIND(hh, c->threads, &tid, sizeof(tid), t);
        if (t)
                return t;
        if (HASH_CNT(hh, c->threads) >= THREADS_MAX)
                threads_purge(c);
        t = HASH_CNT(hh, c->threads) < THREADS_MAX ? calloc(1, sizeof(*t)) : NULL;
        if (!t)
                return NULL;
        t->tid = tid;
        t->blurs = c->blurs;
        HASH_ADD(hh, c->threads, tid, sizeof(t->tid), t);
        return t;
}

static void thread_returned(struct context *c, const struct launch *l)
{
        struct thread *t = thread_get(c, l->record.tid);

        if (!t)
                return;
        t->last_seq = l->seq;
        t->last_ns = launch_return_ns(l);
}

/* Nobody who was at work lately can still be in the call that is missing. */
static bool all_returned(const struct context *c)
{
        uint64_t now = c->process->correlator->now_ns;
        const struct thread *t, *next;

        HASH_ITER (hh, c->threads, t, next)
                if (t->last_seq < c->next_seq && t->last_ns + AT_WORK_NS > now)
                        return false;
        return true;
}

bool others_at_work(const struct context *c, const struct launch *l)
{
        const struct thread *t, *next;

        HASH_ITER (hh, c->threads, t, next)
                if (t->tid != l->record.tid && t->last_ns + AT_WORK_NS > launch_return_ns(l))
                        return true;
        return false;
}

/* ---- losses ---- */

/* Launches whose events were lost, by the ledger, less those whose places were found. */
static uint64_t lost_unplaced(const struct correlated_process *p)
{
        const uint64_t *lost = p->ledger->lost;
        uint64_t all = lost[LOSS_cpu_ring_full] + lost[LOSS_agent_ring_overrun] +
                       lost[LOSS_agent_record_torn];

        return all - p->lost_placed;
}

static void lost_place(struct correlated_process *p, uint64_t launches)
{
        uint64_t unplaced = lost_unplaced(p);

        p->lost_placed += launches < unplaced ? launches : unplaced;
}

/* ---- order of entry ---- */

static uint64_t widen(const struct context *c, uint32_t seq)
{
        if (!c->sequenced)
                return (1ULL << 32) + seq;
        return c->last_seq + (uint64_t)(int64_t)(int32_t)(seq - (uint32_t)c->last_seq);
}

static struct entered *behind_at(struct context *c, uint64_t seq)
{
        return &c->behind[seq & (c->behind_size - 1)];
}

static bool behind_reserve(struct context *c, uint64_t seq)
{
        size_t size = c->behind_size ? c->behind_size : BEHIND_FIRST, old = c->behind_size;
        struct entered *behind;

        while (seq - c->next_seq >= size)
                size *= 4;
        if (size == old)
                return true;
        behind = calloc(size, sizeof(*behind));
        if (!behind)
                return false;
        for (uint64_t s = c->next_seq; old && s <= c->last_seq; s++)
                behind[s & (size - 1)] = *behind_at(c, s);
        free(c->behind);
        c->behind = behind;
        c->behind_size = size;
        return true;
}

/*
 * Calls that were lost may have overlapped with those after them: until each thread that was
 * at work has entered another one, a while at most. Where threads share streams that while
 * is as long as a call is waited for; else the kernel of one that takes longer than most is
 * in a stream that the others do not use.
 */
static void blur_begin(struct context *c, uint64_t at_ns)
{
        struct thread *t, *next;

        c->blurs++;
        c->blurred_threads = 0;
        c->blurred_from_ns = at_ns;
        HASH_ITER (hh, c->threads, t, next) {
                if (t->last_ns + LATELY_NS > at_ns)
                        c->blurred_threads++;
                else
                        t->blurs = c->blurs;
        }
}

static uint64_t blur_ns(const struct context *c)
{
        return c->streams_shared ? LATELY_NS : BLUR_NS;
}

/* Can a call that was lost overlap with this one, the next in order of entry? */
static bool blurred(struct context *c, const struct launch *l)
{
        struct thread *t;

        if (!c->blurred_threads || l->record.cpu_enter_ns >= c->blurred_from_ns + blur_ns(c)) {
                c->outstanding = 0;
                return false;
        }
        t = thread_get(c, l->record.tid);
        if (t && t->blurs != c->blurs) {
                t->blurs = c->blurs;
                c->blurred_threads--;
        }
        return c->blurred_threads > 0;
}

static void admit(struct context *c, struct launch *l)
{
        c->next_seq = l->seq + 1;
        if (l->record.cpu_enter_ns > c->known_until_ns)
                c->known_until_ns = l->record.cpu_enter_ns;
        l->hole = c->hole;
        if (blurred(c, l) || l->record.cpu_enter_ns < c->judged_until_ns)
                l->swappable[QUEUE_STREAM] = l->swappable[QUEUE_PROCESS] = true;
        launch_admit(l);
}

static void advance(struct context *c)
{
        while (c->next_seq <= c->last_seq) {
                struct entered *e = behind_at(c, c->next_seq);
                struct launch *l = e->launch;

                syncs_run(c, 0);
                if (!l) {
                        if (!c->hole_ns)
                                c->hole_ns = c->process->correlator->now_ns;
                        return;
                }
                e->launch = NULL;
                c->process->behind_count--;
                admit(c, l);
        }
        syncs_run(c, 0);
        c->hole_ns = 0;
}

/* Launches entered before are missing. */
static void holed(struct context *c, uint64_t at_ns)
{
        c->holed_ns = at_ns;
        c->holed_end_ns = 0;
}

bool order_missing(const struct context *c, const struct held *h)
{
        uint32_t error_ns;
        uint64_t cpu_ns;

        if (!c->holed_ns)
                return false;
        return !c->holed_end_ns || !record_time(h, c, &cpu_ns, &error_ns) ||
               (int64_t)(cpu_ns - c->holed_end_ns) <= (int64_t)error_ns;
}

/* Those that had not returned when one that was lost may have been entered. */
static void open_blur(const struct queue *q, uint64_t at_ns)
{
        for (size_t i = 0; i < q->open_count; i++) {
                struct launch *l = q->open[i];

                if (launch_return_ns(l) > at_ns)
                        l->swappable[QUEUE_STREAM] = l->swappable[QUEUE_PROCESS] = l->outlasted =
                                true;
        }
}

static void blur(struct context *c, uint64_t at_ns)
{
        struct stream *s, *next;

        holed(c, at_ns);
        ids_loosen(c, at_ns);
        graph_hole(c, at_ns);
        if (HASH_COUNT(c->threads) <= 1)
                return;
        /* The process's go on meanwhile, with launches of other contexts. */
        open_blur(&c->process->queue, c->known_until_ns);
        HASH_ITER (hh, c->streams, s, next)
                open_blur(&s->queue, c->known_until_ns);
        blur_begin(c, at_ns);
}

/* When the launch behind those that are missing here was entered; 0: no record comes of these. */
static uint64_t skip_missing(struct context *c)
{
        uint64_t first = c->next_seq;
        uint32_t hole = c->hole;

        for (; c->next_seq <= c->last_seq && !behind_at(c, c->next_seq)->launch; c->next_seq++)
                c->hole += c->next_seq > c->first_seq;
        lost_place(c->process, c->next_seq - first);
        c->hole_ns = 0;
        if (c->next_seq > c->last_seq || c->hole == hole)
                return 0;
        return behind_at(c, c->next_seq)->launch->record.cpu_enter_ns;
}

static void give_up(struct context *c)
{
        uint64_t at_ns = skip_missing(c);

        if (at_ns)
                blur(c, at_ns);
        advance(c);
}

/* It may be lost; or is under way yet, nobody knows in which thread or for how long. */
static void run_out(struct context *c)
{
        uint64_t now = c->process->correlator->now_ns;
        uint32_t hole = c->hole;
        uint64_t at_ns = skip_missing(c);

        if (at_ns) {
                c->outstanding += c->hole - hole;
                blur(c, at_ns);
                ids_loosen(c, now);
        }
        if (at_ns && c->streams_shared) {
                c->blurred_threads = UINT32_MAX;
                c->blurred_from_ns = now + LONG_PATIENCE_NS;
        }
        advance(c);
}

/* It may have taken its id, and its place in its stream, just before it returned. */
static void came_late(struct context *c, const struct launch *l)
{
        ids_loosen(c, launch_return_ns(l));
        if (c->outstanding && --c->outstanding == 0)
                c->blurred_from_ns = launch_return_ns(l) - blur_ns(c);
}

static void sequence(struct context *c, uint64_t seq, uint64_t enter_ns)
{
        c->sequenced = true;
        /*
         * What was launched before may not be known; but no record of it can come. The
         * first to return need not have been entered first. From birth on all is known.
         */
        if (!c->known_from_birth && (c->process->nothing_probed || c->last_bare)) {
                int32_t since = (int32_t)((uint32_t)seq - c->last_bare);

                if (!c->last_bare) {
                        c->first_seq = seq;
                        since = (uint32_t)seq < UNDER_WAY_MAX ? (int32_t)seq : UNDER_WAY_MAX;
                }
                c->before_probes = true;
                /* Also when it was entered before that one, which returned first: it is past. */
                c->next_seq = since >= -UNDER_WAY_MAX && since <= BARE_MAX
                                      ? seq + 1 - (uint64_t)(int64_t)since
                                      : seq;
                c->last_seq = c->next_seq - 1;
                return;
        }
        if ((uint32_t)seq > BIRTH_SEQ_MAX)
                c->known_from_birth = false;
        if (!c->known_from_birth) {
                c->hole++;
                holed(c, enter_ns);
                c->blurred_threads = UINT32_MAX; /* nobody knows whose calls were under way */
                c->blurred_from_ns = enter_ns;
        }
        c->next_seq = c->known_from_birth ? (1ULL << 32) + 1 : seq;
        c->last_seq = c->next_seq - 1;
}

void order_bare(struct context *c, uint32_t number)
{
        int32_t since = (int32_t)(number - c->last_bare);

        /* Once an agent has left, the kernel counts on from where it was before. */
        if (since > 0 || since < -UNDER_WAY_MAX)
                c->last_bare = number;
}

void order_launch(struct context *c, struct launch *l, uint32_t number)
{
        uint64_t seq = widen(c, number);

        if (!c->sequenced)
                sequence(c, seq, l->record.cpu_enter_ns);
        l->seq = seq;
        thread_returned(c, l);
        if (seq < c->next_seq || (seq <= c->last_seq && behind_at(c, seq)->launch)) {
                /* Its place was given up, or is another's. */
                came_late(c, l);
                launch_finish(l);
                return;
        }
        while (seq - c->next_seq >= ENTERED_MAX && c->next_seq <= c->last_seq)
                give_up(c);
        if (seq - c->next_seq >= ENTERED_MAX || (seq > c->next_seq && !behind_reserve(c, seq))) {
                c->hole += (uint32_t)(seq - c->next_seq);
                blur(c, l->record.cpu_enter_ns);
                c->next_seq = c->last_seq = seq;
        }
        if (seq > c->last_seq)
                c->last_seq = seq;
        if (seq > c->next_seq) {
                behind_at(c, seq)->launch = l;
                c->process->behind_count++;
                if (!c->hole_ns)
                        c->hole_ns = c->process->correlator->now_ns;
                return;
        }
        admit(c, l);
        if (c->hole_ns) {
                c->hole_ns = 0;
                advance(c);
        }
}

void order_seen(struct context *c, const struct cpu_operation_event *ev)
{
        if (c->sequenced && widen(c, ev->launch_seq) + 1 == c->next_seq &&
            ev->enter_ns > c->known_until_ns)
                c->known_until_ns = ev->enter_ns;
}

void order_sync(struct context *c, struct stream *s, const struct cpu_operation_event *ev)
{
        struct sync *sync = calloc(1, sizeof(*sync));

        if (!sync)
                return;
        *sync = (struct sync){
                .stream = s,
                .seq = c->sequenced ? widen(c, ev->launch_seq) : 0,
                .enter_ns = ev->enter_ns,
                .return_ns = ev->enter_ns + ev->duration_ns,
        };
        STAILQ_INSERT_TAIL(&c->syncs, sync, in_list);
        c->sync_count++;
        syncs_run(c, c->sync_count > SYNCS_MAX);
}

void order_leave(struct launch *l)
{
        struct context *c = l->context;

        if (c->behind_size && l->seq >= c->next_seq && l->seq <= c->last_seq &&
            behind_at(c, l->seq)->launch == l) {
                behind_at(c, l->seq)->launch = NULL;
                c->process->behind_count--;
        }
}

void order_close(struct context *c)
{
        while (c->hole_ns)
                give_up(c);
}

void order_tick(struct context *c)
{
        const struct correlated_process *p = c->process;
        uint64_t now = p->correlator->now_ns, since = c->hole_ns;

        /* Those right behind it are as old, if nobody can still be in them. */
        while (c->hole_ns && since + EVENT_LATENCY_NS <= now && lost_unplaced(p) && all_returned(c))
                give_up(c);
        /* Where many wait for their records instead, a hole may be a call just under way. */
        while (c->hole_ns &&
               (c->hole_ns + HOLE_PATIENCE_NS <= now || p->behind_count > PENDING_MAX / 2))
                run_out(c);
}

/* h tells its context, which is on another one. */
static bool on_other_device(const struct held *h, const struct context *c)
{
        uint32_t device = context_device(c);

        return h->device != DEVICE_UNKNOWN && device != DEVICE_UNKNOWN && h->device != device &&
               !match_tag(h, c);
}

void order_judged(const struct launch *l)
{
        uint64_t return_ns = launch_return_ns(l);
        struct context *c, *next;

        HASH_ITER (hh, l->context->process->contexts, c, next)
                if ((l->process_queue || (c == l->context && c->streams_shared)) &&
                    c->known_until_ns < return_ns && c->judged_until_ns < return_ns)
                        c->judged_until_ns = return_ns;
}

bool order_known(const struct context *c, const struct held *h)
{
        uint32_t error_ns;
        uint64_t cpu_ns;

        if (record_time(h, c, &cpu_ns, &error_ns) &&
            (int64_t)(c->known_until_ns - cpu_ns) > (int64_t)error_ns)
                return true;
        return !device_possible(h, c);
}

bool launches_known(const struct correlated_process *p, const struct held *h)
{
        const struct context *c, *next;

        HASH_ITER (hh, p->contexts, c, next) {
                if (on_other_device(h, c) || order_known(c, h))
                        continue;
                if (!record_aged(p, h, c->hole_ns ? HOLE_PATIENCE_NS : EVENT_LATENCY_NS))
                        return false;
        }
        return true;
}

bool launches_due(const struct correlated_process *p, const struct held *h)
{
        const struct context *c, *next;

        HASH_ITER (hh, p->contexts, c, next)
                if (match_tag(h, c) && !order_known(c, h))
                        return !record_aged(p, h, HOLE_PATIENCE_NS);
        return false;
}
