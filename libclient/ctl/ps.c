/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "ctl.h"
#include "format.h"
#include "json.h"
#include "table.h"

static const struct table_column columns[] = {
        {"PID", TABLE_RIGHT},
        {"UID", TABLE_RIGHT},
        {"COMMAND", 0},
        {"AGENT", 0},
        {"DEPTH", TABLE_RIGHT},
        {"PENDING", TABLE_RIGHT},
        {"LAUNCHES", TABLE_RIGHT},
        {"STORED", TABLE_RIGHT},
        {"LOST", TABLE_RIGHT},
        {"START", TABLE_RIGHT},
        {"END", TABLE_RIGHT},
        {"KERNELS", TABLE_RIGHT},
        {"CGROUP", TABLE_SHRINK},
        {0},
};

static void add_row(struct table *t, const struct gpuobs_process *p)
{
        table_cell(t, format_count(p->pid));
        table_cell(t, format_count(p->uid));
        table_cell(t, p->alive ? p->comm : format_text("%s (ended)", p->comm));
        table_cell(t, gpuobs_agent_text(p->agent));
        table_cell(t, p->has_depth ? format_count(p->depth) : NULL);
        table_cell(t, format_count(p->pending));
        table_cell(t, format_count(p->losses.produced));
        table_cell(t, format_count(p->losses.stored));
        table_cell(t, format_count(p->losses.lost));
        table_cell(t, format_share(p->kernels_start, p->kernels));
        table_cell(t, format_share(p->kernels_end, p->kernels));
        table_cell(t, format_count(p->kernels));
        table_cell(t, p->cgroup);
}

static void show(struct ctl *ctl, struct table *t, const struct gpuobs_processes *page)
{
        for (size_t i = 0; i < page->n_processes; i++) {
                if (ctl->json)
                        json_print(SCHEMA_OF(process), &page->processes[i]);
                else
                        add_row(t, &page->processes[i]);
        }
}

static int list(struct ctl *ctl, struct table *t, const struct ctl_filter *f)
{
        struct gpuobs_processes_params params = {.has_pid = f->has_pid, .pid = f->pid};
        struct gpuobs_processes *page;
        int r;

        do {
                r = gpuobs_processes_list(ctl->gpuobs, &params, &page);
                if (r < 0)
                        return ctl_failed(ctl, r);
                show(ctl, t, page);
                params.has_cursor = page->has_next_cursor;
                params.cursor = page->next_cursor;
                if (!params.has_cursor)
                        ctl_warn_losses(&page->losses);
                gpuobs_processes_free(page);
        } while (params.has_cursor);
        return CTL_OK;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        return ctl_list(ctl, self, argc, argv, columns, list);
}

const struct ctl_command command_ps = {
        "ps", "[OPTIONS]", "Observed processes: queue depth, agent, launches, losses.",
        "      --pid PID       only this process\n"
        "\n"
        "DEPTH: launches not yet started on the GPU. PENDING: launches waiting for their\n"
        "device records. START, END: share of its KERNELS whose start and end are probed.\n\n",
        run};
