/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/launch_ring.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/launch_abi.h"
#include "cpu/cpu_abi.h"
#include "probe/claimed_ring.h"
#include "util/macro.h"
#include "util/time.h"

/* Records taken before the process is told. */
#define RELEASE_EVERY 256

struct launch_ring {
        int fd;
        struct agent_launch_map *map;
        uint64_t position;
        uint64_t created_ns;
        uint64_t hole_ns; /* since when position is a hole; 0: it is not known to be one */
        uint64_t dropped; /* as last read */
        struct launch_ring_losses losses;
};

int launch_ring_adopt(int fd, struct launch_ring **ret_ring)
{
        struct launch_ring *r = calloc(1, sizeof(*r));
        void *memory;

        if (!r)
                return -ENOMEM;
        memory = mmap(NULL, AGENT_LAUNCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED) {
                int error = -errno;

                free(r);
                return error;
        }
        r->fd = fd;
        r->map = memory;
        r->created_ns = now_ns();
        *ret_ring = r;
        return 0;
}

int launch_ring_new(struct launch_ring **ret_ring)
{
        LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
        _cleanup_close_ int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "launches", sizeof(uint32_t),
                                                AGENT_LAUNCH_ELEMENT, AGENT_LAUNCH_ELEMENTS, &opts);
        int r;

        if (fd < 0)
                return -errno;
        r = launch_ring_adopt(fd, ret_ring);
        if (r == 0)
                TAKE_FD(fd);
        return r;
}

struct launch_ring *launch_ring_free(struct launch_ring *r)
{
        if (!r)
                return NULL;
        munmap(r->map, AGENT_LAUNCH_BYTES);
        close(r->fd);
        free(r);
        return NULL;
}

int launch_ring_fd(const struct launch_ring *r)
{
        return r->fd;
}

struct agent_launch_map *launch_ring_map(const struct launch_ring *r)
{
        return r->map;
}

struct agent_launch_wishes *launch_ring_wishes(const struct launch_ring *r)
{
        return &r->map->wishes;
}

struct agent_argument_map *launch_ring_arguments(const struct launch_ring *r)
{
        return &r->map->arguments;
}

void launch_ring_release(struct launch_ring *r)
{
        __atomic_store_n(&r->map->consumer.tail, r->position, __ATOMIC_RELEASE);
}

static void pass(struct launch_ring *r)
{
        r->hole_ns = 0;
        r->position++;
        if (r->position % RELEASE_EVERY == 0)
                launch_ring_release(r);
}

/* Nothing whole is at position. Returns whether it was given up and reading goes on. */
static bool pass_hole(struct launch_ring *r, bool last)
{
        uint64_t head = __atomic_load_n(&r->map->producer.head, __ATOMIC_RELAXED);

        if (!claimed_hole_is_over(&r->hole_ns, head, r->position, AGENT_LAUNCH_ENTRIES, now_ns(),
                                  last))
                return false;
        r->losses.torn++;
        pass(r);
        return true;
}

static bool is_possible(const struct launch_ring *r, const struct agent_launch *l)
{
        unsigned type = l->type & ~(AGENT_LAUNCH_OWN | AGENT_LAUNCH_UNPROBED);

        return (type == CPU_EVENT_LAUNCH || type == CPU_EVENT_GRAPH_LAUNCH) &&
               l->enter_ns >= r->created_ns;
}

/* Copy the record of position; false when it is not whole. */
static bool copy_record(const struct launch_ring *r, struct agent_launch *ret_launch)
{
        const struct agent_launch *slot = &r->map->records[r->position % AGENT_LAUNCH_ENTRIES];
        uint64_t turn = __atomic_load_n(&slot->turn, __ATOMIC_ACQUIRE);

        if ((turn & AGENT_LAUNCH_TURN_MASK) != ((r->position + 1) & AGENT_LAUNCH_TURN_MASK))
                return false;
        memcpy(ret_launch, slot, sizeof(*ret_launch));
        ret_launch->turn = turn;
        return true;
}

static uint64_t context_handle(const struct launch_ring *r, const struct agent_launch *l)
{
        unsigned slot = (unsigned)(l->turn >> AGENT_LAUNCH_SLOT_SHIFT);

        return slot < AGENT_LAUNCH_CONTEXTS
                       ? __atomic_load_n(&r->map->contexts[slot].handle, __ATOMIC_RELAXED)
                       : 0;
}

/* Of a call that is said to have returned after until_ns, which may be long ago. */
static bool is_to_come(uint64_t return_ns, bool last)
{
        return !last && return_ns <= now_ns() + CLAIMED_FUTURE_NS;
}

bool launch_ring_take(struct launch_ring *r, uint64_t until_ns, bool last,
                      struct agent_launch *ret_launch, uint64_t *ret_context)
{
        struct agent_launch l;

        /* No more rounds than records, lest a process that writes nonsense keep us here. */
        for (uint32_t budget = AGENT_LAUNCH_ENTRIES; budget; budget--) {
                uint64_t return_ns;

                if (!copy_record(r, &l)) {
                        if (!pass_hole(r, last))
                                return false;
                        continue;
                }
                return_ns = l.enter_ns + l.duration_ns;
                if (!is_possible(r, &l) || return_ns < l.enter_ns ||
                    (return_ns > until_ns && !is_to_come(return_ns, last))) {
                        r->losses.torn++;
                        pass(r);
                        continue;
                }
                if (return_ns > until_ns)
                        return false;
                *ret_context = context_handle(r, &l);
                *ret_launch = l;
                pass(r);
                return true;
        }
        return false;
}

void launch_ring_get_losses(struct launch_ring *r, struct launch_ring_losses *ret_losses)
{
        r->losses.overrun += claimed_counted(
                __atomic_load_n(&r->map->producer.dropped, __ATOMIC_RELAXED), &r->dropped);
        *ret_losses = r->losses;
}

bool launch_ring_recording(const struct launch_ring *r)
{
        return __atomic_load_n(&r->map->producer.recording, __ATOMIC_RELAXED) != 0;
}

uint64_t launch_ring_probed_ns(const struct launch_ring *r)
{
        return __atomic_load_n(&r->map->producer.probed_ns, __ATOMIC_ACQUIRE);
}
