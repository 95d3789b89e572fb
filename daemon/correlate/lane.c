/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which launch is a start record's? Records fall into lanes by what they tell of
 * their launch: context and stream. Launches fall into queues by what their call
 * told: context and stream. Once a lane's stream is known (bind.c), and as long as
 * nothing is lost (doubt.c), its next record is of the first launch that waits; or,
 * where calls of several threads into the stream overlap, of one of its kernel
 * among those that can have come first.
 *
 * Records that do not tell their stream are in one lane of their device, and the
 * process's launches in one queue (scattered.c).
 */
#include "correlate/join.h"

#include <errno.h>
#include <stdlib.h>

#include "device/device_abi.h"

#define LOW_BITS        ((1u << DEVICE_QUEUE_SLOT_SHIFT) - 1)
#define OF_PROCESS      (1ULL << 63) /* with the device: key of a lane of the process */
#define LOOKS_AGAIN_MAX 16           /* at one record, one after the other */

/* ---- lanes ---- */

void lane_unbind(struct lane *lane)
{
        if (!lane->stream)
                return;
        lane->stream->lane = NULL;
        lane->stream = NULL;
        lane->guessed = false;
}

static void lane_free(struct lane *lane)
{
        lane_unbind(lane);
        HASH_DELETE(hh, lane->process->lanes, lane);
        free(lane);
}

static void lanes_purge(struct correlated_process *p)
{
        struct lane *lane, *next;

        p->last_lane = NULL;
        HASH_ITER (hh, p->lanes, lane, next)
                if (lane->count == 0 && !lane->stream)
                        lane_free(lane);
}

struct lane *lane_get(struct correlated_process *p, const struct held *h)
{
        uint32_t device = h->queue ? DEVICE_UNKNOWN : tag_device(p, h->tag);
        uint64_t key = h->queue ? (uint64_t)h->tag << 32 | h->queue >> DEVICE_QUEUE_STREAM_SHIFT
                                : OF_PROCESS | device;
        struct lane *lane = p->last_lane;

        if (lane && lane->key == key)
                return lane;
        HASH_FIND(hh, p->lanes, &key, sizeof(key), lane);
        if (lane)
                return p->last_lane = lane;
        if (HASH_CNT(hh, p->lanes) >= LANES_MAX)
                lanes_purge(p);
        lane = HASH_CNT(hh, p->lanes) < LANES_MAX ? calloc(1, sizeof(*lane)) : NULL;
        if (!lane)
                return NULL;
        lane->key = key;
        lane->process = p;
        lane->tag = h->tag;
        lane->device = device;
        lane->low_bits = h->queue & LOW_BITS;
        TAILQ_INIT(&lane->records);
        HASH_ADD(hh, p->lanes, key, sizeof(lane->key), lane);
        return lane;
}

bool lane_of_process(const struct lane *lane)
{
        return lane->key & OF_PROCESS;
}

uint32_t lane_device(const struct lane *lane, const struct held *h)
{
        uint32_t device = tag_device(lane->process, h->tag);

        if (device == DEVICE_UNKNOWN && lane->stream)
                return context_device(lane->stream->context);
        return device;
}

/* A launch starts once, and each stream has one kind of address. */
static bool node_like(const struct lane *lane, const struct held *h, const struct held *last)
{
        uint64_t id = last ? last->gridid : lane->last_id;
        uint64_t time_ns = last ? last->time_ns : lane->last_time_ns;

        return (h->queue & LOW_BITS) != lane->low_bits ||
               (h->gridid == id && h->time_ns != time_ns);
}

/* Those of the process in order of ids, those of a stream as they come. */
void lane_add(struct lane *lane, struct held *h)
{
        struct held *last = TAILQ_LAST(&lane->records, held_head);

        if (last && last->gridid == h->gridid && last->time_ns == h->time_ns) {
                record_drop(lane->process, h);
                return;
        }
        if (!lane_of_process(lane))
                lane->graph |= lane->process->execs && node_like(lane, h, last);
        if (lane_of_process(lane)) {
                while (last && last->gridid > h->gridid)
                        last = TAILQ_PREV(last, held_head, in_list);
        }
        if (last)
                TAILQ_INSERT_AFTER(&lane->records, last, h, in_list);
        else
                TAILQ_INSERT_HEAD(&lane->records, h, in_list);
        if (lane->count++ == 0)
                TAILQ_INSERT_TAIL(&lane->process->busy, lane, in_busy);
}

void lane_remove(struct lane *lane, struct held *h)
{
        TAILQ_REMOVE(&lane->records, h, in_list);
        if (--lane->count == 0)
                TAILQ_REMOVE(&lane->process->busy, lane, in_busy);
}

void lane_drop(struct lane *lane, struct held *h)
{
        lane_remove(lane, h);
        record_drop(lane->process, h);
}

void lane_to_graph(struct lane *lane, struct held *h)
{
        lane_remove(lane, h);
        graph_start(lane->process, h);
}

void lane_release(struct lane *lane)
{
        if (lane->stream) {
                /* Records of others may have been taken for its launches'. */
                lane->stream->queue.may_lack |= lane->guessed;
                lane->stream->queue.may_exceed |= lane->guessed;
        }
        lane_unbind(lane);
        lane->tried = 0;
        lane->misfits = 0;
}

void lanes_rehome(struct correlated_process *p)
{
        uint64_t key = OF_PROCESS | DEVICE_UNKNOWN;
        struct held *h, *next;
        struct lane *from, *to;

        if (!p->rehome)
                return;
        p->rehome = false;
        HASH_FIND(hh, p->lanes, &key, sizeof(key), from);
        for (h = from ? TAILQ_FIRST(&from->records) : NULL; h; h = next) {
                next = TAILQ_NEXT(h, in_list);
                if (tag_device(p, h->tag) == DEVICE_UNKNOWN)
                        continue;
                lane_remove(from, h);
                to = lane_get(p, h);
                if (to)
                        lane_add(to, h);
                else
                        record_drop(p, h);
        }
}

/* Only now and then: it takes a look at all that waits. */
bool lane_worth_trying(struct lane *lane, size_t launches, bool all)
{
        size_t waiting = lane->count + launches;

        if (lane->process->correlator->looks > LOOKS_PER_TICK && !lane->process->closing)
                return false;
        if (!all && waiting < lane->tried + lane->tried / 4 + 4)
                return false;
        lane->tried = waiting;
        return true;
}

/* ---- running ---- */

static bool lane_step(struct lane *lane, struct held *h, bool all)
{
        int r = record_resolve(lane->process, h, lane_device(lane, h));

        if (r == -EAGAIN)
                return false;
        if (r < 0) {
                /* Of a kernel that nobody told of. */
                lane_drop(lane, h);
                return true;
        }
        return lane_of_process(lane) ? scattered_step(lane, h, all) : stream_step(lane, h, all);
}

/*
 * A step may leave its record for another look, after it has settled or doubted what
 * the record lies against. What hostile input can make two such steps undo each
 * other's work is nobody's record.
 */
void lane_run(struct lane *lane, bool all)
{
        struct held *h, *last = NULL;
        unsigned int looks = 0;

        waiting_sort(lane->process);
        while ((h = TAILQ_FIRST(&lane->records))) {
                looks = h == last ? looks + 1 : 0;
                last = h;
                if (looks == LOOKS_AGAIN_MAX)
                        lane_drop(lane, h);
                else if (!lane_step(lane, h, all))
                        break;
        }
}

void lanes_run(struct correlated_process *p, bool all)
{
        struct lane *lane, *next;

        records_named(p);
        lanes_rehome(p);
        /* Those of streams first: what they prove tells of the others. */
        for (int of_process = 0; of_process < 2; of_process++)
                for (lane = TAILQ_FIRST(&p->busy); lane; lane = next) {
                        next = TAILQ_NEXT(lane, in_busy);
                        if (lane_of_process(lane) == of_process)
                                lane_run(lane, all);
                }
}

void lanes_done(struct correlated_process *p)
{
        struct lane *lane, *next;

        HASH_ITER (hh, p->lanes, lane, next) {
                while (!TAILQ_EMPTY(&lane->records))
                        lane_drop(lane, TAILQ_FIRST(&lane->records));
                lane_free(lane);
        }
        p->last_lane = NULL;
}
