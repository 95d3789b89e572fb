/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl view: what the programs that come with gpuobsd have counted, as pictures. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl.h"
#include "need.h"
#include "view.h"

#define SECOND_NS     1000000000ULL
#define WAIT_DEFAULT  (2 * SECOND_NS)
#define LIMIT_DEFAULT 20
#define MAP_BYTES_MAX (256u << 20)
#define PAGE_ROWS     10000

enum { OPTION_FOR = OPTION_OWN };

/* Elements of a map, those that are not all zero, each copy for itself. */
struct elements {
        uint8_t *bytes;
        size_t size; /* of one */
        size_t count, room;
        bool by_copy; /* the element of copy n is number n; else in the order they come */
};

/* Names of the kernels of a process. */
struct names {
        char **at; /* by kernel id */
        size_t count;
};

struct request {
        struct ctl *ctl;
        struct view_options options;
        struct ctl_filter filter;
        uint64_t wait_ns;
        uint32_t pid; /* of the process that was read */
        struct names names;
        struct view_allocations allocations;
};

typedef void render_fn(struct request *r, const struct elements *e, uint64_t without_place);

static void render_sm(struct request *r, const struct elements *e, uint64_t without_place)
{
        view_sm(&r->options, (const struct sm_balance *)e->bytes, e->count);
}

static void render_blocks(struct request *r, const struct elements *e, uint64_t without_place)
{
        view_blocks(&r->options, (const struct block_time *)e->bytes, e->count, without_place);
}

static void render_lanes(struct request *r, const struct elements *e, uint64_t without_place)
{
        view_lanes(&r->options, (const struct warp_lanes *)e->bytes, e->count);
}

static void render_heat(struct request *r, const struct elements *e, uint64_t without_place)
{
        view_heat(&r->options, (const struct mem_heat *)e->bytes, e->count, &r->allocations,
                  without_place);
}

static void render_bytes(struct request *r, const struct elements *e, uint64_t without_place)
{
        view_bytes(&r->options, (const struct mem_bytes *)e->bytes, e->count, without_place);
}

static const struct view {
        const char *name, *probe, *map;
        size_t size;
        bool by_copy, counts_lost, has_names, has_allocations;
        render_fn *render;
} views[] = {
        {"sm", "sm_balance", "multiprocessors", sizeof(struct sm_balance), true, false, false,
         false, render_sm},
        {"blocks", "block_time", "kernels", sizeof(struct block_time), false, true, true, false,
         render_blocks},
        {"lanes", "warp_lanes", "lanes", sizeof(struct warp_lanes), false, false, false, false,
         render_lanes},
        {"bytes", "mem_bytes", "kernels", sizeof(struct mem_bytes), false, true, true, false,
         render_bytes},
        {"heat", "mem_heat", "pages", sizeof(struct mem_heat), false, true, false, true,
         render_heat},
};

/* ---- reading a map ---- */

/* Make room for element n; false: that cannot be. */
static bool make_room(struct elements *e, size_t n)
{
        size_t room = e->room;

        if (n >= MAP_BYTES_MAX / e->size)
                return false;
        while (room <= n)
                room = room ? 2 * room : 64;
        if (room != e->room) {
                e->bytes = need(realloc(e->bytes, room * e->size));
                memset(e->bytes + e->room * e->size, 0, (room - e->room) * e->size);
                e->room = room;
        }
        return true;
}

static bool add_element(struct elements *e, const struct gpuobs_map_element *row)
{
        size_t n = e->by_copy && row->has_copy ? row->copy : e->count;

        if (row->n_value != e->size || !make_room(e, n))
                return false;
        memcpy(e->bytes + n * e->size, row->value, e->size);
        if (n >= e->count)
                e->count = n + 1;
        return true;
}

static int not_ours(const char *probe)
{
        fprintf(stderr, "gpuobsctl: the program loaded as %s is another one, or another version\n",
                probe);
        return CTL_FAILED;
}

/* All pages of a map. CTL_OK or the exit code. */
static int read_map(struct request *r, const char *probe, const char *map, struct elements *e)
{
        struct gpuobs_map_dump_params p = {.probe = probe,
                                           .map = map,
                                           .has_pid = r->filter.has_pid || r->pid,
                                           .pid = r->filter.has_pid ? r->filter.pid : r->pid,
                                           .has_merge = true,
                                           .has_nonzero = true,
                                           .nonzero = true,
                                           .has_limit = true,
                                           .limit = PAGE_ROWS};
        struct gpuobs_map_dump *d;
        bool fits = true, more = true;
        int error;

        while (more && fits) {
                error = gpuobs_maps_dump(r->ctl->gpuobs, &p, &d);
                if (error < 0)
                        return ctl_failed(r->ctl, error);
                for (size_t i = 0; i < d->n_elements && fits; i++)
                        fits = add_element(e, &d->elements[i]);
                if (!d->settled && !p.has_from)
                        fprintf(stderr, "gpuobsctl: kernels were writing while this was read\n");
                r->pid = d->pid;
                more = d->has_next;
                p.has_pid = d->pid != 0;
                p.pid = d->pid;
                p.has_from = true;
                p.from = d->next;
                p.has_snapshot = d->has_snapshot;
                p.snapshot = d->snapshot;
                gpuobs_map_dump_free(d);
        }
        return fits ? CTL_OK : not_ours(probe);
}

/* What found no place is counted in the program's only variable. */
static int read_lost(struct request *r, const char *probe, uint64_t *ret_lost)
{
        struct elements e = {.size = sizeof(*ret_lost)};
        int status = read_map(r, probe, ".bss", &e);

        *ret_lost = 0;
        if (status == CTL_OK && e.count)
                memcpy(ret_lost, e.bytes, sizeof(*ret_lost));
        free(e.bytes);
        return status;
}

/* ---- names of kernels ---- */

static void add_name(struct names *n, const struct gpuobs_covered *k)
{
        size_t id = k->kernel_id;

        if (id > 0xffffff)
                return;
        if (id >= n->count) {
                n->at = need(realloc(n->at, (id + 1) * sizeof(*n->at)));
                memset(n->at + n->count, 0, (id + 1 - n->count) * sizeof(*n->at));
                n->count = id + 1;
        }
        free(n->at[id]);
        n->at[id] = need(strdup(k->kernel));
}

static int read_names(struct request *r)
{
        struct gpuobs_coverage_params p = {
                .has_pid = true, .pid = r->pid, .has_limit = true, .limit = PAGE_ROWS};
        struct gpuobs_coverage *page;
        char *cursor = NULL;
        int error;

        do {
                error = gpuobs_coverage_list(r->ctl->gpuobs, &p, &page);
                free(cursor);
                if (error < 0)
                        return ctl_failed(r->ctl, error);
                for (size_t i = 0; i < page->n_kernels; i++)
                        add_name(&r->names, &page->kernels[i]);
                cursor = page->next_cursor ? need(strdup(page->next_cursor)) : NULL;
                p.cursor = cursor;
                gpuobs_coverage_free(page);
        } while (cursor);
        return CTL_OK;
}

static const char *find_name(void *data, uint32_t kernel_id)
{
        const struct names *n = data;

        return kernel_id < n->count ? n->at[kernel_id] : NULL;
}

static void names_done(struct names *n)
{
        for (size_t i = 0; i < n->count; i++)
                free(n->at[i]);
        free(n->at);
}

/* ---- memory of the process ---- */

static void add_allocations(struct view_allocations *a, const struct gpuobs_allocations *page)
{
        a->at = need(reallocarray(a->at, a->count + page->n_allocations + 1, sizeof(*a->at)));
        for (size_t i = 0; i < page->n_allocations; i++)
                a->at[a->count++] = (struct view_allocation){
                        .address = page->allocations[i].address,
                        .bytes = page->allocations[i].bytes,
                        .kind = gpuobs_allocation_kind_text(page->allocations[i].kind)};
}

static int read_allocations(struct request *r)
{
        struct gpuobs_allocations_params p = {.pid = r->pid};
        struct gpuobs_allocations *page;
        int error;

        do {
                error = gpuobs_allocations_list(r->ctl->gpuobs, &p, &page);
                if (error < 0)
                        return ctl_failed(r->ctl, error);
                add_allocations(&r->allocations, page);
                if (page->unlisted && !p.has_from)
                        fprintf(stderr,
                                "gpuobsctl: %" PRIu64 " allocations were too many to be listed\n",
                                page->unlisted);
                p.has_from = page->has_next;
                p.from = page->next;
                gpuobs_allocations_free(page);
        } while (p.has_from);
        return CTL_OK;
}

/* ---- the program ---- */

static int find_probe(struct request *r, const char *name, bool *ret_loaded)
{
        struct gpuobs_probes *list;
        int error = gpuobs_probes_list(r->ctl->gpuobs, NULL, &list);

        if (error < 0)
                return ctl_failed(r->ctl, error);
        *ret_loaded = false;
        for (size_t i = 0; i < list->n_probes; i++)
                *ret_loaded |= !strcmp(list->probes[i].name, name);
        gpuobs_probes_free(list);
        return CTL_OK;
}

static void wait_for(uint64_t ns)
{
        struct timespec t = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};

        nanosleep(&t, NULL);
}

/* Load the program that came with us, and let it count for a while. */
static int load(struct request *r, const struct ctl_command *self, const char *name)
{
        struct gpuobs_probe_load_params p = {.name = name,
                                             .has_pid = r->filter.has_pid,
                                             .pid = r->filter.pid,
                                             .has_all = !r->filter.has_pid,
                                             .all = !r->filter.has_pid};
        struct gpuobs_probe_loaded *loaded;
        void *object = ctl_read_object(self, GPUOBS_DEVICE_PATH, name, &p.n_object);
        int error;

        if (!object)
                return CTL_FAILED;
        p.object = object;
        error = gpuobs_probes_load(r->ctl->gpuobs, &p, &loaded);
        free(object);
        if (error < 0)
                return ctl_failed(r->ctl, error);
        gpuobs_probe_loaded_free(loaded);
        fprintf(stderr,
                "gpuobsctl: loaded %s; it goes on counting until `gpuobsctl probe unload %s`\n",
                name, name);
        wait_for(r->wait_ns);
        return CTL_OK;
}

static int show(struct request *r, const struct ctl_command *self, const struct view *v)
{
        struct elements e = {.size = v->size, .by_copy = v->by_copy};
        uint64_t lost = 0;
        bool loaded = false;
        int status = find_probe(r, v->probe, &loaded);

        if (status == CTL_OK && !loaded)
                status = load(r, self, v->probe);
        if (status == CTL_OK)
                status = read_map(r, v->probe, v->map, &e);
        if (status == CTL_OK && v->counts_lost)
                status = read_lost(r, v->probe, &lost);
        if (status == CTL_OK && v->has_names)
                status = read_names(r);
        if (status == CTL_OK && v->has_allocations)
                status = read_allocations(r);
        if (status == CTL_OK)
                v->render(r, &e, lost);
        free(e.bytes);
        names_done(&r->names);
        free(r->allocations.at);
        return status;
}

static const struct view *find_view(const struct ctl_command *self, const char *name)
{
        for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
                if (!strcmp(views[i].name, name))
                        return &views[i];
        ctl_usage(self, "there is no view \"%s\": sm, blocks, lanes, bytes or heat", name);
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS,
                                                {"pid", required_argument, NULL, OPTION_PID},
                                                {"for", required_argument, NULL, OPTION_FOR},
                                                {"limit", required_argument, NULL, OPTION_LIMIT},
                                                {0}};
        struct request r = {.ctl = ctl, .wait_ns = WAIT_DEFAULT};
        const struct view *view = NULL;
        int option, status;

        if (argc > 1 && argv[1][0] != '-') {
                view = find_view(self, argv[1]);
                argc--;
                argv++;
        }
        while ((option = ctl_option(ctl, self, &r.filter, argc, argv, options)) != -1)
                if (option == OPTION_FOR)
                        r.wait_ns = ctl_duration_ns(self, "for", optarg);
        ctl_no_arguments(self, argc, argv);
        if (!view)
                ctl_usage(self, "which one: sm, blocks, lanes, bytes or heat?");
        r.options =
                (struct view_options){.json = ctl->json,
                                      .limit = r.filter.has_limit ? r.filter.limit : LIMIT_DEFAULT,
                                      .kernel_name = find_name,
                                      .data = &r.names};
        status = ctl_connect(ctl);
        return status ? status : show(&r, self, view);
}

const struct ctl_command command_view = {
        "view", "sm | blocks | lanes | bytes | heat [OPTIONS]",
        "What gpuobsd's own device programs have counted, as pictures.",
        "  sm        are the multiprocessors busy alike?                  (sm_balance)\n"
        "  blocks    how long do the blocks of each kernel take?          (block_time)\n"
        "  lanes     with how many lanes do warps begin and leave?        (warp_lanes)\n"
        "  bytes     how much global memory does each kernel access?      (mem_bytes)\n"
        "  heat      where in memory, and how well do accesses coalesce?  (mem_heat)\n"
        "\n"
        "      --pid PID       of this process; needed when the program is in several\n"
        "      --for DURATION  how long to wait when the program is loaded first; 2s\n"
        "      --limit N       at most N rows or kernels, default 20\n"
        "\n"
        "The program in brackets is loaded if it is not (root or group gpuobs), into the\n"
        "process of --pid or all that have an agent, and stays: what is shown is what it\n"
        "has counted since. What each costs, and when it misleads, is said at the top of\n"
        "its source.\n\n",
        run};
