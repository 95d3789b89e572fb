/* SPDX-License-Identifier: Apache-2.0 */

/*
 * probes.log: the ring that a process's device programs print to is read by its agent, and
 * made into text here, with the formats of the object. Nothing is kept between calls: the
 * client says which message it wants next.
 */
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "api/internal.h"
#include "api/map_records.h"
#include "api/probe_rows.h"
#include "device/device_abi.h"
#include "device/event_ring.h"
#include "device/message.h"
#include "device/program.h"

#define ERROR_BYTES 600
#define TEXT_BYTES  512
#define NUMBER_MAX  (UINT64_C(1) << 62)

struct log_call {
        struct api_call *call;
        const struct gpuobs_probe_log_params *p; /* in the call's arena */
        uint32_t pid;
};

/* Messages as they come out of the ring. */
struct reading {
        struct log_call *l;
        const struct device_object *object;
        struct event_ring *ring;
        struct gpuobs_probe_message *rows;
        size_t count;
        uint64_t broken;
};

/* ---- the object ---- */

static const struct device_object *find_object(struct api_call *call, const char *name)
{
        struct api_probe probe;

        return probe_find(call, name, &probe) ? probe.object : NULL;
}

static const struct device_map_info *print_map(const struct device_object *o)
{
        int map = device_object_print_map(o);

        return map >= 0 ? device_object_map(o, (size_t)map) : NULL;
}

/* ---- messages ---- */

/* A record that is no message of the object's is counted: a process can write anything there. */
static void add_record(void *data, const void *bytes, size_t size)
{
        size_t head = offsetof(struct device_print, arguments);
        struct reading *r = data;
        struct gpuobs_probe_message *row = &r->rows[r->count];
        const struct device_print *print = bytes;
        struct api_server *s = r->l->call->server;
        char *text = codec_arena_alloc(&r->l->call->arena, TEXT_BYTES);
        struct api_gpu_moment moment;

        if (!text || size < head || size % 8 ||
            messages_print(device_object_messages(r->object), print->message, print->arguments,
                           (size - head) / 8, text, TEXT_BYTES) < 0) {
                r->broken++;
                return;
        }
        s->backend->gpu_moment(s->data, r->l->pid, DEVICE_PRINT_CONTEXT(print), print->time_ns,
                               print->kernel_id, &moment);
        *row = (struct gpuobs_probe_message){.number = event_ring_position(r->ring) - 1,
                                             .gpu_ns = print->time_ns,
                                             .gridid = DEVICE_PRINT_GRIDID(print),
                                             .kernel_id = print->kernel_id,
                                             .text = text,
                                             .has_time_ns = moment.has_time,
                                             .time_ns = moment.time_ns,
                                             .has_time_error_ns = moment.has_time,
                                             .time_error_ns = moment.error_ns,
                                             .kernel = moment.kernel};
        r->count++;
}

static void answer(struct log_call *l, struct reading *r, const struct api_map_reading *reading,
                   size_t limit)
{
        struct gpuobs_probe_log result = {.pid = l->pid};
        struct device_event_head head;
        struct event_ring_losses losses;

        r->rows = codec_arena_alloc(&l->call->arena, (limit + 1) * sizeof(*r->rows));
        if (!r->rows) {
                api_call_fail(l->call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        map_records_read(r->ring, reading, limit, add_record, r);
        event_ring_get_losses(r->ring, &losses);
        memcpy(&head, reading->bytes, sizeof(head));
        result.messages = r->rows;
        result.n_messages = r->count;
        result.lost = losses.overrun + losses.torn + r->broken;
        result.suppressed = head.suppressed;
        result.next = event_ring_position(r->ring);
        api_call_reply(l->call, &result, NULL, 0);
}

static void on_read(void *data, int error, struct api_map_reading *reading)
{
        struct log_call *l = data;
        struct reading r = {.l = l, .object = find_object(l->call, l->p->name)};
        const struct device_map_info *map = r.object ? print_map(r.object) : NULL;

        if (error < 0 || !map || reading->size != map->bytes)
                api_call_fail(
                        l->call, GPUOBS_ERROR_BAD_PARAMS, NULL,
                        "the agent of the process did not read the messages, or the object is "
                        "gone");
        else if (event_ring_new(map, l->p->has_from ? l->p->from : 0, &r.ring) < 0)
                api_call_fail(l->call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                answer(l, &r, reading, l->p->has_limit ? l->p->limit : GPUOBS_ROWS_MAX);
        event_ring_free(r.ring);
        free(l);
}

/* ---- the call ---- */

static const char *check(struct api_call *call, const struct gpuobs_probe_log_params *p,
                         const char **ret_why)
{
        const struct device_object *o = find_object(call, p->name);

        *ret_why = "is from 1 to 10000";
        if (p->has_limit && (!p->limit || p->limit > GPUOBS_ROWS_MAX))
                return "limit";
        *ret_why = "is no number of a message";
        if (p->has_from && p->from >= NUMBER_MAX)
                return "from";
        *ret_why = "is not loaded";
        if (!o)
                return "name";
        *ret_why = "prints no messages";
        return print_map(o) ? NULL : "name";
}

void api_handle_probes_log(struct api_call *call, const struct gpuobs_probe_log_params *p)
{
        struct api_map_request request = {.probe = p->name, .pid = p->has_pid ? p->pid : 0};
        struct api_server *s = call->server;
        char error[ERROR_BYTES] = "";
        const char *why, *wrong = check(call, p, &why);
        struct log_call *l;

        if (wrong) {
                api_call_fail_param(call, wrong, why);
                return;
        }
        l = calloc(1, sizeof(*l));
        if (!l) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        *l = (struct log_call){.call = call, .p = p};
        request.map = print_map(find_object(call, p->name))->name;
        if (s->backend->map_read(s->data, &request, on_read, l, &l->pid, error, sizeof(error)) <
            0) {
                api_call_fail(call, GPUOBS_ERROR_BAD_PARAMS, NULL, error);
                free(l);
        }
}
