/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "ctl.h"
#include "demangle.h"
#include "format.h"
#include "json.h"
#include "table.h"

static const struct table_column image_columns[] = {
        {"PID", TABLE_RIGHT},  {"COMMAND", 0},           {"IMAGE", TABLE_RIGHT},
        {"LOADED", 0},         {"KERNELS", TABLE_RIGHT}, {"SIZE", TABLE_RIGHT},
        {"TIME", TABLE_RIGHT}, {"REASON", TABLE_SHRINK}, {0},
};

static const struct table_column kernel_columns[] = {
        {"PID", TABLE_RIGHT},      {"IMAGE", TABLE_RIGHT},   {"START", 0},  {"END", 0},
        {"ACCESSES", TABLE_RIGHT}, {"KERNEL", TABLE_SHRINK}, {"REASON", 0}, {0},
};

/* How many kernels have a reason for not being fully probed. */
struct reason {
        uint64_t count;
        UT_hash_handle hh;
        char text[];
};

struct view {
        struct ctl *ctl;
        bool kernels; /* list kernels rather than images */
        struct table *table;
        struct reason *reasons;
        uint64_t images, rewritten, kernel_count, start, end;
        uint64_t accesses_probed, accesses;
};

/* ---- counting ---- */

static void count_reason(struct view *v, const char *text)
{
        struct reason *r;

        HASH_FIND(hh, v->reasons, text, strlen(text), r);
        if (!r) {
                r = calloc(1, sizeof(*r) + strlen(text) + 1);
                if (!r)
                        return;
                memcpy(r->text, text, strlen(text));
                HASH_ADD_KEYPTR(hh, v->reasons, r->text, strlen(text), r);
        }
        r->count++;
}

static int by_count(const struct reason *a, const struct reason *b)
{
        return a->count < b->count ? 1 : a->count > b->count ? -1 : 0;
}

static void print_summary(struct view *v)
{
        struct reason *r, *next;

        printf("\n%" PRIu64 " images, %" PRIu64 " rewritten; %" PRIu64 " kernels, start probed %s, "
               "end probed %s\n",
               v->images, v->rewritten, v->kernel_count, format_share(v->start, v->kernel_count),
               format_share(v->end, v->kernel_count));
        if (v->accesses)
                printf("%" PRIu64 " of %" PRIu64 " instructions that access memory are probed\n",
                       v->accesses_probed, v->accesses);
        HASH_SORT(v->reasons, by_count);
        HASH_ITER (hh, v->reasons, r, next) {
                printf("%8" PRIu64 "  %s\n", r->count, r->text);
        }
}

static void free_reasons(struct view *v)
{
        struct reason *r, *next;

        HASH_ITER (hh, v->reasons, r, next) {
                HASH_DEL(v->reasons, r);
                free(r);
        }
}

/* ---- rows ---- */

static void show_image(struct view *v, const struct gpuobs_image *i)
{
        v->images++;
        v->rewritten += i->rewritten;
        if (v->kernels)
                return;
        if (v->ctl->json) {
                json_print(SCHEMA_OF(image), i);
                return;
        }
        table_cell(v->table, format_count(i->pid));
        table_cell(v->table, i->comm);
        table_cell(v->table, format_count(i->image_id));
        table_cell(v->table, i->rewritten ? i->ptx ? "ptx" : "sass" : "original");
        table_cell(v->table, format_count(i->kernels));
        table_cell(v->table, format_bytes(i->bytes));
        table_cell(v->table, format_duration((int64_t)i->rewrite_us * 1000));
        table_cell(v->table, i->reason ? i->reason : "");
}

/* Of kernels that a program for accesses of memory was to be in. */
static const char *format_accesses(const struct gpuobs_covered *k)
{
        static char text[32];

        if (!k->has_accesses)
                return "";
        snprintf(text, sizeof(text), "%" PRIu32 " of %" PRIu32, k->accesses_probed, k->accesses);
        return text;
}

static void show_kernel(struct view *v, const struct gpuobs_covered *k)
{
        v->kernel_count++;
        v->start += k->start != GPUOBS_HOW_NONE;
        v->end += k->end != GPUOBS_HOW_NONE;
        v->accesses_probed += k->has_accesses ? k->accesses_probed : 0;
        v->accesses += k->has_accesses ? k->accesses : 0;
        if (k->reason)
                count_reason(v, k->reason);
        if (!v->kernels)
                return;
        if (v->ctl->json) {
                json_print(SCHEMA_OF(covered), k);
                return;
        }
        table_cell(v->table, format_count(k->pid));
        table_cell(v->table, format_count(k->image_id));
        table_cell(v->table, gpuobs_how_text(k->start));
        table_cell(v->table, gpuobs_how_text(k->end));
        table_cell(v->table, format_accesses(k));
        table_cell(v->table, demangle(k->kernel));
        table_cell(v->table, k->reason ? k->reason : "");
}

static int list(struct view *v, struct gpuobs_coverage_params *params)
{
        struct gpuobs_coverage *page = NULL, *before;
        int r;

        do {
                before = page; /* the cursor lives in the page before */
                r = gpuobs_coverage_list(v->ctl->gpuobs, params, &page);
                gpuobs_coverage_free(before);
                if (r < 0)
                        return ctl_failed(v->ctl, r);
                for (size_t i = 0; i < page->n_images; i++)
                        show_image(v, &page->images[i]);
                for (size_t i = 0; i < page->n_kernels; i++)
                        show_kernel(v, &page->kernels[i]);
                params->cursor = page->next_cursor;
        } while (params->cursor);
        gpuobs_coverage_free(page);
        return CTL_OK;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS,
                                                {"pid", required_argument, NULL, OPTION_PID},
                                                {"kernels", no_argument, NULL, 'k'},
                                                {0}};
        struct gpuobs_coverage_params params = {.has_limit = true, .limit = 10000};
        struct ctl_filter filter = {0};
        struct view v = {.ctl = ctl};
        int r;

        while (ctl_option(ctl, self, &filter, argc, argv, options) == 'k')
                v.kernels = true;
        ctl_no_arguments(self, argc, argv);
        params.has_pid = filter.has_pid;
        params.pid = filter.pid;
        r = ctl_connect(ctl);
        if (r)
                return r;
        v.table = table_new(v.kernels ? kernel_columns : image_columns);
        r = list(&v, &params);
        if (r == CTL_OK && !ctl->json) {
                table_flush(v.table);
                print_summary(&v);
        }
        free_reasons(&v);
        table_free(v.table);
        return r;
}

const struct ctl_command command_coverage = {
        "coverage", "[OPTIONS]", "GPU images and kernels: how each is probed, or why not.",
        "      --pid PID       only this process\n"
        "      --kernels       a line per kernel instead of per image\n\n",
        run};
