/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/ctxsw_ring.h"

#include <errno.h>
#include <string.h>

/* NV_EVENT_BUFFER_HEADER: get at 0, count at 8, vardata at 24 are of no use here. */
#define HEADER_PUT     4
#define HEADER_DROPPED 16

/* The record: type and subtype, offset of more data, then the switch itself. */
#define RECORD_TYPE        0
#define RECORD_TAG         8
#define RECORD_SEQUENCE    10
#define RECORD_CONTEXT     12
#define RECORD_PID         16
#define RECORD_MIG_GPU     22
#define RECORD_MIG_COMPUTE 23
#define RECORD_TIME        24

#define TYPE_CONTEXT_SWITCH 2 /* NV_EVENT_BUFFER_RECORD_TYPE_FECS_CTX_SWITCH_V2 */

/* NV_EVENT_BUFFER_FECS_CTXSWTAG_*: which ones come depends on what we may see. */
#define TAG_SAVE_END      0x03
#define TAG_CONTEXT_START 0x05
#define TAG_SIMPLE_START  0x06
#define TAG_SIMPLE_END    0x07
#define TAG_ENGINE_RESET  0xfe

/* Sequence numbers have 16 bits: a gap of this many cannot be seen in them. */
#define SEQUENCES 65536

static uint16_t get16(const uint8_t *p)
{
        uint16_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

static uint32_t get32(const uint8_t *p)
{
        uint32_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

static uint64_t get64(const uint8_t *p)
{
        uint64_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

static bool kind_of(uint8_t tag, enum ctxsw_kind *ret_kind)
{
        switch (tag) {
        case TAG_CONTEXT_START:
        case TAG_SIMPLE_START:
                *ret_kind = CTXSW_START;
                return true;
        case TAG_SAVE_END:
        case TAG_SIMPLE_END:
                *ret_kind = CTXSW_END;
                return true;
        case TAG_ENGINE_RESET:
                *ret_kind = CTXSW_RESET;
                return true;
        default:
                return false;
        }
}

bool ctxsw_decode(const uint8_t bytes[CTXSW_RECORD_BYTES], struct ctxsw_event *ret_event,
                  uint16_t *ret_sequence)
{
        *ret_sequence = get16(bytes + RECORD_SEQUENCE);
        *ret_event = (struct ctxsw_event){
                .gpu_ns = get64(bytes + RECORD_TIME),
                .pid = get32(bytes + RECORD_PID),
                .context_id = get32(bytes + RECORD_CONTEXT),
                .mig_gpu = bytes[RECORD_MIG_GPU],
                .mig_compute = bytes[RECORD_MIG_COMPUTE],
        };
        return get16(bytes + RECORD_TYPE) == TYPE_CONTEXT_SWITCH &&
               kind_of(bytes[RECORD_TAG], &ret_event->kind);
}

void ctxsw_ring_init(struct ctxsw_ring *r, const volatile void *header,
                     const volatile void *records, uint32_t entries)
{
        *r = (struct ctxsw_ring){.header = header, .records = records, .entries = entries};
}

/* Copied before it is looked at: the kernel may write it at any time. */
static void copy(uint8_t *to, const volatile uint8_t *from, size_t size)
{
        for (size_t i = 0; i < size; i += 8)
                *(uint64_t *)(void *)(to + i) = *(const volatile uint64_t *)(from + i);
}

static void take(struct ctxsw_ring *r, const struct ctxsw_ops *ops, void *data)
{
        _Alignas(8) uint8_t bytes[CTXSW_RECORD_BYTES];
        struct ctxsw_event e;
        uint16_t sequence, missing;
        bool known;

        copy(bytes, r->records + (size_t)r->get * CTXSW_RECORD_BYTES, sizeof(bytes));
        if (ops->raw)
                ops->raw(data, bytes);
        known = ctxsw_decode(bytes, &e, &sequence);
        if (get16(bytes + RECORD_TYPE) != TYPE_CONTEXT_SWITCH) {
                r->garbage++; /* not even its sequence number is one */
                return;
        }
        missing = r->begun ? (uint16_t)(sequence - r->sequence - 1) : 0;
        if (missing)
                ops->gap(data, missing);
        r->begun = true;
        r->sequence = sequence;
        if (known)
                ops->event(data, &e);
        else
                r->garbage++;
}

int ctxsw_ring_read(struct ctxsw_ring *r, const struct ctxsw_ops *ops, void *data)
{
        const volatile uint32_t *put_word = (const volatile uint32_t *)(r->header + HEADER_PUT);
        uint32_t put = __atomic_load_n(put_word, __ATOMIC_ACQUIRE);
        uint64_t dropped = *(const volatile uint64_t *)(r->header + HEADER_DROPPED);
        int n = 0;

        if (put >= r->entries)
                return -EIO;
        /* The driver counts since it was last told our position; the rest shows in the sequence. */
        if (dropped >= SEQUENCES)
                ops->gap(data, dropped / SEQUENCES * SEQUENCES);
        while (r->get != put) {
                take(r, ops, data);
                r->get = (r->get + 1) % r->entries;
                n++;
        }
        return n;
}
