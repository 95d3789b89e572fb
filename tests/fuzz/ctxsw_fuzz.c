/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A context-switch buffer with anything in it, down to the sums of time: reading
 * ends, and every second adds up.
 *
 * Input: commands of 33 bytes. The first byte: 0xff read all there is, 0xfe the
 * header is overwritten by the 32 bytes that follow, any other a record of them
 * is written and the driver's position moved on. The clock of the GPU is
 * CLOCK_MONOTONIC of the model; the present is 100 s.
 */
#include <errno.h>

#include "correlate/slices.h"
#include "driver/ctxsw_ring.h"
#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENTRIES 16
#define COMMAND (1 + CTXSW_RECORD_BYTES)
#define NOW_NS  (100 * SLICES_SECOND_NS)

static _Alignas(8) uint8_t header[CTXSW_HEADER_BYTES];
static _Alignas(8) uint8_t records[ENTRIES * CTXSW_RECORD_BYTES];
static uint64_t end_ns;

static void on_slice(void *data, const struct slice *s)
{
        CHECK(s->since_ns <= s->start_ns && s->start_ns <= s->end_ns);
        CHECK(s->end_ns <= NOW_NS + SLICES_SECOND_NS);
        CHECK(s->end_ns - s->start_ns <= SLICES_SECOND_NS);
}

static void on_second(void *data, const struct slices_second *s)
{
        uint64_t active = 0;

        CHECK(s->span_ns && s->span_ns <= SLICES_SECOND_NS);
        CHECK_EQ(s->span_ns, s->active_ns + s->switch_ns + s->idle_ns + s->unknown_ns);
        for (uint32_t i = 0; i < s->count; i++)
                active += s->shares[i].active_ns;
        CHECK_EQ(active, s->active_ns);
        if (s->start_ns + s->span_ns > end_ns)
                end_ns = s->start_ns + s->span_ns;
}

static void on_event(void *data, const struct ctxsw_event *e)
{
        slices_event(data, e, NOW_NS);
}

static void on_gap(void *data, uint64_t lost)
{
        slices_gap(data, lost);
}

static void run(struct ctxsw_ring *ring, struct slices *slices, const uint8_t *data, size_t size)
{
        static const struct ctxsw_ops ops = {.event = on_event, .gap = on_gap};
        uint32_t put;

        for (; size >= COMMAND; data += COMMAND, size -= COMMAND) {
                if (data[0] == 0xff) {
                        int n = ctxsw_ring_read(ring, &ops, slices);

                        CHECK(n == -EIO || (n >= 0 && n < ENTRIES));
                        CHECK(ring->get < ENTRIES);
                } else if (data[0] == 0xfe) {
                        memcpy(header, data + 1, sizeof(header));
                } else {
                        memcpy(&put, header + 4, sizeof(put));
                        put %= ENTRIES;
                        memcpy(records + put * CTXSW_RECORD_BYTES, data + 1, CTXSW_RECORD_BYTES);
                        put = (put + 1) % ENTRIES;
                        memcpy(header + 4, &put, sizeof(put));
                }
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct slices_ops ops = {on_slice, on_second};
        struct clock_model *clock = clock_model_new(1, NULL);
        struct clock_sample s = {.raw_before_ns = 90 * SLICES_SECOND_NS,
                                 .raw_after_ns = 90 * SLICES_SECOND_NS + 2,
                                 .gpu_ns = 90 * SLICES_SECOND_NS + 1};
        struct ctxsw_ring ring;
        struct slices *slices;

        CHECK_EQ(clock_model_add(clock, &s), 0);
        memset(header, 0, sizeof(header));
        memset(records, 0, sizeof(records));
        end_ns = 0;
        ctxsw_ring_init(&ring, header, records, ENTRIES);
        slices = slices_new(clock, &ops, NULL, 90 * SLICES_SECOND_NS);
        run(&ring, slices, data, size);
        slices_finish(slices, NOW_NS);
        CHECK(end_ns <= NOW_NS + SLICES_SECOND_NS);
        slices_free(slices);
        clock_model_free(clock);
        return 0;
}
