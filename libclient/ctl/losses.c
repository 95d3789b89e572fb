/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "ctl.h"
#include "format.h"
#include "json.h"
#include "table.h"

static const struct table_column cause_columns[] = {
        {"CAUSE", 0}, {"COUNT", TABLE_RIGHT}, {"MEANING", TABLE_SHRINK}, {0}};

static const struct table_column process_columns[] = {{"PID", TABLE_RIGHT},
                                                      {"COMMAND", 0},
                                                      {"LAUNCHES", TABLE_RIGHT},
                                                      {"STORED", TABLE_RIGHT},
                                                      {"LOST", TABLE_RIGHT},
                                                      {"WHERE", TABLE_SHRINK},
                                                      {0}};

static void print_total(const struct gpuobs_losses *l)
{
        struct table *t = table_new(cause_columns);

        for (size_t i = 0; i < l->n_causes; i++) {
                table_cell(t, l->causes[i].cause);
                table_cell(t, format_count(l->causes[i].count));
                table_cell(t, l->causes[i].text ? l->causes[i].text : "");
        }
        printf("%" PRIu64 " launches seen, %" PRIu64 " stored, %" PRIu64 " lost, %" PRIu64
               " on their way\n\n",
               l->produced, l->stored, l->lost,
               l->produced > l->stored + l->lost ? l->produced - l->stored - l->lost : 0);
        table_flush(t);
        table_free(t);
}

static void add_process(struct table *t, const struct gpuobs_process_losses *p)
{
        char where[512] = "";
        size_t used = 0;

        for (size_t i = 0; i < p->losses.n_causes && used < sizeof(where); i++)
                used += (size_t)snprintf(where + used, sizeof(where) - used, "%s%s %" PRIu64,
                                         used ? ", " : "", p->losses.causes[i].cause,
                                         p->losses.causes[i].count);
        table_cell(t, format_count(p->pid));
        table_cell(t, p->comm);
        table_cell(t, format_count(p->losses.produced));
        table_cell(t, format_count(p->losses.stored));
        table_cell(t, format_count(p->losses.lost));
        table_cell(t, where);
}

static int list(struct ctl *ctl, struct table *t, const struct ctl_filter *f)
{
        struct gpuobs_losses_params params = {.has_pid = f->has_pid, .pid = f->pid};
        struct gpuobs_losses_report *page;
        bool first = true;
        int r;

        do {
                r = gpuobs_losses_get(ctl->gpuobs, &params, &page);
                if (r < 0)
                        return ctl_failed(ctl, r);
                if (ctl->json)
                        json_print(SCHEMA_OF(losses_report), page);
                else if (first)
                        print_total(&page->losses);
                for (size_t i = 0; i < page->n_processes; i++)
                        add_process(t, &page->processes[i]);
                first = false;
                params.has_cursor = page->has_next_cursor;
                params.cursor = page->next_cursor;
                gpuobs_losses_report_free(page);
        } while (params.has_cursor);
        if (!ctl->json)
                putchar('\n');
        return CTL_OK;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        return ctl_list(ctl, self, argc, argv, process_columns, list);
}

const struct ctl_command command_losses = {
        "losses", "[OPTIONS]", "What was lost on the way, and where.",
        "      --pid PID       only this process in the list\n\n", run};
