/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl share: who had the GPUs, as a picture and as a table. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "format.h"
#include "json.h"
#include "table.h"
#include "timeline.h"

#define SECOND_NS      1000000000ULL
#define SINCE_DEFAULT  (10 * SECOND_NS)
#define PICTURE_INDENT 14
#define PICTURE_PIPED  80 /* columns when there is no terminal */
#define GPUS_MAX       64
#define PAGE_ROWS      10000

/* ---- who is which letter ---- */

struct person {
        uint32_t pid;
        uint64_t start_ticks;
        char comm[20];
};

/* One picture: an engine of a GPU. */
struct engine {
        uint32_t gpu, mig; /* mig: instances, 0 without MIG */
        struct timeline line;
        uint64_t active[TIMELINE_LETTERS + 2]; /* ns, of the span shown */
};

struct view {
        struct ctl *ctl;
        struct person people[TIMELINE_LETTERS];
        uint32_t people_count;
        struct engine *engines; /* GPUS_MAX */
        uint32_t engine_count;
        uint64_t from_ns, until_ns;
        uint32_t width;
        struct ctl_so_far so_far;
};

static uint32_t letter_of(struct view *v, const struct gpuobs_slice *s)
{
        if (s->unknown)
                return TIMELINE_UNKNOWN;
        if (!s->has_pid)
                return TIMELINE_OTHER;
        for (uint32_t i = 0; i < v->people_count; i++)
                if (v->people[i].pid == s->pid && v->people[i].start_ticks == s->start_ticks)
                        return i;
        if (v->people_count == TIMELINE_LETTERS)
                return TIMELINE_OTHER;
        v->people[v->people_count] = (struct person){.pid = s->pid, .start_ticks = s->start_ticks};
        snprintf(v->people[v->people_count].comm, sizeof(v->people[0].comm), "%s",
                 s->comm ? s->comm : "");
        return v->people_count++;
}

static struct engine *engine_of(struct view *v, const struct gpuobs_slice *s)
{
        uint32_t mig = s->has_mig_gpu ? 1 + (s->mig_gpu << 8 | s->mig_compute) : 0;
        struct engine *e;

        for (uint32_t i = 0; i < v->engine_count; i++)
                if (v->engines[i].gpu == s->gpu && v->engines[i].mig == mig)
                        return &v->engines[i];
        if (v->engine_count == GPUS_MAX)
                return NULL;
        e = &v->engines[v->engine_count++];
        *e = (struct engine){.gpu = s->gpu, .mig = mig};
        timeline_begin(&e->line, v->from_ns, v->until_ns, v->width);
        return e;
}

static void draw_slice(struct view *v, const struct gpuobs_slice *s)
{
        struct engine *e = engine_of(v, s);
        uint64_t from = s->start_ns > v->from_ns ? s->start_ns : v->from_ns;
        uint64_t until = s->end_ns < v->until_ns ? s->end_ns : v->until_ns;
        uint32_t who = letter_of(v, s);

        if (!e || until <= from)
                return;
        timeline_add(&e->line, from, until, who);
        e->active[who] += until - from;
}

/* ---- the picture ---- */

static uint32_t picture_width(void)
{
        struct winsize size;
        uint32_t columns = PICTURE_PIPED;

        if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
                columns = size.ws_col;
        columns = columns > PICTURE_INDENT + 20 ? columns - PICTURE_INDENT : 20;
        return columns < TIMELINE_WIDTH_MAX ? columns : TIMELINE_WIDTH_MAX;
}

static const char *engine_text(const struct engine *e)
{
        if (!e->mig)
                return format_text("GPU %" PRIu32, e->gpu);
        return format_text("GPU %" PRIu32 " %" PRIu32 "/%" PRIu32, e->gpu, (e->mig - 1) >> 8,
                           (e->mig - 1) & 0xff);
}

static void print_pictures(const struct view *v)
{
        char text[TIMELINE_WIDTH_MAX + 1];

        for (uint32_t i = 0; i < v->engine_count; i++) {
                timeline_text(&v->engines[i].line, text);
                printf("%-*s%s\n", PICTURE_INDENT, engine_text(&v->engines[i]), text);
        }
}

static void print_legend(const struct view *v)
{
        for (uint32_t i = 0; i < v->people_count; i++)
                printf("%*s%c  %s/%" PRIu32 "\n", PICTURE_INDENT, "", 'A' + (int)i,
                       v->people[i].comm, v->people[i].pid);
}

static void begin_span(struct view *v, uint64_t from_ns, uint64_t until_ns)
{
        v->from_ns = from_ns;
        v->until_ns = until_ns;
        v->width = picture_width();
        for (uint32_t i = 0; i < v->engine_count; i++) {
                timeline_begin(&v->engines[i].line, from_ns, until_ns, v->width);
                memset(v->engines[i].active, 0, sizeof(v->engines[i].active));
        }
}

/* ---- the table ---- */

static const struct table_column columns[] = {
        {"GPU", TABLE_RIGHT},     {"PROCESS", TABLE_SHRINK},
        {"SHARE", TABLE_RIGHT},   {"ACTIVE", TABLE_RIGHT},
        {"SLICES", TABLE_RIGHT},  {"AVG", TABLE_RIGHT},
        {"LONGEST", TABLE_RIGHT}, {0},
};

/* The engine a row belongs to, for its whole time. */
static uint64_t span_of(const struct gpuobs_shares *r, const struct gpuobs_share *s)
{
        for (size_t i = 0; i < r->n_gpus; i++)
                if (r->gpus[i].gpu == s->gpu && r->gpus[i].has_mig_gpu == s->has_mig_gpu &&
                    r->gpus[i].mig_gpu == s->mig_gpu && r->gpus[i].mig_compute == s->mig_compute)
                        return r->gpus[i].span_ns;
        return 0;
}

static void add_share(struct table *t, const struct gpuobs_shares *r, const struct gpuobs_share *s)
{
        uint64_t n = s->slices ? s->slices : 1;

        table_cell(t, s->has_mig_gpu ? format_text("%" PRIu32 " %" PRIu32 "/%" PRIu32, s->gpu,
                                                   s->mig_gpu, s->mig_compute)
                                     : format_count(s->gpu));
        table_cell(t, s->has_pid ? format_text("%s/%" PRIu32, s->comm ? s->comm : "?", s->pid)
                                 : "(not known)");
        table_cell(t, format_share(s->active_ns, span_of(r, s)));
        table_cell(t, format_duration((int64_t)s->active_ns));
        table_cell(t, format_count(s->slices));
        table_cell(t, format_duration((int64_t)(s->active_ns / n)));
        table_cell(t, s->longest_ns ? format_duration((int64_t)s->longest_ns) : NULL);
}

static void add_rest(struct table *t, const struct gpuobs_gpu_time *g, const char *what,
                     uint64_t ns, uint64_t n)
{
        if (!ns)
                return;
        table_cell(t, g->has_mig_gpu ? format_text("%" PRIu32 " %" PRIu32 "/%" PRIu32, g->gpu,
                                                   g->mig_gpu, g->mig_compute)
                                     : format_count(g->gpu));
        table_cell(t, what);
        table_cell(t, format_share(ns, g->span_ns));
        table_cell(t, format_duration((int64_t)ns));
        table_cell(t, n ? format_count(n) : NULL);
        table_cell(t, n ? format_duration((int64_t)(ns / n)) : NULL);
        table_cell(t, NULL);
}

static void print_table(const struct gpuobs_shares *r)
{
        struct table *t = table_new(columns);

        for (size_t i = 0; i < r->n_shares; i++)
                add_share(t, r, &r->shares[i]);
        for (size_t i = 0; i < r->n_gpus; i++) {
                const struct gpuobs_gpu_time *g = &r->gpus[i];

                add_rest(t, g, "(switching)", g->switch_ns, g->switches);
                add_rest(t, g, "(idle)", g->idle_ns, 0);
                add_rest(t, g, "(unknown)", g->unknown_ns, 0);
        }
        table_flush(t);
        table_free(t);
        for (size_t i = 0; i < r->n_gpus; i++)
                if (r->gpus[i].lost)
                        fprintf(stderr,
                                "gpuobsctl: GPU %" PRIu32 ": %" PRIu64
                                " context switches were lost on the way\n",
                                r->gpus[i].gpu, r->gpus[i].lost);
}

static void print_json(const struct gpuobs_shares *r)
{
        for (size_t i = 0; i < r->n_gpus; i++)
                json_print(SCHEMA_OF(gpu_time), &r->gpus[i]);
        for (size_t i = 0; i < r->n_shares; i++)
                json_print(SCHEMA_OF(share), &r->shares[i]);
}

/* ---- what was ---- */

static int draw(struct view *v, const struct ctl_filter *f)
{
        struct gpuobs_slices_params p = {
                .has_since_ns = true,
                .since_ns = v->from_ns,
                .has_until_ns = true,
                .until_ns = v->until_ns,
                .has_pid = f->has_pid,
                .pid = f->pid,
                .has_gpu = f->has_gpu,
                .gpu = f->gpu,
                .has_limit = true,
                .limit = PAGE_ROWS,
        };
        struct gpuobs_slices *page;
        int r;

        do {
                r = gpuobs_slices_list(v->ctl->gpuobs, &p, &page);
                if (r < 0)
                        return ctl_failed(v->ctl, r);
                for (size_t i = 0; i < page->n_slices; i++)
                        draw_slice(v, &page->slices[i]);
                p.has_cursor = page->has_next_cursor;
                p.cursor = page->next_cursor;
                gpuobs_slices_free(page);
        } while (p.has_cursor);
        print_pictures(v);
        print_legend(v);
        return CTL_OK;
}

static int query(struct view *v, const struct ctl_filter *f)
{
        struct gpuobs_shares_params p = {
                .has_since_ns = true,
                .since_ns = v->from_ns,
                .has_until_ns = true,
                .until_ns = v->until_ns,
                .has_pid = f->has_pid,
                .pid = f->pid,
                .has_gpu = f->has_gpu,
                .gpu = f->gpu,
                .has_limit = f->has_limit,
                .limit = f->limit,
        };
        struct gpuobs_shares *shares;
        int r;

        r = gpuobs_share_query(v->ctl->gpuobs, &p, &shares);
        if (r < 0)
                return ctl_failed(v->ctl, r);
        if (v->ctl->json) {
                print_json(shares);
        } else {
                r = draw(v, f);
                print_table(shares);
        }
        if (shares->n_gpus == 0)
                fprintf(stderr, "gpuobsctl: no context switch of a GPU is known of this time\n");
        if (shares->truncated)
                fprintf(stderr, "gpuobsctl: there may be more rows; see --limit\n");
        gpuobs_shares_free(shares);
        return r;
}

/* ---- as it comes ---- */

static void print_second(struct view *v)
{
        char text[TIMELINE_WIDTH_MAX + 1];

        for (uint32_t i = 0; i < v->engine_count; i++) {
                const struct engine *e = &v->engines[i];

                timeline_text(&e->line, text);
                printf("%.8s %s %s", format_time(v->from_ns), engine_text(e), text);
                for (uint32_t k = 0; k < v->people_count; k++)
                        if (e->active[k])
                                printf(" %c %s/%" PRIu32 " %s", 'A' + (int)k, v->people[k].comm,
                                       v->people[k].pid,
                                       format_share(e->active[k], v->until_ns - v->from_ns));
                putchar('\n');
                v->so_far.shown++;
        }
        fflush(stdout);
}

static void follow_slice(struct view *v, const struct gpuobs_slice *s)
{
        /* Engines come one after the other: a second is over when the next one's slices come. */
        while (s->end_ns > v->until_ns + SECOND_NS / 2) {
                print_second(v);
                begin_span(v, v->until_ns, v->until_ns + SECOND_NS);
        }
        draw_slice(v, s);
}

static void on_batch(void *data, int error, const struct gpuobs_slice_batch *batch)
{
        struct view *v = data;

        if (error) {
                v->so_far.error = error;
                return;
        }
        if (batch->dropped)
                fprintf(stderr, "gpuobsctl: %" PRIu64 " slices not shown: the output is too slow\n",
                        batch->dropped);
        for (size_t i = 0; i < batch->n_slices; i++) {
                if (!v->ctl->json) {
                        follow_slice(v, &batch->slices[i]);
                } else if (ctl_wants_more(&v->so_far)) {
                        json_print(SCHEMA_OF(slice), &batch->slices[i]);
                        v->so_far.shown++;
                }
        }
        fflush(stdout);
}

static int follow(struct view *v, const struct ctl_filter *f)
{
        struct gpuobs_slices_subscribe_params p = {
                .has_pid = f->has_pid, .pid = f->pid, .has_gpu = f->has_gpu, .gpu = f->gpu};
        struct gpuobs *g = v->ctl->gpuobs;
        int r;

        r = gpuobs_slices_subscribe(g, &p, on_batch, v, NULL);
        return ctl_follow(v->ctl, r, &v->so_far);
}

static uint64_t monotonic_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {
                CTL_COMMON_OPTIONS,
                {"since", required_argument, NULL, OPTION_SINCE},
                {"until", required_argument, NULL, OPTION_UNTIL},
                {"pid", required_argument, NULL, OPTION_PID},
                {"gpu", required_argument, NULL, OPTION_GPU},
                {"limit", required_argument, NULL, OPTION_LIMIT},
                {"follow", no_argument, NULL, 'f'},
                {0},
        };
        static struct engine engines[GPUS_MAX];
        struct view v = {.ctl = ctl, .engines = engines};
        struct ctl_filter f = {0};
        bool following = false;
        uint64_t now = monotonic_ns();
        int r;

        while (ctl_option(ctl, self, &f, argc, argv, options) == 'f')
                following = true;
        ctl_no_arguments(self, argc, argv);
        if (following && (f.has_since || f.has_until))
                ctl_usage(self, "--follow shows what is to come: no --since, no --until");
        r = ctl_connect(ctl);
        if (r)
                return r;
        if (following) {
                v.so_far.limit = f.has_limit ? f.limit : 0;
                begin_span(&v, now / SECOND_NS * SECOND_NS, (now / SECOND_NS + 1) * SECOND_NS);
                return follow(&v, &f);
        }
        begin_span(&v, f.has_since ? f.since_ns : now - SINCE_DEFAULT,
                   f.has_until ? f.until_ns : now);
        if (v.until_ns <= v.from_ns)
                ctl_usage(self, "--until is before --since");
        return query(&v, &f);
}

const struct ctl_command command_share = {
        "share", "[OPTIONS]", "Who had the GPUs: a picture of the time and a table of shares.",
        "  -f, --follow        a line a second for each GPU, as it comes\n"
        "      --since AGO     the last AGO: 10s, 500ms, 5m, 1h; default 10s\n"
        "      --until AGO     before AGO\n"
        "      --pid PID       only this process\n"
        "      --gpu N         only this GPU\n"
        "      --limit N       at most N rows, default 1000; with --follow: N lines\n"
        "\n"
        "The picture: a letter for the process that had the GPU for most of the time that\n"
        "the character stands for, \".\" nobody, \"?\" not known; it reaches back as far as\n"
        "slices are kept in memory. A process has the GPU while its context is on it,\n"
        "also with nothing to run: one that is alone keeps it. SHARE: of the time\n"
        "observed.\n\n",
        run};
