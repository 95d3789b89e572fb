/* SPDX-License-Identifier: Apache-2.0 */

/* What happened to managed memory before, from the database. */
#include <stdint.h>

#include "format.h"
#include "json.h"
#include "table.h"
#include "uvm.h"

static const struct table_column columns[] = {
        {"TIME", 0},
        {"PID", TABLE_RIGHT},
        {"COMMAND", TABLE_SHRINK},
        {"SECONDS", TABLE_RIGHT},
        {"EVENTS", TABLE_RIGHT},
        {"DROPPED", TABLE_RIGHT},
        {"GPU FAULTS", TABLE_RIGHT},
        {"CPU", TABLE_RIGHT},
        {"TO GPU", TABLE_RIGHT},
        {"TO CPU", TABLE_RIGHT},
        {"EVICTED", TABLE_RIGHT},
        {"THRASHING", TABLE_RIGHT},
        {0},
};

static void add_step(struct table *t, const struct gpuobs_uvm_past *p)
{
        table_cell(t, format_time(p->start_ns));
        table_cell(t, format_count(p->pid));
        table_cell(t, p->comm);
        table_cell(t, format_count(p->seconds));
        table_cell(t, format_count(p->events));
        table_cell(t, format_count(p->dropped));
        table_cell(t, format_count(p->counts.gpu_faults));
        table_cell(t, format_count(p->counts.cpu_faults));
        table_cell(t, format_bytes(p->counts.bytes_to_gpu));
        table_cell(t, format_bytes(p->counts.bytes_to_cpu));
        table_cell(t, format_bytes(p->counts.bytes_evicted));
        table_cell(t, format_count(p->counts.thrashing));
}

static uint64_t show_page(struct ctl *ctl, struct table *t, const struct gpuobs_uvm_history *page,
                          uint64_t left)
{
        size_t n = page->n_steps < left ? page->n_steps : left;

        for (size_t i = 0; i < n; i++) {
                if (ctl->json)
                        json_print(SCHEMA_OF(uvm_past), &page->steps[i]);
                else
                        add_step(t, &page->steps[i]);
        }
        if (!ctl->json)
                table_flush(t);
        return n;
}

int uvm_show_history(struct ctl *ctl, const struct ctl_filter *f, uint32_t step_s)
{
        struct gpuobs_uvm_history_params params = {
                .has_since_ns = f->has_since,
                .since_ns = f->since_ns,
                .has_until_ns = f->has_until,
                .until_ns = f->until_ns,
                .has_pid = f->has_pid,
                .pid = f->pid,
                .has_step_s = step_s,
                .step_s = step_s,
        };
        uint64_t left = f->has_limit && f->limit ? f->limit : UINT64_MAX;
        struct table *t = table_new(columns);
        struct gpuobs_uvm_history *page;
        bool more = true;
        int r = 0;

        while (more && left) {
                r = gpuobs_uvm_history(ctl->gpuobs, &params, &page);
                if (r < 0)
                        break;
                left -= show_page(ctl, t, page, left);
                more = page->has_next_cursor;
                params.has_cursor = more;
                params.cursor = page->next_cursor;
                gpuobs_uvm_history_free(page);
        }
        table_free(t);
        return r < 0 ? ctl_failed(ctl, r) : CTL_OK;
}
