/* SPDX-License-Identifier: Apache-2.0 */

/*
 * driver.calls and driver.groups: processes, then what each did with the driver,
 * page by page. The cursor names the last row: "process_key.index".
 */
#include <inttypes.h>
#include <stdio.h>

#include "api/handlers.h"
#include "api/page.h"
#include "driver/call_names.h"
#include "driver/driver_abi.h"

struct walk {
        struct api_call *call;
        struct page page;
        bool has_pid;
        uint32_t pid;
        uint64_t from_process, last_process; /* where the page before ended, and this one */
        uint64_t from_index, last_index;     /* rows of that process that were given out */
        const struct api_process *process;
        uint64_t index; /* of the row in the process */
        char comm[17];
        char cursor[48];
        void (*rows)(struct walk *w);
};

/* Whether the row at w->index is to be added; w->page.more: no, and the page ends. */
static bool wants(struct walk *w)
{
        uint64_t at = w->index++;

        if (w->process->info->process_key == w->from_process && at < w->from_index)
                return false;
        if (page_full(&w->page))
                return false;
        w->page.count++;
        w->last_process = w->process->info->process_key;
        w->last_index = w->index;
        return true;
}

static int visit(void *data, const struct api_process *p)
{
        struct walk *w = data;

        if (!p->calls || !api_call_sees(w->call, p->info) || (w->has_pid && p->info->pid != w->pid))
                return 0;
        w->process = p;
        w->index = 0;
        snprintf(w->comm, sizeof(w->comm), "%.16s", p->info->comm);
        w->rows(w);
        return w->page.more;
}

/* False: the call has been failed. */
static bool begin(struct walk *w, const char *cursor, bool has_limit, uint32_t limit)
{
        char after;

        if (cursor && sscanf(cursor, "%" SCNu64 ".%" SCNu64 "%c", &w->from_process, &w->from_index,
                             &after) != 2) {
                api_call_fail_param(w->call, "cursor", "is not one that an answer gave");
                return false;
        }
        if (!page_init(&w->page, w->call, has_limit, limit))
                return false;
        w->last_process = w->from_process;
        w->last_index = w->from_index;
        return true;
}

/* The cursor of the next page, NULL when this is the last. */
static const char *walk(struct walk *w)
{
        struct api_server *s = w->call->server;

        s->backend->processes(s->data, w->from_process ? w->from_process - 1 : 0, visit, w);
        if (!w->page.more)
                return NULL;
        snprintf(w->cursor, sizeof(w->cursor), "%" PRIu64 ".%" PRIu64, w->last_process,
                 w->last_index);
        return w->cursor;
}

/* ---- driver.calls ---- */

static void add_call(struct walk *w, const struct call_stat *s)
{
        bool has_what = s->device == DRIVER_DEVICE_RM &&
                        (s->request == DRIVER_RM_ALLOC || s->request == DRIVER_RM_CONTROL);
        struct gpuobs_driver_call row = {
                .pid = w->process->info->pid,
                .start_ticks = w->process->info->start_ticks,
                .comm = w->comm,
                .device = call_device_name(s->device),
                .request = s->request,
                .request_name = call_request_name(s->device, s->request),
                .has_what = has_what,
                .what = s->what,
                .what_name = has_what ? call_what_name(s->what) : NULL,
                .count = s->count,
                .errors = s->errors,
                .total_ns = s->total_ns,
                .max_ns = s->max_ns,
                .has_last_status = s->last_status,
                .last_status = s->last_status,
                .has_last_errno = s->last_errno,
                .last_errno = (uint32_t)s->last_errno,
        };

        rows_add(&w->page.rows, SCHEMA_OF(driver_call), &row);
}

static void add_calls(struct walk *w)
{
        const struct calls *calls = w->process->calls;

        for (size_t i = 0; i < calls_stat_count(calls) && !w->page.more; i++)
                if (calls_stat(calls, i)->count && wants(w))
                        add_call(w, calls_stat(calls, i));
}

void api_handle_driver_calls_list(struct api_call *call,
                                  const struct gpuobs_driver_calls_params *params)
{
        struct walk w = {
                .call = call, .has_pid = params->has_pid, .pid = params->pid, .rows = add_calls};
        struct gpuobs_driver_calls result = {0};

        if (!begin(&w, params->cursor, params->has_limit, params->limit))
                return;
        result.next_cursor = walk(&w);
        page_reply(call, &w.page, "calls", &result, &result.losses, false);
        page_done(&w.page);
}

/* ---- driver.groups ---- */

static int add_group(void *data, const struct call_group *g)
{
        struct walk *w = data;
        struct api_server *s = w->call->server;
        struct gpuobs_channel_group row = {
                .pid = w->process->info->pid,
                .start_ticks = w->process->info->start_ticks,
                .comm = w->comm,
                .fd = (uint32_t)g->fd,
                .client = g->client,
                .object = g->object,
                .has_engine = g->has_engine,
                .engine = g->engine,
                .channels = g->channels,
                .has_created_ns = g->created_ns != 0,
                .created_ns = g->created_ns,
        };

        if (!wants(w))
                return w->page.more;
        row.has_time_slice_us =
                s->backend->time_slice(s->data, w->process->info, g, &row.time_slice_us);
        row.has_gpu =
                g->has_instance && s->backend->gpu_of_instance(s->data, g->instance, &row.gpu);
        rows_add(&w->page.rows, SCHEMA_OF(channel_group), &row);
        return 0;
}

static void add_groups(struct walk *w)
{
        if (w->process->alive)
                calls_groups(w->process->calls, add_group, w);
}

void api_handle_driver_groups_list(struct api_call *call,
                                   const struct gpuobs_channel_groups_params *params)
{
        struct walk w = {
                .call = call, .has_pid = params->has_pid, .pid = params->pid, .rows = add_groups};
        struct gpuobs_channel_groups result = {0};

        if (!begin(&w, params->cursor, params->has_limit, params->limit))
                return;
        result.next_cursor = walk(&w);
        page_reply(call, &w.page, "groups", &result, &result.losses, false);
        page_done(&w.page);
}
