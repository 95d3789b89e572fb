/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The reader of rings over memory that a process has filled with anything: records are
 * no larger than the ring says, and reading comes to an end.
 *
 * Input: commands. 0xff reads all there is; 0xfe lets time pass; any other is a slot, to
 * be overwritten by the bytes after it; from 0x80 on its check word is then set right
 * for a record of a number near the reader's position (the last byte of the slot).
 */
#include <linux/bpf.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/event_ring.h"
#include "unit/test.h"

#define SLOT_BYTES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct device_map_info map = {
        .placement = GPUOBS_PLACE_HOST,
        .type = BPF_MAP_TYPE_RINGBUF,
        .max_entries = 16 * SLOT_BYTES,
        .record_bytes = 44,
};

static void record(void *data, const void *bytes, size_t size)
{
        uint8_t copy[GPUOBS_RECORD_MAX];

        CHECK(size > 0 && size <= map.record_bytes);
        memcpy(copy, bytes, size);
        ++*(size_t *)data;
}

/* The slot becomes a whole record of a number near `position`. */
static void seal(uint64_t *slot, uint64_t position)
{
        uint64_t number = position + (uint64_t)(int8_t)(slot[7] >> 56), sum;

        slot[1] %= 48;
        sum = slot[1];
        for (uint64_t i = 0; 8 * i < slot[1]; i++)
                sum = sum * DEVICE_EVENT_MIX + slot[2 + i];
        slot[0] = (number + 1) ^ sum;
}

static void read_all(struct event_ring *ring, const void *memory, uint64_t now_ns)
{
        uint64_t before = event_ring_position(ring);
        struct event_ring_losses old, new;
        size_t seen = 0, taken;

        event_ring_get_losses(ring, &old);
        taken = event_ring_read(ring, memory, now_ns, 1000, record, &seen);
        event_ring_get_losses(ring, &new);
        CHECK_EQ(taken, seen);
        CHECK(new.overrun >= old.overrun &&new.torn >= old.torn);
        CHECK_EQ(event_ring_position(ring) - before,
                 taken + new.overrun - old.overrun + new.torn - old.torn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        uint64_t memory[16][SLOT_BYTES / 8] = {}, now_ns = 1;
        struct event_ring *ring;

        CHECK_EQ(device_ring_slot_bytes(&map), SLOT_BYTES);
        CHECK_EQ(event_ring_new(&map, 0, &ring), 0);
        while (size) {
                uint8_t command = *data;
                size_t left = size - 1 < SLOT_BYTES ? size - 1 : SLOT_BYTES;

                data++;
                size--;
                if (command == 0xff) {
                        read_all(ring, memory, now_ns);
                } else if (command == 0xfe) {
                        now_ns += 25000000;
                } else {
                        memcpy(memory[command % 16], data, left);
                        if (command >= 0x80)
                                seal(memory[command % 16], event_ring_position(ring));
                        data += left;
                        size -= left;
                }
        }
        read_all(ring, memory, now_ns);
        event_ring_free(ring);
        return 0;
}
