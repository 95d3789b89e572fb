/* SPDX-License-Identifier: Apache-2.0 */

/* doctor.get: what works, as the daemon has found it. */
#include "api/handlers.h"
#include "api/internal.h"
#include "api/rows.h"

struct list {
        struct wire_buffer rows;
        uint32_t count;
};

static void add(void *data, const struct api_check *check)
{
        struct list *list = data;
        struct gpuobs_check row = {
                .name = check->name,
                .state = check->state,
                .finding = check->finding,
                .advice = check->advice,
        };

        rows_add(&list->rows, SCHEMA_OF(check), &row);
        list->count++;
}

void api_handle_doctor_get(struct api_call *call, const struct gpuobs_doctor_params *params)
{
        struct api_server *s = call->server;
        struct gpuobs_doctor result = {0};
        struct list list = {0};
        struct codec_rows rows;

        (void)params;
        s->backend->doctor(s->data, add, &list);
        rows = (struct codec_rows){"checks", list.count, &list.rows};
        if (list.rows.failed)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, &result, &rows, 1);
        wire_buffer_done(&list.rows);
}
