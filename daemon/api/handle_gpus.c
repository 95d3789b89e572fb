/* SPDX-License-Identifier: Apache-2.0 */

/* gpus.list: in a worker, because the management library may take its time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/handlers.h"
#include "api/page.h"
#include "driver/nvml.h"
#include "util/macro.h"
#include "util/time.h"

#define REASONS_MAX 160
#define WHY_NOT_MAX 200

struct gpus_query {
        struct nvml *nvml;
        struct nvml_gpu gpus[NVML_GPUS_MAX];
        size_t count;
        int error;
        uint64_t silent_ns;
};

static int run(struct api_call *call, struct store_reader *reader, void *query)
{
        struct gpus_query *q = query;
        int n = q->nvml ? nvml_read(q->nvml, q->gpus, NVML_GPUS_MAX, &q->silent_ns) : -ENOENT;

        q->count = n < 0 ? 0 : (size_t)n;
        q->error = n < 0 ? n : 0;
        return 0;
}

/* NULL: nothing is missing. */
static const char *why_not(const struct gpus_query *q, char buffer[WHY_NOT_MAX])
{
        if (q->silent_ns) {
                snprintf(buffer, WHY_NOT_MAX,
                         "the driver has not answered for %llu s: ask again, and if it stays "
                         "silent see dmesg and reset the GPU or reboot",
                         (unsigned long long)(q->silent_ns / NSEC_PER_SEC));
                return buffer;
        }
        switch (q->error) {
        case 0:
                return NULL;
        case -EAGAIN:
                return "the management library is being opened: ask again in a moment";
        case -ENOENT:
                return "there is no " NVML_LIBRARY " on this machine";
        default:
                return NVML_LIBRARY " does not start: its driver is not loaded, or is another "
                                    "version";
        }
}

static const char *throttle_text(uint64_t reasons, char buffer[REASONS_MAX])
{
        static const struct {
                uint64_t bit;
                const char *text;
        } names[] = {
                {NVML_THROTTLE_SETTING, "setting"},
                {NVML_THROTTLE_POWER_CAP, "power cap"},
                {NVML_THROTTLE_HW_SLOWDOWN, "hardware slowdown"},
                {NVML_THROTTLE_SYNC_BOOST, "sync boost"},
                {NVML_THROTTLE_SW_THERMAL, "software thermal"},
                {NVML_THROTTLE_HW_THERMAL, "hardware thermal"},
                {NVML_THROTTLE_POWER_BRAKE, "power brake"},
                {NVML_THROTTLE_DISPLAY_CLOCK, "display clock"},
                {NVML_THROTTLE_IDLE, "idle"},
        };
        int n = 0;

        buffer[0] = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (reasons & names[i].bit)
                        n += snprintf(buffer + n, REASONS_MAX - (size_t)n, "%s%s", n ? ", " : "",
                                      names[i].text);
        return rows_text(buffer);
}

static void add_gpu(struct wire_buffer *rows, const struct nvml_gpu *g)
{
        char reasons[REASONS_MAX];
        struct gpuobs_gpu_state row = {
                .has_gpu = g->has & NVML_HAS_MINOR,
                .gpu = g->minor,
                .uuid = rows_text(g->uuid),
                .name = rows_text(g->name),
                .has_utilization = g->has & NVML_HAS_UTILIZATION,
                .utilization = g->utilization,
                .has_memory_utilization = g->has & NVML_HAS_UTILIZATION,
                .memory_utilization = g->memory_utilization,
                .has_memory_total = g->has & NVML_HAS_MEMORY,
                .memory_total = g->memory_total,
                .has_memory_used = g->has & NVML_HAS_MEMORY,
                .memory_used = g->memory_used,
                .has_sm_clock = g->has & NVML_HAS_SM_CLOCK,
                .sm_clock = g->sm_clock,
                .has_memory_clock = g->has & NVML_HAS_MEMORY_CLOCK,
                .memory_clock = g->memory_clock,
                .has_power_mw = g->has & NVML_HAS_POWER,
                .power_mw = g->power,
                .has_power_limit_mw = g->has & NVML_HAS_POWER_LIMIT,
                .power_limit_mw = g->power_limit,
                .has_temperature = g->has & NVML_HAS_TEMPERATURE,
                .temperature = g->temperature,
                .has_ecc_corrected = g->has & NVML_HAS_ECC_CORRECTED,
                .ecc_corrected = g->ecc_corrected,
                .has_ecc_uncorrected = g->has & NVML_HAS_ECC_UNCORRECTED,
                .ecc_uncorrected = g->ecc_uncorrected,
                .has_throttle_mask = g->has & NVML_HAS_THROTTLE,
                .throttle_mask = g->throttle,
                .throttle = throttle_text(g->throttle, reasons),
                .xids = g->xid_count,
                .has_last_xid = g->has & NVML_HAS_XID,
                .last_xid = g->xid,
                .has_last_xid_ns = g->has & NVML_HAS_XID,
                .last_xid_ns = g->xid_at_ns,
        };

        rows_add(rows, SCHEMA_OF(gpu_state), &row);
}

static void done(struct api_call *call, void *query)
{
        struct gpus_query *q = query;
        struct wire_buffer buffer = {0};
        struct codec_rows rows = {"gpus", (uint32_t)q->count, &buffer};
        char reason[WHY_NOT_MAX];
        struct gpuobs_gpu_states result = {.reason = why_not(q, reason)};

        for (size_t i = 0; i < q->count; i++)
                add_gpu(&buffer, &q->gpus[i]);
        if (buffer.failed)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, &result, &rows, 1);
        wire_buffer_done(&buffer);
}

static const struct query_ops gpus_ops = {
        .run = run, .done = done, .free = free, .without_reader = true};

void api_handle_gpus_list(struct api_call *call, const struct gpuobs_gpus_params *params)
{
        struct gpus_query *q = calloc(1, sizeof(*q));

        if (!q) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        q->nvml = call->server->backend->nvml(call->server->data);
        query_start(call, &gpus_ops, q);
}
