/* SPDX-License-Identifier: Apache-2.0 */

/* Streams of events of managed memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/handlers.h"
#include "api/internal.h"
#include "api/rows.h"
#include "util/macro.h"

_Static_assert((int)UVM_KIND_EVICTION == (int)GPUOBS_UVM_KIND_EVICTION, "kind");
_Static_assert((int)UVM_KIND_THRASHING == (int)GPUOBS_UVM_KIND_THRASHING, "kind");
_Static_assert((int)UVM_ACCESS_PREFETCH == (int)GPUOBS_UVM_ACCESS_PREFETCH, "access");
_Static_assert((int)UVM_MIGRATED_ACCESS_COUNTERS == (int)GPUOBS_UVM_CAUSE_ACCESS_COUNTERS, "cause");

struct uvm_stream {
        struct stream base;
        bool has_pid, has_kind;
        uint32_t pid;
        uint8_t kind;
        uint64_t address, end; /* of the range; end 0: up to the last address */
};

static struct uvm_stream *uvm_stream_of(struct stream *st)
{
        return container_of(st, struct uvm_stream, base);
}

/* Whether an event with a size touches the range. Events without an address are in none. */
static bool in_range(const struct uvm_stream *st, const struct uvm_event *e)
{
        if (st->address == 0 && st->end == 0)
                return true;
        if (e->address == 0)
                return false;
        return e->address + (e->bytes ? e->bytes : 1) > st->address &&
               (st->end == 0 || e->address < st->end);
}

static bool wants(const struct uvm_stream *st, const struct api_uvm_event *e)
{
        if (st->base.uid != API_ANY_UID && st->base.uid != e->process->uid)
                return false;
        if (st->has_pid && st->pid != e->process->pid)
                return false;
        if (st->has_kind && st->kind != e->event.kind)
                return false;
        return in_range(st, &e->event);
}

/* ---- rows ---- */

struct processor_text {
        char text[16];
};

static const char *processor_text(int32_t processor, struct processor_text *t)
{
        if (processor == API_UVM_CPU)
                return "cpu";
        if (processor == API_UVM_UNKNOWN)
                return NULL;
        snprintf(t->text, sizeof(t->text), "gpu%d", (int)processor);
        return t->text;
}

static enum gpuobs_uvm_cause cause_of(const struct uvm_event *e)
{
        static const enum gpuobs_uvm_cause mapped[UVM_MAPPED_COUNT] = {
                [UVM_MAPPED_UNKNOWN] = GPUOBS_UVM_CAUSE_UNKNOWN,
                [UVM_MAPPED_COHERENCE] = GPUOBS_UVM_CAUSE_COHERENCE,
                [UVM_MAPPED_THRASHING] = GPUOBS_UVM_CAUSE_THRASHING,
                [UVM_MAPPED_POLICY] = GPUOBS_UVM_CAUSE_POLICY,
                [UVM_MAPPED_OUT_OF_MEMORY] = GPUOBS_UVM_CAUSE_OUT_OF_MEMORY,
                [UVM_MAPPED_EVICTION] = GPUOBS_UVM_CAUSE_EVICTION,
        };

        return e->kind == UVM_KIND_MAP_REMOTE ? mapped[e->cause] : (enum gpuobs_uvm_cause)e->cause;
}

/* What a kind has beyond time and place. */
static bool has_source(uint8_t kind)
{
        return kind != UVM_KIND_FAULT_BUFFER_OVERFLOW && kind != UVM_KIND_THRASHING &&
               kind != UVM_KIND_READ_DUPLICATE && kind != UVM_KIND_READ_DUPLICATE_END;
}

static bool has_target(uint8_t kind)
{
        return kind == UVM_KIND_MIGRATION || kind == UVM_KIND_EVICTION ||
               kind == UVM_KIND_MAP_REMOTE || kind == UVM_KIND_READ_DUPLICATE_END;
}

static void add_row(struct wire_buffer *rows, const struct api_uvm_event *e)
{
        const struct uvm_event *v = &e->event;
        bool gpu_fault = v->kind == UVM_KIND_GPU_FAULT, cpu_fault = v->kind == UVM_KIND_CPU_FAULT;
        struct processor_text source, target;
        struct gpuobs_uvm_event row = {
                .pid = e->process->pid,
                .start_ticks = e->process->start_ticks,
                .kind = (enum gpuobs_uvm_kind)v->kind,
                .has_at_ns = e->when.at_ns,
                .at_ns = e->when.at_ns,
                .has_end_ns = e->when.end_ns,
                .end_ns = e->when.end_ns,
                .has_clock_error_ns = e->when.at_ns || e->when.end_ns,
                .clock_error_ns = e->when.error_ns,
                .has_address = v->address,
                .address = v->address,
                .has_bytes = v->bytes,
                .bytes = v->bytes,
                .has_allocation = e->allocation,
                .allocation = e->allocation,
                .has_access = gpu_fault || cpu_fault || v->kind == UVM_KIND_FATAL_FAULT,
                .access = (enum gpuobs_uvm_access)v->access,
                .has_cause = v->kind == UVM_KIND_MIGRATION || v->kind == UVM_KIND_MAP_REMOTE,
                .source = has_source(v->kind) ? processor_text(e->source, &source) : NULL,
                .target = has_target(v->kind) ? processor_text(e->target, &target) : NULL,
                .has_client = gpu_fault,
                .client = v->client,
                .has_gpc = gpu_fault && !v->client_hub,
                .gpc = v->gpc,
                .has_batch = gpu_fault || v->kind == UVM_KIND_REPLAY,
                .batch = v->batch,
                .has_tid = cpu_fault,
                .tid = v->tid,
                .has_needed_by = v->kind == UVM_KIND_EVICTION,
                .needed_by = v->address_in,
                .has_processors =
                        v->kind == UVM_KIND_THRASHING || v->kind == UVM_KIND_READ_DUPLICATE,
                .processors = v->processors,
        };

        if (row.has_cause)
                row.cause = cause_of(v);
        rows_add(rows, SCHEMA_OF(uvm_event), &row);
}

/* ---- sending ---- */

static int encode_batch(struct stream *st, const struct wire_buffer *rows, uint32_t count,
                        bool more, struct wire_buffer *frame)
{
        struct codec_rows list = {"events", count, rows};
        struct gpuobs_uvm_batch batch = {.dropped = st->dropped};
        struct codec_arena arena = {0};
        int r;

        batch.has_losses = stream_losses(st, more, &arena, &batch.losses);
        r = codec_result_encode(frame, st->id, more, SCHEMA_OF(uvm_batch), &batch, &list, 1);
        codec_arena_done(&arena);
        return r;
}

static void free_stream(struct stream *st)
{
        free(uvm_stream_of(st));
}

static bool wants_item(struct stream *st, const void *events, size_t i)
{
        return wants(uvm_stream_of(st), (const struct api_uvm_event *)events + i);
}

static void add_item(struct stream *st, struct wire_buffer *rows, const void *events, size_t i)
{
        (void)st;
        add_row(rows, (const struct api_uvm_event *)events + i);
}

static uint64_t process_key(const void *events, size_t i)
{
        return ((const struct api_uvm_event *)events)[i].process->process_key;
}

static const struct stream_kind uvm_kind = {.encode = encode_batch,
                                            .free = free_stream,
                                            .wants = wants_item,
                                            .add = add_item,
                                            .process_key = process_key};

void api_server_publish_uvm(struct api_server *s, const struct api_uvm_event *events, size_t n)
{
        stream_publish(s, &uvm_kind, events, n);
}

bool api_server_has_uvm_subscribers(const struct api_server *s)
{
        return stream_any(s, &uvm_kind);
}

void api_handle_uvm_subscribe(struct api_call *call, const struct gpuobs_uvm_subscribe_params *p)
{
        struct uvm_stream *st;
        uint64_t address = p->has_address ? p->address : 0;

        if (p->has_bytes && (p->bytes == 0 || p->bytes > UINT64_MAX - address)) {
                api_call_fail_param(call, "bytes", "makes no range of addresses");
                return;
        }
        st = calloc(1, sizeof(*st));
        if (!st) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        *st = (struct uvm_stream){
                .base.kind = &uvm_kind,
                .has_pid = p->has_pid,
                .pid = p->pid,
                .has_kind = p->has_kind,
                .kind = (uint8_t)p->kind,
                .address = address,
                .end = p->has_bytes ? address + p->bytes : 0,
        };
        stream_begin(call, &st->base);
}
