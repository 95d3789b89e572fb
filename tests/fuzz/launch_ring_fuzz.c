/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The reader of launches over maps that a process has filled with anything:
 * what comes out must be possible, and reading must come to an end.
 *
 * Input: commands. A byte of 0xff reads all there is; any other is an element
 * (0x00 producer, 0x01 consumer, up to 0x7f contexts, from 0x80 on records), to
 * be overwritten by the 64 bytes after it. Times of records count from now.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/launch_abi.h"
#include "cpu/cpu_abi.h"
#include "probe/launch_ring.h"
#include "unit/test.h"
#include "util/time.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct agent_launch_map *map;
static int fd = -1;

static void open_map(void)
{
        if (fd >= 0)
                return;
        fd = memfd_create("launches", MFD_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(ftruncate(fd, AGENT_LAUNCH_BYTES), 0);
        map = mmap(NULL, AGENT_LAUNCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(map != MAP_FAILED);
}

static uint8_t *element(uint8_t which)
{
        if (which == 0)
                return (uint8_t *)&map->producer;
        if (which == 1)
                return (uint8_t *)&map->consumer;
        if (which < 0x80)
                return (uint8_t *)&map->contexts[(which - 2u) % AGENT_LAUNCH_CONTEXTS];
        return (uint8_t *)&map->records[which - 0x80u];
}

static void read_all(struct launch_ring *ring, uint64_t started, uint64_t until, bool last)
{
        struct launch_ring_losses before, after;
        struct agent_launch l;
        uint64_t context;

        launch_ring_get_losses(ring, &before);
        for (int i = 0; launch_ring_take(ring, until, last, &l, &context); i++) {
                unsigned type = l.type & ~AGENT_LAUNCH_OWN;

                CHECK(i < 0x80);
                CHECK(type == CPU_EVENT_LAUNCH || type == CPU_EVENT_GRAPH_LAUNCH);
                CHECK(l.enter_ns >= started && l.enter_ns + l.duration_ns <= until);
                CHECK(l.turn >> AGENT_LAUNCH_SLOT_SHIFT < AGENT_LAUNCH_CONTEXTS || !context);
        }
        launch_ring_get_losses(ring, &after);
        CHECK(after.torn >= before.torn && after.overrun >= before.overrun);
        CHECK(after.torn - before.torn <= AGENT_LAUNCH_ENTRIES);
        launch_ring_release(ring);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        uint64_t started, now, n;
        struct launch_ring *ring;

        open_map();
        memset(map, 0, offsetof(struct agent_launch_map, records));
        memset(map->records, 0, 0x80 * sizeof(map->records[0]));
        started = now_ns();
        CHECK_EQ(launch_ring_adopt(dup(fd), &ring), 0);
        now = now_ns();
        while (size > 0) {
                uint8_t which = *data++;

                size--;
                if (which == 0xff) {
                        read_all(ring, started, now + NSEC_PER_SEC, false);
                        continue;
                }
                n = size < AGENT_LAUNCH_ELEMENT ? size : AGENT_LAUNCH_ELEMENT;
                memcpy(element(which), data, n);
                if (which >= 0x80)
                        map->records[which - 0x80u].enter_ns += now + NSEC_PER_MSEC;
                data += n;
                size -= n;
        }
        read_all(ring, started, now + NSEC_PER_SEC, true);
        launch_ring_free(ring);
        return 0;
}
