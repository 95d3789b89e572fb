/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reader of the launches that a process records by itself (agent/launch_abi.h):
 * creates the eBPF array, maps it, takes records out in order, counts what was
 * lost. The process may write anything anywhere at any time.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

struct agent_argument_map;
struct agent_launch;
struct agent_launch_map;
struct agent_launch_wishes;
struct launch_ring;

/* Create the mmapable eBPF array and map it. 0 or -errno. */
int launch_ring_new(struct launch_ring **ret_ring);
struct launch_ring *launch_ring_free(struct launch_ring *r);

/*
 * Read a map that exists already. fd: the array, or any file of
 * AGENT_LAUNCH_BYTES that can be mapped; the ring owns it from now on, except on
 * failure. 0 or -errno.
 */
int launch_ring_adopt(int fd, struct launch_ring **ret_ring);

/* The map's descriptor (owned by the ring): to send to the agent, to put into kernel maps. */
int launch_ring_fd(const struct launch_ring *r);

/* The whole map, and its further parts, as long as the ring lives. All of them can be written by
 * the process. */
struct agent_launch_map *launch_ring_map(const struct launch_ring *r);
struct agent_launch_wishes *launch_ring_wishes(const struct launch_ring *r);
struct agent_argument_map *launch_ring_arguments(const struct launch_ring *r);

/*
 * Take the next record if it is whole and its call returned at until_ns or
 * before; until_ns is no later than now. A hole (claimed but not written) holds
 * the reading up for half a second, then counts as torn; last: nobody writes any
 * more, it does at once. Records that cannot be are torn, too. Returns whether
 * there was one; *ret_context is its context's handle, 0 for none.
 */
bool launch_ring_take(struct launch_ring *r, uint64_t until_ns, bool last,
                      struct agent_launch *ret_launch, uint64_t *ret_context);

/* Tell the process what has been taken. launch_ring_take() does so now and then. */
void launch_ring_release(struct launch_ring *r);

struct launch_ring_losses {
        uint64_t overrun; /* not recorded: the ring was full */
        uint64_t torn;    /* claimed, but never completed, or with impossible contents */
};

void launch_ring_get_losses(struct launch_ring *r, struct launch_ring_losses *ret_losses);

/* Whether the agent says that it records. */
bool launch_ring_recording(const struct launch_ring *r);

/* No kernel of the process had a start probe before this time, as the agent says; 0: none has. */
uint64_t launch_ring_probed_ns(const struct launch_ring *r);
