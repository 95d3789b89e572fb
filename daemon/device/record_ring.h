/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reader of a process's shared start/end map (device_abi.h): creates the eBPF
 * array, maps it, takes records out in order, counts what was lost.
 */
#include <stddef.h>
#include <stdint.h>

struct device_record;
struct record_ring;

/* Create the mmapable eBPF array and map it. 0 or -errno. */
int record_ring_new(struct record_ring **ret_ring);
struct record_ring *record_ring_free(struct record_ring *r);

/*
 * Go on reading a ring that exists already, from record `position`. fd: the
 * array, or any file of DEVICE_RING_BYTES that can be mapped; the ring owns it
 * from now on, except on failure. 0 or -errno.
 */
int record_ring_adopt(int fd, uint64_t position, struct record_ring **ret_ring);

/* The map's descriptor (owned by the ring): to send to the agent, to put into kernel maps. */
int record_ring_fd(const struct record_ring *r);

struct record_ring_losses {
        uint64_t overrun; /* overwritten before they were read */
        uint64_t torn;    /* a hole that later records passed for longer than the patience */
        uint64_t garbage; /* sealed, but with an impossible type */
};

/*
 * Take records in order while they are complete, at most max. A hole (claimed
 * but not yet written) stops the reading until it fills, or, when later records
 * are there and it has been one for 20 ms, is counted as torn and passed.
 * Calls record() for each, gap() before the first record after a loss. Those that were
 * saved come first; while some are left, as many are saved again.
 * Returns the number taken.
 */
size_t record_ring_read(struct record_ring *r, uint64_t now_ns, size_t max,
                        void (*record)(void *data, const struct device_record *rec),
                        void (*gap)(void *data, uint64_t lost), void *data);

/*
 * Take what is complete out of the ring, at most max, and keep it for record_ring_read(),
 * for times when a record cannot be dealt with yet and the ring would overflow. Half a ring full
 * is kept at most. Returns the number taken.
 */
size_t record_ring_save(struct record_ring *r, uint64_t now_ns, size_t max);

/*
 * The last reading, when nobody writes any more: what is missing will not come, so time is made to
 * pass at each hole. Takes as much as ring and memory hold, and no more than two rings full
 * beside what was saved: somebody may go on writing.
 */
void record_ring_read_rest(struct record_ring *r, uint64_t now_ns,
                           void (*record)(void *data, const struct device_record *rec),
                           void (*gap)(void *data, uint64_t lost), void *data);

void record_ring_get_losses(const struct record_ring *r, struct record_ring_losses *ret_losses);

/* Next index to read: how many records of the process have been passed or saved so far. */
uint64_t record_ring_position(const struct record_ring *r);
