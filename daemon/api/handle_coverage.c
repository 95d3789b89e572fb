/* SPDX-License-Identifier: Apache-2.0 */

/*
 * coverage.list: processes, their images, their kernels, page by page. The
 * cursor names the last row: "process_key.image_id.kernel_id", kernel_id 0
 * being the image's own row.
 */
#include <inttypes.h>
#include <stdio.h>

#include "api/handlers.h"
#include "api/page.h"

struct cursor {
        uint64_t process_key;
        uint32_t image_id;
        uint32_t kernel_id;
};

struct walk {
        struct api_call *call;
        const struct gpuobs_coverage_params *params;
        struct page page; /* counts both; holds the kernels' rows */
        struct wire_buffer images;
        uint32_t image_count;
        struct cursor from; /* the page before ended here */
        struct cursor last; /* the last row of this one */
        const struct process_info *process;
        char comm[17];
};

/* Whether the walk is at a row that an earlier page already had. */
static bool had_process(const struct walk *w)
{
        return w->process->process_key == w->from.process_key;
}

static bool no_room(struct walk *w)
{
        if (w->page.rows.size + w->images.size >= API_PAGE_BYTES)
                w->page.more = true;
        return w->page.more || page_full(&w->page);
}

static int visit_kernel(void *data, const struct api_kernel *k)
{
        struct walk *w = data;
        struct gpuobs_covered row = {
                .pid = w->process->pid,
                .start_ticks = w->process->start_ticks,
                .image_id = w->last.image_id,
                .kernel_id = k->kernel_id,
                .kernel = k->name,
                .start = k->start,
                .end = k->end,
                .has_accesses_probed = k->has_accesses,
                .accesses_probed = k->accesses_probed,
                .has_accesses = k->has_accesses,
                .accesses = k->accesses,
                .reason = rows_text(k->reason),
        };

        if (no_room(w))
                return 1;
        rows_add(&w->page.rows, SCHEMA_OF(covered), &row);
        w->page.count++;
        w->last.kernel_id = k->kernel_id;
        return 0;
}

static void add_image(struct walk *w, const struct api_image *image)
{
        struct gpuobs_image row = {
                .pid = w->process->pid,
                .start_ticks = w->process->start_ticks,
                .comm = w->comm,
                .image_id = image->image_id,
                .rewritten = image->rewritten,
                .ptx = image->ptx,
                .handle = image->handle,
                .bytes = image->bytes,
                .kernels = image->kernels,
                .rewrite_us = image->rewrite_us,
                .reason = rows_text(image->reason),
        };

        rows_add(&w->images, SCHEMA_OF(image), &row);
        w->image_count++;
        w->page.count++;
}

static int visit_image(void *data, const struct api_image *image)
{
        struct walk *w = data;
        struct api_server *s = w->call->server;
        bool had = had_process(w) && image->image_id == w->from.image_id;

        if (no_room(w))
                return 1;
        if (!had)
                add_image(w, image);
        w->last = (struct cursor){w->process->process_key, image->image_id,
                                  had ? w->from.kernel_id : 0};
        if (!w->params->has_kernels || w->params->kernels)
                s->backend->kernels(s->data, w->process->process_key, image->image_id,
                                    w->last.kernel_id, visit_kernel, w);
        return w->page.more;
}

static int visit_process(void *data, const struct api_process *p)
{
        struct walk *w = data;
        struct api_server *s = w->call->server;

        if (!api_call_sees(w->call, p->info) ||
            (w->params->has_pid && p->info->pid != w->params->pid))
                return 0;
        w->process = p->info;
        snprintf(w->comm, sizeof(w->comm), "%.16s", p->info->comm);
        s->backend->images(s->data, p->info->process_key,
                           had_process(w) && w->from.image_id ? w->from.image_id - 1 : 0,
                           visit_image, w);
        return w->page.more;
}

static bool parse_cursor(const char *text, struct cursor *ret_cursor)
{
        struct cursor c;
        char after;

        if (sscanf(text, "%" SCNu64 ".%" SCNu32 ".%" SCNu32 "%c", &c.process_key, &c.image_id,
                   &c.kernel_id, &after) != 3 ||
            c.process_key == 0)
                return false;
        *ret_cursor = c;
        return true;
}

static void reply(struct walk *w)
{
        struct codec_rows rows[] = {
                {"images", w->image_count, &w->images},
                {"kernels", w->page.count - w->image_count, &w->page.rows},
        };
        struct gpuobs_coverage result = {0};
        char cursor[48];

        if (w->page.more) {
                snprintf(cursor, sizeof(cursor), "%" PRIu64 ".%" PRIu32 ".%" PRIu32,
                         w->last.process_key, w->last.image_id, w->last.kernel_id);
                result.next_cursor = cursor;
        }
        if (w->images.failed || w->page.rows.failed ||
            rows_losses(w->call->server, api_call_uid(w->call), false, &w->call->arena,
                        &result.losses) < 0)
                api_call_fail(w->call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(w->call, &result, rows, 2);
}

void api_handle_coverage_list(struct api_call *call, const struct gpuobs_coverage_params *params)
{
        struct walk w = {.call = call, .params = params};
        struct api_server *s = call->server;

        if (params->cursor && !parse_cursor(params->cursor, &w.from)) {
                api_call_fail_param(call, "cursor", "is not one that an answer gave");
                return;
        }
        if (!page_init(&w.page, call, params->has_limit, params->limit))
                return;
        w.last = w.from;
        s->backend->processes(s->data, w.from.process_key ? w.from.process_key - 1 : 0,
                              visit_process, &w);
        reply(&w);
        wire_buffer_done(&w.images);
        page_done(&w.page);
}
