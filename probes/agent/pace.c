/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How many launches wait is known here as it is in the daemon (probes/cpu/depth.bpf.h),
 * from the start records that the GPU writes, only at once: the daemon says where it
 * has read up to and how many had started by then, and a launch that has to wait reads
 * on. When the daemon knows of more, from a synchronize for instance, that counts.
 *
 * Kernels that do not tell their start would be waited for in vain. When the longest
 * wait was over four times in a row and nothing had started for the second half of it,
 * the limit is given up until the daemon sets another.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "monotonic.h"
#include "pace.h"

#define READ_TRIES 8
#define BLIND_MAX  4
#define SPIN_NS    30000
#define NAP_NS     20000

#define NSEC_PER_SEC 1000000000ull

struct limits {
        uint32_t waiting, rate, setting, started;
        uint64_t position;
};

static struct {
        const struct cuda_api *api;
        struct agent_launch_map *map;
        const struct device_record *ring;
        uint32_t entries;
        bool walking; /* a thread is reading start records */
        uint64_t cursor;
        uint32_t started; /* up to there */
        uint32_t setting; /* that cursor and the following are of */
        uint32_t blind;   /* waits in a row that saw nothing start */
        uint64_t due_ns;  /* when the next launch may be, by the rate alone */
} pace;

#define LOAD(at)         __atomic_load_n(&(at), __ATOMIC_RELAXED)
#define STORE(at, value) __atomic_store_n(&(at), (value), __ATOMIC_RELAXED)
#define ADD(at, value)   __atomic_add_fetch(&(at), (value), __ATOMIC_RELAXED)

void pace_begin(const struct cuda_api *api, struct agent_launch_map *map,
                const struct device_record *ring, uint32_t entries)
{
        uint32_t can = 0;

        pace.api = api;
        pace.ring = ring;
        pace.entries = entries;
        /* What is left of an earlier session is of another map, whose settings had the same
         * numbers. */
        pace.setting = 0;
        __atomic_store_n(&pace.map, map, __ATOMIC_RELEASE);
        if (api->stream_is_capturing)
                can |= AGENT_PACES_LAUNCHES;
        if (api->stream_priority_range)
                can |= AGENT_PACES_STREAMS;
        STORE(map->paced.can, can);
}

/* False: they are being written all the time, which is nothing a daemon does. */
static bool read_limits(struct limits *ret_limits)
{
        const struct agent_pace *p = &pace.map->pace;

        for (int i = 0; i < READ_TRIES; i++) {
                uint32_t version = __atomic_load_n(&p->version, __ATOMIC_ACQUIRE);

                *ret_limits = (struct limits){.waiting = LOAD(p->waiting),
                                              .rate = LOAD(p->rate),
                                              .setting = LOAD(p->setting),
                                              .started = LOAD(p->started),
                                              .position = LOAD(p->position)};
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (!(version & 1) && LOAD(p->version) == version)
                        return true;
        }
        return false;
}

static bool is_alive(uint64_t now)
{
        uint64_t alive = LOAD(pace.map->pace.alive_ns);

        return now < alive + AGENT_PACE_SILENCE_NS && alive < now + AGENT_PACE_SILENCE_NS;
}

/* That these are gone by is the answer to the daemon. Written once: it is read by all threads. */
static void heed(struct agent_launch_map *map, uint32_t setting)
{
        if (LOAD(map->paced.heeded) != setting)
                STORE(map->paced.heeded, setting);
}

/* ---- how many wait ---- */

static uint32_t launched(void)
{
        uint32_t sum = 0;

        for (unsigned i = 0; i < AGENT_LAUNCH_CONTEXTS; i++) {
                const struct agent_launch_context *c = &pace.map->contexts[i];

                if (!LOAD(c->handle))
                        break;
                sum += LOAD(c->entered) - LOAD(c->graphs) - LOAD(c->retired);
        }
        return sum;
}

/* The record at the cursor, if it is there: whether it is a start. The GPU writes meanwhile. */
static bool read_record(uint64_t cursor, bool *ret_is_start)
{
        const volatile struct device_record *at = &pace.ring[cursor % pace.entries];
        const struct device_record r = {
                .time_ns = at->time_ns, .grid = at->grid, .who = at->who, .check = at->check};

        *ret_is_start = DEVICE_RECORD_TYPE(&r) == DEVICE_RECORD_START;
        return device_record_index(&r) == cursor;
}

static void read_on(void)
{
        uint32_t started = 0;
        bool is_start;

        for (uint32_t i = 0; i < pace.entries && read_record(pace.cursor, &is_start); i++) {
                pace.cursor++;
                started += is_start;
        }
        STORE(pace.started, pace.started + started);
}

/* To where the daemon is, when that is further. */
static void catch_up(const struct limits *l)
{
        if (pace.setting != l->setting || (int64_t)(l->position - pace.cursor) > 0) {
                pace.cursor = l->position;
                STORE(pace.started, l->started);
        } else if ((int32_t)(l->started - pace.started) > 0) {
                STORE(pace.started, l->started);
        }
        if (pace.setting != l->setting) {
                STORE(pace.blind, 0);
                pace.setting = l->setting;
        }
}

/* Kernels of graphs start without having been launched one by one. */
static void settle(void)
{
        uint32_t all = launched();

        if ((int32_t)(all - pace.started) < 0)
                STORE(pace.started, all);
}

/* Kernels launched and not started. One thread at a time reads on; the others take its word. */
static uint32_t depth(const struct limits *l)
{
        int32_t waiting;

        if (!__atomic_exchange_n(&pace.walking, true, __ATOMIC_ACQUIRE)) {
                catch_up(l);
                read_on();
                settle();
                __atomic_store_n(&pace.walking, false, __ATOMIC_RELEASE);
        }
        waiting = (int32_t)(launched() - LOAD(pace.started));
        return waiting > 0 ? (uint32_t)waiting : 0;
}

/* ---- how many a second ---- */

/*
 * Take the launch's place in time, and those behind it move on: a bucket of tokens that
 * holds a hundredth of a second's. False: its time has not come.
 */
static bool take_place(const struct limits *l, uint64_t now)
{
        uint64_t between = NSEC_PER_SEC / l->rate, burst = NSEC_PER_SEC / 100;
        uint64_t due = LOAD(pace.due_ns), next;

        do {
                if (due > now + burst && due < now + NSEC_PER_SEC)
                        return false;
                /* Long ago, or of a rate that was another. */
                next = (due < now || due >= now + NSEC_PER_SEC ? now : due) + between;
        } while (!__atomic_compare_exchange_n(&pace.due_ns, &due, next, true, __ATOMIC_RELAXED,
                                              __ATOMIC_RELAXED));
        return true;
}

/* ---- waiting ---- */

struct hold {
        struct limits limits;
        uint64_t began_ns, now_ns;
        uint64_t progress_ns; /* something started last */
        uint32_t started;
        bool placed; /* by the rate it may go */
};

static bool has_to_wait(struct hold *h)
{
        const struct limits *l = &h->limits;

        if (l->rate && !h->placed && !take_place(l, h->now_ns))
                return true;
        h->placed = true;
        return l->waiting && depth(l) >= l->waiting;
}

/* Not through the C library: there they would be places where a thread can be cancelled. */
static void rest(const struct hold *h)
{
        const struct timespec nap = {.tv_nsec = NAP_NS};

        if (h->now_ns - h->began_ns < SPIN_NS)
                syscall(SYS_sched_yield);
        else
                syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &nap, NULL);
}

static void note_progress(struct hold *h)
{
        uint32_t started = LOAD(pace.started);

        if (started == h->started)
                return;
        h->started = started;
        h->progress_ns = h->now_ns;
}

/* The longest wait is over. */
static void give_in(struct hold *h)
{
        ADD(pace.map->paced.late, 1);
        if (!h->placed)
                return; /* too low a rate: no wonder */
        if (h->now_ns - h->progress_ns < AGENT_PACE_WAIT_MAX_NS / 2)
                STORE(pace.blind, 0);
        else if (ADD(pace.blind, 1) == BLIND_MAX)
                STORE(pace.map->paced.blind, h->limits.setting);
}

static bool is_captured(uint64_t stream)
{
        int status = 0;

        return !pace.api->stream_is_capturing ||
               pace.api->stream_is_capturing((cuda_handle)(uintptr_t)stream, &status) != CUDA_OK ||
               status != 0;
}

/* Until it need not wait, the daemon has gone, or it is too long. */
static void wait(struct hold *h)
{
        do {
                rest(h);
                h->now_ns = now_ns();
                note_progress(h);
                if (h->now_ns - h->began_ns >= AGENT_PACE_WAIT_MAX_NS) {
                        give_in(h);
                        break;
                }
        } while (pace_limits(pace.map) && is_alive(h->now_ns) && read_limits(&h->limits) &&
                 has_to_wait(h));
        ADD(pace.map->paced.held, 1);
        ADD(pace.map->paced.held_ns, h->now_ns - h->began_ns);
}

void pace_hold(uint64_t stream)
{
        struct hold h = {.began_ns = now_ns()};
        int saved_errno = errno;

        h.now_ns = h.progress_ns = h.began_ns;
        if (__atomic_load_n(&pace.map, __ATOMIC_ACQUIRE) && is_alive(h.now_ns) &&
            read_limits(&h.limits) && LOAD(pace.map->paced.blind) != h.limits.setting &&
            !is_captured(stream)) {
                heed(pace.map, h.limits.setting);
                h.started = LOAD(pace.started);
                if (has_to_wait(&h))
                        wait(&h);
        }
        errno = saved_errno;
}

/* ---- streams ---- */

bool pace_stream_priority(int *ret_priority)
{
        struct agent_launch_map *map = __atomic_load_n(&pace.map, __ATOMIC_ACQUIRE);
        uint32_t wanted = map ? LOAD(map->pace.priority) : 0;
        int least = 0, greatest = 0;

        if (!wanted || !is_alive(now_ns()) || !pace.api->stream_priority_range ||
            pace.api->stream_priority_range(&least, &greatest) != CUDA_OK || least < greatest)
                return false;
        heed(map, LOAD(map->pace.setting));
        /* The greatest is the lowest number. */
        *ret_priority =
                wanted - 1 < (uint32_t)(least - greatest) ? greatest + (int)(wanted - 1) : least;
        return true;
}

void pace_stream_made(void)
{
        ADD(pace.map->paced.streams, 1);
}
