/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
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

/* With --all also the causes that took nothing. */
static bool all_causes;

static void print_causes(const struct gpuobs_losses *l)
{
        struct table *t = table_new(cause_columns);
        size_t left_out = 0;

        for (size_t i = 0; i < l->n_causes; i++) {
                if (!l->causes[i].count && !all_causes) {
                        left_out++;
                        continue;
                }
                table_cell(t, l->causes[i].cause);
                table_cell(t, format_count(l->causes[i].count));
                table_cell(t, l->causes[i].text ? l->causes[i].text : "");
        }
        if (left_out < l->n_causes) {
                putchar('\n');
                table_flush(t);
        }
        if (left_out)
                printf("\nnothing was lost in %s%zu ways that are counted (--all shows them)\n",
                       left_out < l->n_causes ? "the other " : "any of ", left_out);
        table_free(t);
}

static void print_total(const struct gpuobs_losses *l)
{
        printf("%" PRIu64 " launches seen, %" PRIu64 " stored, %" PRIu64 " lost, %" PRIu64
               " on their way\n",
               l->produced, l->stored, l->lost,
               l->produced > l->stored + l->lost ? l->produced - l->stored - l->lost : 0);
        print_causes(l);
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

enum { OPTION_ALL = OPTION_OWN };

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS,
                                                {"pid", required_argument, NULL, OPTION_PID},
                                                {"all", no_argument, NULL, OPTION_ALL},
                                                {0}};
        struct ctl_filter filter = {0};

        while (ctl_option(ctl, self, &filter, argc, argv, options) == OPTION_ALL)
                all_causes = true;
        ctl_no_arguments(self, argc, argv);
        return ctl_list_table(ctl, process_columns, list, &filter);
}

const struct ctl_command command_losses = {
        "losses", "[OPTIONS]", "What was lost on the way, and where.",
        "      --pid PID       only this process in the list\n"
        "      --all           all ways to lose something, also those that took nothing\n\n",
        run};
