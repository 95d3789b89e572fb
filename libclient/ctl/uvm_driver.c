/* SPDX-License-Identifier: Apache-2.0 */

/* What the managed-memory driver decides, from the probes inside it. */
#include <inttypes.h>
#include <stdio.h>

#include "format.h"
#include "json.h"
#include "table.h"
#include "uvm.h"

static const struct table_column point_columns[] = {
        {"POINT", 0},
        {"FUNCTION", 0},
        {"BY", 0},
        {"CALLS", TABLE_RIGHT},
        {"FAILED", TABLE_RIGHT},
        {"MEAN", TABLE_RIGHT},
        {"LONGEST", TABLE_RIGHT},
        {"REMARK", TABLE_SHRINK},
        {0},
};

static const struct table_column gpu_columns[] = {
        {"GPU", 0},
        {"BATCHES", TABLE_RIGHT},
        {"FAULTS", TABLE_RIGHT},
        {"DISTINCT", TABLE_RIGHT},
        {"DUPLICATE", TABLE_RIGHT},
        {"LARGEST", TABLE_RIGHT},
        {"MEAN", TABLE_RIGHT},
        {"LONGEST", TABLE_RIGHT},
        {"BLOCKS EVICTED", TABLE_RIGHT},
        {0},
};

static const struct table_column process_columns[] = {
        {"PID", TABLE_RIGHT},     {"COMMAND", TABLE_SHRINK},
        {"ASKED", TABLE_RIGHT},   {"BROUGHT", TABLE_RIGHT},
        {"SIZE", TABLE_RIGHT},    {"EVICTED", TABLE_RIGHT},
        {"MOVED FOR", 0},         {"TIMES", TABLE_RIGHT},
        {"LONGEST", TABLE_RIGHT}, {0},
};

static const struct table_column decision_columns[] = {
        {"TIME", 0},
        {"POINT", 0},
        {"TOOK", TABLE_RIGHT},
        {"PID", TABLE_RIGHT},
        {"ADDRESS", TABLE_RIGHT},
        {"SIZE", TABLE_RIGHT},
        {"TO", TABLE_RIGHT},
        {"WHY", 0},
        {"WHAT", TABLE_SHRINK},
        {0},
};

#define PAGE_BYTES 4096

static const char *mean(uint64_t total_ns, uint64_t count)
{
        return count ? format_duration((int64_t)(total_ns / count)) : NULL;
}

/* ---- sums ---- */

static void add_point(struct table *t, const struct gpuobs_uvm_point_info *p)
{
        table_cell(t, gpuobs_uvm_point_text(p->point));
        table_cell(t, p->function);
        table_cell(t, p->has_form ? gpuobs_uvm_form_text(p->form) : NULL);
        table_cell(t, format_count(p->count));
        table_cell(t, format_count(p->failed));
        table_cell(t, mean(p->total_ns, p->count));
        table_cell(t, format_known_duration(p->count, (int64_t)p->max_ns));
        table_cell(t, p->reason                    ? p->reason
                      : p->probed && !p->arguments ? "counts and times alone: no BTF of it"
                                                   : "");
}

static void add_gpu(struct table *t, const struct gpuobs_uvm_driver_gpu *g)
{
        table_cell(t, g->uuid);
        table_cell(t, format_count(g->batches));
        table_cell(t, format_count(g->faults));
        table_cell(t, format_count(g->distinct));
        table_cell(t, format_count(g->duplicates));
        table_cell(t, format_count(g->largest));
        table_cell(t, mean(g->total_ns, g->batches));
        table_cell(t, format_known_duration(g->batches, (int64_t)g->max_ns));
        table_cell(t, format_count(g->evicted));
}

/* A line for each reason that memory was moved for; the rest is said in the first. */
static void add_process(struct table *t, const struct gpuobs_uvm_driver_process *p)
{
        for (size_t i = 0; i < p->n_moves || i == 0; i++) {
                const struct gpuobs_uvm_reason_count *m = i < p->n_moves ? &p->moves[i] : NULL;

                table_cell(t, i ? "" : p->has_pid ? format_count(p->pid) : NULL);
                table_cell(t, i ? "" : p->comm);
                table_cell(t, i ? "" : format_count(p->decisions));
                table_cell(t, i ? "" : format_count(p->chosen));
                table_cell(t, i ? "" : format_bytes(p->pages * PAGE_BYTES));
                table_cell(t, i ? "" : format_count(p->evicted));
                table_cell(t, m ? gpuobs_uvm_reason_text(m->reason) : NULL);
                table_cell(t, m ? format_count(m->count) : NULL);
                table_cell(t, m ? format_duration((int64_t)m->max_ns) : NULL);
        }
}

static void print_picks(const struct gpuobs_uvm_driver *d)
{
        if (!d->n_picks)
                return;
        printf("GPU memory emptied for:");
        for (size_t i = 0; i < d->n_picks; i++)
                printf(" %s %" PRIu64, gpuobs_uvm_reason_text(d->picks[i].reason),
                       d->picks[i].count);
        printf("; holding:");
        for (size_t i = 0; i < d->n_chunks; i++)
                printf(" %s %" PRIu64, gpuobs_uvm_chunk_text(d->chunks[i].chunk),
                       d->chunks[i].count);
        printf("\n");
}

static void print_driver(const struct gpuobs_uvm_driver *d)
{
        struct table *points = table_new(point_columns), *gpus = table_new(gpu_columns),
                     *processes = table_new(process_columns);

        for (size_t i = 0; i < d->n_points; i++)
                add_point(points, &d->points[i]);
        for (size_t i = 0; i < d->n_gpus; i++)
                add_gpu(gpus, &d->gpus[i]);
        for (size_t i = 0; i < d->n_processes; i++)
                add_process(processes, &d->processes[i]);
        if (d->probed)
                table_flush(points);
        if (d->n_gpus)
                table_flush(gpus);
        print_picks(d);
        if (d->n_processes)
                table_flush(processes);
        table_free(points);
        table_free(gpus);
        table_free(processes);
        if (d->struct_ops)
                printf("the driver offers struct_ops: %s\n", d->struct_ops);
}

static void say_why_unseen(const struct gpuobs_uvm_driver *d)
{
        if (d->reason)
                fprintf(stderr, "gpuobsctl: the driver's decisions are not seen: %s\n", d->reason);
}

int uvm_show_driver(struct ctl *ctl, const struct ctl_filter *f)
{
        const struct gpuobs_uvm_driver_params params = {.has_pid = f->has_pid, .pid = f->pid};
        struct gpuobs_uvm_driver *d;
        int r = gpuobs_uvm_driver_get(ctl->gpuobs, &params, &d);

        if (r < 0)
                return ctl_failed(ctl, r);
        if (ctl->json)
                json_print(SCHEMA_OF(uvm_driver), d);
        else
                print_driver(d);
        fflush(stdout);
        say_why_unseen(d);
        if (d->lost)
                fprintf(stderr, "gpuobsctl: %" PRIu64 " events were lost\n", d->lost);
        gpuobs_uvm_driver_free(d);
        return CTL_OK;
}

/* ---- one by one ---- */

static const char *what(const struct gpuobs_uvm_decision *d)
{
        if (d->has_status)
                return format_text("status 0x%" PRIx32, d->status);
        if (d->has_faults)
                return format_text("batch %" PRIu32 ": %" PRIu32 " faults, %" PRIu32
                                   " distinct, %" PRIu32 " duplicate",
                                   d->batch, d->faults, d->distinct, d->duplicates);
        if (d->has_pages && d->has_pages_address)
                return format_text("brings %" PRIu32 " pages from 0x%" PRIx64 " to 0x%" PRIx64,
                                   d->pages, d->pages_address, d->pages_address + d->pages_bytes);
        if (d->has_pages)
                return "brings nothing";
        if (d->has_chunk)
                return format_text("%s at 0x%" PRIx64, gpuobs_uvm_chunk_text(d->chunk),
                                   d->physical);
        return "";
}

static const char *where_to(const struct gpuobs_uvm_decision *d)
{
        if (!d->has_processor)
                return NULL;
        return d->processor ? format_text("gpu#%" PRIu32, d->processor) : "cpu";
}

static void add_decision(struct table *t, const struct gpuobs_uvm_decision *d)
{
        table_cell(t, format_time(d->at_ns));
        table_cell(t, gpuobs_uvm_point_text(d->point));
        table_cell(t, format_duration((int64_t)d->duration_ns));
        table_cell(t, d->has_pid ? format_count(d->pid) : NULL);
        table_cell(t, d->has_address ? format_text("0x%" PRIx64, d->address) : NULL);
        table_cell(t, d->has_bytes ? format_bytes(d->bytes) : NULL);
        table_cell(t, where_to(d));
        table_cell(t, d->has_reason ? gpuobs_uvm_reason_text(d->reason) : NULL);
        table_cell(t, what(d));
}

static uint64_t show_page(struct ctl *ctl, struct table *t, const struct gpuobs_uvm_decisions *page,
                          uint64_t left)
{
        size_t n = page->n_decisions < left ? page->n_decisions : left;

        for (size_t i = 0; i < n; i++) {
                if (ctl->json)
                        json_print(SCHEMA_OF(uvm_decision), &page->decisions[i]);
                else
                        add_decision(t, &page->decisions[i]);
        }
        if (!ctl->json && n)
                table_flush(t);
        return n;
}

/* There are none to show: perhaps because none can be seen. */
static int explain_none(struct ctl *ctl)
{
        struct gpuobs_uvm_driver *d;
        int r = gpuobs_uvm_driver_get(ctl->gpuobs, NULL, &d);

        if (r < 0)
                return r;
        say_why_unseen(d);
        gpuobs_uvm_driver_free(d);
        return 0;
}

int uvm_show_decisions(struct ctl *ctl, const struct ctl_filter *f)
{
        struct gpuobs_uvm_decisions_params params = {.has_pid = f->has_pid, .pid = f->pid};
        uint64_t left = f->has_limit && f->limit ? f->limit : UINT64_MAX;
        struct table *t = table_new(decision_columns);
        struct gpuobs_uvm_decisions *page;
        bool more = true, any = false;
        int r = 0;

        while (more && left) {
                r = gpuobs_uvm_decisions_list(ctl->gpuobs, &params, &page);
                if (r < 0)
                        break;
                any = any || page->n_decisions;
                left -= show_page(ctl, t, page, left);
                more = page->more;
                params.has_cursor = true;
                params.cursor = page->next_cursor;
                gpuobs_uvm_decisions_free(page);
        }
        table_free(t);
        if (r == 0 && !any)
                r = explain_none(ctl);
        return r < 0 ? ctl_failed(ctl, r) : CTL_OK;
}
