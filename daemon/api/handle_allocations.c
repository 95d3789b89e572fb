/* SPDX-License-Identifier: Apache-2.0 */

/* allocations.list: live allocations of a process, by address, page by page. */
#include "api/handlers.h"
#include "api/page.h"

#define ROW_BYTES 64 /* of an allocation in a frame, about */

/* The live process of a pid that the caller may see. */
struct sought {
        struct api_call *call;
        uint32_t pid;
        uint64_t key; /* 0: there is none */
};

static int visit_process(void *data, const struct api_process *p)
{
        struct sought *s = data;

        if (p->alive && p->info->pid == s->pid && api_call_sees(s->call, p->info))
                s->key = p->info->process_key;
        return s->key != 0;
}

struct walk {
        struct gpuobs_allocations result;
        struct gpuobs_allocation *rows;
        size_t room;
};

static int visit_allocation(void *data, const struct api_allocation *a)
{
        struct walk *w = data;

        if (w->result.n_allocations == w->room) {
                w->result.has_next = true;
                w->result.next = a->address;
                return 1;
        }
        w->rows[w->result.n_allocations++] = (struct gpuobs_allocation){
                .address = a->address, .bytes = a->bytes, .kind = a->kind, .since_ns = a->since_ns};
        return 0;
}

void api_handle_allocations_list(struct api_call *call, const struct gpuobs_allocations_params *p)
{
        struct api_server *s = call->server;
        struct sought sought = {.call = call, .pid = p->pid};
        struct walk w = {.room = p->has_limit ? p->limit : API_PAGE_BYTES / ROW_BYTES};

        if (p->has_limit && (!p->limit || p->limit > GPUOBS_ROWS_MAX)) {
                api_call_fail_param(call, "limit", "is from 1 to 10000");
                return;
        }
        if (w.room > API_PAGE_BYTES / ROW_BYTES)
                w.room = API_PAGE_BYTES / ROW_BYTES;
        s->backend->processes(s->data, 0, visit_process, &sought);
        if (!sought.key) {
                api_call_fail_param(call, "pid", "is of no process that is observed");
                return;
        }
        w.rows = codec_arena_alloc(&call->arena, w.room * sizeof(*w.rows));
        if (!w.rows) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        s->backend->allocations(s->data, sought.key, p->has_from ? p->from : 0, visit_allocation,
                                &w, &w.result.unlisted);
        w.result.pid = p->pid;
        w.result.allocations = w.rows;
        api_call_reply(call, &w.result, NULL, 0);
}
