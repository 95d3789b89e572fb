/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The reader of launch arguments over maps that a process has filled with anything,
 * and the process's own search in a table that is anything: what comes out must be
 * possible, and both must come to an end.
 *
 * Input: commands. A byte of 0xff reads all there is, 0xfe looks for the word after
 * it; any other is a line of the map (0x00 table, 0x01 consumer, 0x02 producer, up to
 * 0x3f ranges, from 0x40 on records), to be overwritten by the 64 bytes after it.
 * Times of records count from now.
 */
#include <string.h>

#include "agent/argument_walk.h"
#include "probe/argument_ring.h"
#include "unit/test.h"
#include "util/time.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct agent_argument_map map;

static uint8_t *line(uint8_t which)
{
        if (which == 0)
                return (uint8_t *)&map.table;
        if (which == 1)
                return (uint8_t *)&map.consumer;
        if (which == 2)
                return (uint8_t *)&map.producer;
        if (which < 0x40)
                return (uint8_t *)&map.ranges[4 * (which - 3u)];
        return (uint8_t *)&map.records[which - 0x40u];
}

static void read_all(struct argument_ring *ring, uint64_t started, uint64_t until)
{
        struct argument_ring_losses before, after;
        struct agent_argument a;

        argument_ring_get_losses(ring, &before);
        for (int i = 0; argument_ring_take(ring, until, &a); i++) {
                CHECK(i < 0x100);
                CHECK(a.count > 0 && a.count <= AGENT_ARGUMENT_ADDRESSES);
                CHECK(a.at_ns >= started && a.at_ns <= until + NSEC_PER_SEC);
        }
        (void)argument_ring_sleep(ring);
        argument_ring_get_losses(ring, &after);
        CHECK(after.torn >= before.torn && after.overrun >= before.overrun &&
              after.unread >= before.unread);
        CHECK(after.torn - before.torn <= AGENT_ARGUMENT_ENTRIES);
}

static void look_for(const uint8_t *word, size_t size)
{
        struct argument_found f;

        if (!argument_walk_begin(&map, &f))
                return;
        argument_walk_bytes(&map, &f, word, size);
        CHECK(argument_walk_end(&map, &f));
        CHECK(f.count <= 1 && f.words == size / 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct argument_ring ring;
        uint64_t started, now;
        size_t n;

        memset(&map, 0, offsetof(struct agent_argument_map, records));
        memset(map.records, 0, 0xbe * sizeof(map.records[0]));
        started = now_ns();
        argument_ring_init(&ring, &map);
        now = now_ns();
        while (size > 0) {
                uint8_t which = *data++;

                size--;
                if (which == 0xff) {
                        read_all(&ring, started, now + NSEC_PER_SEC);
                        continue;
                }
                n = which == 0xfe ? 8 : AGENT_ARGUMENT_LINE;
                n = size < n ? size : n;
                if (which == 0xfe)
                        look_for(data, n);
                else
                        memcpy(line(which), data, n);
                if (which >= 0x40 && which < 0xfe)
                        map.records[which - 0x40u].at_ns += now + NSEC_PER_MSEC;
                data += n;
                size -= n;
        }
        read_all(&ring, started, now + NSEC_PER_SEC);
        read_all(&ring, started, now + 3 * NSEC_PER_SEC);
        return 0;
}
