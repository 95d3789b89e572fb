/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl calls, gpuobsctl groups: what processes do with the NVIDIA driver. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "format.h"
#include "json.h"
#include "table.h"

/* ---- calls ---- */

static const struct table_column call_columns[] = {
        {"PROCESS", 0},          {"CALL", 0},
        {"OF", TABLE_SHRINK},    {"COUNT", TABLE_RIGHT},
        {"ERRORS", TABLE_RIGHT}, {"TOTAL", TABLE_RIGHT},
        {"AVG", TABLE_RIGHT},    {"MAX", TABLE_RIGHT},
        {"LAST-ERROR", 0},       {0},
};

static const char *call_text(const struct gpuobs_driver_call *c)
{
        if (c->request_name)
                return format_text("%s %s", c->device, c->request_name);
        return strcmp(c->device, "other") ? format_text("%s 0x%" PRIx32, c->device, c->request)
                                          : c->device;
}

static const char *what_text(const struct gpuobs_driver_call *c)
{
        if (c->what_name)
                return c->what_name;
        return c->has_what ? format_text("0x%" PRIx32, c->what) : NULL;
}

static const char *error_text(const struct gpuobs_driver_call *c)
{
        if (c->has_last_status)
                return format_text("status 0x%" PRIx32, c->last_status);
        return c->has_last_errno ? strerror((int)c->last_errno) : NULL;
}

static void add_call(struct table *t, const struct gpuobs_driver_call *c)
{
        table_cell(t, format_text("%s/%" PRIu32, c->comm, c->pid));
        table_cell(t, call_text(c));
        table_cell(t, what_text(c));
        table_cell(t, format_count(c->count));
        table_cell(t, format_count(c->errors));
        table_cell(t, format_duration((int64_t)c->total_ns));
        table_cell(t, format_duration((int64_t)(c->count ? c->total_ns / c->count : 0)));
        table_cell(t, format_duration((int64_t)c->max_ns));
        table_cell(t, error_text(c));
}

/* The next page's cursor must outlive the page that it came with. */
static const char *keep_cursor(char *buffer, size_t size, const char *cursor)
{
        if (!cursor)
                return NULL;
        snprintf(buffer, size, "%s", cursor);
        return buffer;
}

static int show_calls(struct ctl *ctl, struct table *t, const struct ctl_filter *f)
{
        struct gpuobs_driver_calls_params p = {.has_pid = f->has_pid, .pid = f->pid};
        struct gpuobs_driver_calls *page;
        char cursor[64];
        int r;

        do {
                r = gpuobs_driver_calls_list(ctl->gpuobs, &p, &page);
                if (r < 0)
                        return ctl_failed(ctl, r);
                for (size_t i = 0; i < page->n_calls; i++) {
                        if (ctl->json)
                                json_print(SCHEMA_OF(driver_call), &page->calls[i]);
                        else
                                add_call(t, &page->calls[i]);
                }
                p.cursor = keep_cursor(cursor, sizeof(cursor), page->next_cursor);
                gpuobs_driver_calls_free(page);
        } while (p.cursor);
        return CTL_OK;
}

static int run_calls(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        return ctl_list(ctl, self, argc, argv, call_columns, show_calls);
}

const struct ctl_command command_calls = {
        "calls", "[OPTIONS]", "Calls of the NVIDIA driver per process: counts, errors, times.",
        "      --pid PID       only this process\n"
        "\n"
        "CALL: device file and request. OF: what is allocated or controlled. Numbers\n"
        "stand for what has no name here.\n\n",
        run_calls};

/* ---- groups ---- */

static const struct table_column group_columns[] = {
        {"PROCESS", 0},
        {"GPU", TABLE_RIGHT},
        {"ENGINE", 0},
        {"CHANNELS", TABLE_RIGHT},
        {"SLICE", TABLE_RIGHT},
        {"FD", TABLE_RIGHT},
        {"CLIENT", TABLE_RIGHT},
        {"GROUP", TABLE_RIGHT},
        {"MADE", 0},
        {0},
};

/* NV2080_ENGINE_TYPE: 1 to 8 are graphics and compute engines, then copy engines. */
static const char *engine_text(const struct gpuobs_channel_group *g)
{
        if (!g->has_engine)
                return NULL;
        if (g->engine >= 1 && g->engine <= 8)
                return "compute";
        return g->engine <= 18 ? "copy" : format_text("%" PRIu32, g->engine);
}

static void add_group(struct table *t, const struct gpuobs_channel_group *g)
{
        table_cell(t, format_text("%s/%" PRIu32, g->comm, g->pid));
        table_cell(t, g->has_gpu ? format_count(g->gpu) : NULL);
        table_cell(t, engine_text(g));
        table_cell(t, format_count(g->channels));
        table_cell(t,
                   g->has_time_slice_us ? format_duration((int64_t)g->time_slice_us * 1000) : NULL);
        table_cell(t, format_count(g->fd));
        table_cell(t, format_text("0x%" PRIx32, g->client));
        table_cell(t, format_text("0x%" PRIx32, g->object));
        table_cell(t, g->has_created_ns ? format_time(g->created_ns) : NULL);
}

static int show_groups(struct ctl *ctl, struct table *t, const struct ctl_filter *f)
{
        struct gpuobs_channel_groups_params p = {.has_pid = f->has_pid, .pid = f->pid};
        struct gpuobs_channel_groups *page;
        char cursor[64];
        int r;

        do {
                r = gpuobs_driver_groups_list(ctl->gpuobs, &p, &page);
                if (r < 0)
                        return ctl_failed(ctl, r);
                for (size_t i = 0; i < page->n_groups; i++) {
                        if (ctl->json)
                                json_print(SCHEMA_OF(channel_group), &page->groups[i]);
                        else
                                add_group(t, &page->groups[i]);
                }
                p.cursor = keep_cursor(cursor, sizeof(cursor), page->next_cursor);
                gpuobs_channel_groups_free(page);
        } while (p.cursor);
        return CTL_OK;
}

static int run_groups(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        return ctl_list(ctl, self, argc, argv, group_columns, show_groups);
}

const struct ctl_command command_groups = {
        "groups", "[OPTIONS]", "Channel groups: what the GPU schedules, per process.",
        "      --pid PID       only this process\n"
        "\n"
        "SLICE: the time slice it has now. FD, CLIENT and GROUP name the group to the\n"
        "driver. Of groups that were made before the daemon started those that kernels\n"
        "run in are found, once a policy is loaded.\n\n",
        run_groups};
