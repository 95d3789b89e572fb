/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl map: what device programs have counted. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "format.h"
#include "json.h"
#include "need.h"
#include "table.h"

#define VALUE_MAX  4096
#define KEY_MAX    64
#define DIGITS_MAX 20 /* of a number of 64 bits */

enum {
        OPTION_EACH = OPTION_OWN,
        OPTION_EVERY,
};

static const struct table_column list_columns[] = {{"PROBE", 0},
                                                   {"MAP", 0},
                                                   {"KIND", 0},
                                                   {"PLACE", 0},
                                                   {"SPREAD", 0},
                                                   {"KEY", TABLE_RIGHT},
                                                   {"VALUE", TABLE_RIGHT},
                                                   {"ENTRIES", TABLE_RIGHT},
                                                   {0}};

static const struct table_column dump_columns[] = {
        {"KEY", TABLE_RIGHT}, {"COPY", TABLE_RIGHT}, {"VALUE", TABLE_SHRINK}, {0}};

static int list(struct ctl *ctl, struct table *t, const struct ctl_filter *unused)
{
        struct gpuobs_probes *p;
        int r = gpuobs_probes_list(ctl->gpuobs, NULL, &p);

        if (r < 0)
                return ctl_failed(ctl, r);
        for (size_t i = 0; i < p->n_probes; i++)
                for (size_t k = 0; k < p->probes[i].n_maps; k++) {
                        const struct gpuobs_probe_map *m = &p->probes[i].maps[k];

                        if (ctl->json) {
                                json_print_of("probe", p->probes[i].name, SCHEMA_OF(probe_map), m);
                                continue;
                        }
                        table_cell(t, p->probes[i].name);
                        table_cell(t, m->name);
                        table_cell(t, gpuobs_map_kind_text(m->kind));
                        table_cell(t, gpuobs_map_place_text(m->place));
                        table_cell(t, gpuobs_map_spread_text(m->spread));
                        table_cell(t, format_count(m->key_bytes));
                        table_cell(t, format_count(m->value_bytes));
                        table_cell(t, format_count(m->entries));
                }
        gpuobs_probes_free(p);
        return CTL_OK;
}

static int run_list(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        ctl_arguments(ctl, self, argc, argv, 0);
        return ctl_list_table(ctl, list_columns, list, NULL);
}

/* ---- dump ---- */

static uint64_t word_at(const uint8_t *bytes, size_t size)
{
        uint64_t n = 0;

        memcpy(&n, bytes, size < sizeof(n) ? size : sizeof(n));
        return n;
}

/* Bytes of the numbers that a key or value is shown as: 8, or 4 where 8 do not divide it, else 1.
 */
static size_t number_bytes(size_t size)
{
        return size % 8 == 0 ? 8 : size % 4 == 0 ? 4 : 1;
}

/* Bytes as numbers, malloc'd. */
static char *numbers_text(const uint8_t *bytes, size_t size, const char *gap)
{
        size_t step = number_bytes(size), room = size / step * (DIGITS_MAX + 1) + 1, used = 0;
        char *text = need(malloc(room));

        text[0] = '\0';
        for (size_t i = 0; i < size; i += step)
                used += (size_t)snprintf(text + used, room - used, "%s%" PRIu64, i ? gap : "",
                                         word_at(bytes + i, step));
        return text;
}

static void print_element(struct ctl *ctl, struct table *t, const struct gpuobs_map_element *e)
{
        char *text = numbers_text(e->value, e->n_value, ctl->json ? "," : " ");
        char *key = numbers_text(e->key, e->n_key, ",");

        if (ctl->json) {
                printf(e->n_key > 8 ? "{\"key\":[%s]" : "{\"key\":%s", key);
                if (e->has_copy)
                        printf(",\"copy\":%" PRIu32, e->copy);
                printf(",\"value\":[%s]}\n", text);
        } else {
                table_cell(t, key);
                table_cell(t, e->has_copy ? format_text("%" PRIu32, e->copy) : NULL);
                table_cell(t, text);
        }
        free(key);
        free(text);
}

/* Of a page; but for the records of a ring all pages of a reading say the same. */
static void warn_about(const struct gpuobs_map_dump *d, bool first)
{
        if (!d->settled && first)
                fprintf(stderr, "Kernels were writing to the map while it was read: its numbers "
                                "are not all of one moment.\n");
        if (d->has_lost && d->lost && (first || d->map.kind == GPUOBS_MAP_KIND_RING))
                fprintf(stderr,
                        "%" PRIu64 " updates found no room, or records of a ring were lost.\n",
                        d->lost);
}

static int run_dump(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS,
                                                {"pid", required_argument, NULL, OPTION_PID},
                                                {"limit", required_argument, NULL, OPTION_LIMIT},
                                                {"each", no_argument, NULL, OPTION_EACH},
                                                {"zeros", no_argument, NULL, OPTION_EVERY},
                                                {0}};
        struct gpuobs_map_dump_params p = {.has_nonzero = true, .nonzero = true};
        struct ctl_filter filter = {0};
        struct gpuobs_map_dump *d;
        struct table *t;
        int option, r;
        bool more;

        if (argc < 3 || argv[1][0] == '-' || argv[2][0] == '-')
                ctl_usage(self, "dump: which probe, which map?");
        while ((option = ctl_option(ctl, self, &filter, argc - 2, argv + 2, options)) != -1)
                if (option == OPTION_EACH)
                        p.has_merge = true;
                else if (option == OPTION_EVERY)
                        p.nonzero = false;
        optind += 2;
        ctl_no_arguments(self, argc, argv);
        p.probe = argv[1];
        p.map = argv[2];
        p.has_pid = filter.has_pid;
        p.pid = filter.pid;
        p.has_limit = filter.has_limit;
        p.limit = filter.limit;
        r = ctl_connect(ctl);
        if (r)
                return r;
        t = table_new(dump_columns);
        do {
                r = gpuobs_maps_dump(ctl->gpuobs, &p, &d);
                if (r < 0)
                        break;
                for (size_t i = 0; i < d->n_elements; i++)
                        print_element(ctl, t, &d->elements[i]);
                warn_about(d, !p.has_from);
                more = d->has_next && !filter.has_limit;
                p.has_pid = d->pid != 0;
                p.pid = d->pid;
                p.has_from = true;
                p.from = d->next;
                p.has_snapshot = d->has_snapshot;
                p.snapshot = d->snapshot;
                gpuobs_map_dump_free(d);
        } while (more);
        if (!ctl->json && (r == 0 || p.has_from))
                table_flush(t);
        table_free(t);
        return r < 0 ? ctl_failed(ctl, r) : CTL_OK;
}

/* ---- update, delete ---- */

static size_t size_of_map(struct ctl *ctl, const char *probe, const char *map, size_t *ret_key)
{
        struct gpuobs_probe_show_params p = {.name = probe};
        struct gpuobs_probe_details *d;
        size_t value = 0;

        if (gpuobs_probes_show(ctl->gpuobs, &p, &d) < 0)
                return 0;
        for (size_t i = 0; i < d->probe.n_maps; i++)
                if (!strcmp(d->probe.maps[i].name, map)) {
                        value = d->probe.maps[i].value_bytes;
                        *ret_key = d->probe.maps[i].key_bytes;
                }
        gpuobs_probe_details_free(d);
        return value;
}

static uint64_t number(const struct ctl_command *self, const char *text, size_t bytes)
{
        unsigned long long n;
        char *end;

        errno = 0;
        n = strtoull(text, &end, 0);
        if (errno || end == text || *end)
                ctl_usage(self, "\"%s\" is not a number", text);
        if (bytes < sizeof(n) && n >> 8 * bytes)
                ctl_usage(self, "%s does not fit into %zu bytes", text, bytes);
        return n;
}

/* Numbers into words, as a dump prints them. */
static void take_numbers(const struct ctl_command *self, const char *what, size_t count,
                         char **texts, uint8_t *bytes, size_t size)
{
        size_t step = number_bytes(size);

        if (count != size / step)
                ctl_usage(self, "a %s of this map is %zu numbers, not %zu", what, size / step,
                          count);
        for (size_t i = 0; i < count; i++) {
                uint64_t n = number(self, texts[i], step);

                memcpy(bytes + i * step, &n, step);
        }
}

/* A key, numbers with commas between them. */
static void take_key(const struct ctl_command *self, char *text, uint8_t *key, size_t size)
{
        char *texts[KEY_MAX];
        size_t count = 0;

        for (char *part; count < KEY_MAX && (part = strsep(&text, ","));)
                texts[count++] = part;
        take_numbers(self, "key", count, texts, key, size);
}

/* Options behind PROBE MAP KEY; optind is at what comes behind them, less 3. */
static void take_element_options(struct ctl *ctl, const struct ctl_command *self,
                                 struct ctl_filter *filter, int argc, char **argv)
{
        static const struct option options[] = {
                CTL_COMMON_OPTIONS, {"pid", required_argument, NULL, OPTION_PID}, {0}};

        while (ctl_option(ctl, self, filter, argc - 3, argv + 3, options) != -1)
                ;
}

/*
 * Connect, and read the key in argv as the map has it, whose values have at most `most` bytes.
 * CTL_OK, or the exit code.
 */
static int open_element(struct ctl *ctl, const struct ctl_command *self, char **argv, size_t most,
                        uint8_t *key, size_t *ret_key_size, size_t *ret_size)
{
        int r = ctl_connect(ctl);

        if (r)
                return r;
        *ret_size = size_of_map(ctl, argv[1], argv[2], ret_key_size);
        if (!*ret_size || *ret_size > most || *ret_key_size > KEY_MAX) {
                fprintf(stderr, "gpuobsctl map: %s has no map %s that could be written\n", argv[1],
                        argv[2]);
                return CTL_FAILED;
        }
        take_key(self, argv[3], key, *ret_key_size);
        return CTL_OK;
}

static int run_update(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_map_update_params p = {0};
        struct gpuobs_map_updated *updated;
        struct ctl_filter filter = {0};
        uint8_t key[KEY_MAX], value[VALUE_MAX] = {0};
        size_t key_size = 0, size;
        int r;

        if (argc < 5 || argv[1][0] == '-')
                ctl_usage(self, "update: PROBE MAP KEY VALUE...");
        take_element_options(ctl, self, &filter, argc, argv);
        r = open_element(ctl, self, argv, sizeof(value), key, &key_size, &size);
        if (r)
                return r;
        take_numbers(self, "value", (size_t)(argc - 3 - optind), argv + 3 + optind, value, size);
        p.probe = argv[1];
        p.map = argv[2];
        p.has_pid = filter.has_pid;
        p.pid = filter.pid;
        p.key = key;
        p.n_key = key_size;
        p.value = value;
        p.n_value = size;
        r = gpuobs_maps_update(ctl->gpuobs, &p, &updated);
        if (r < 0)
                return ctl_failed(ctl, r);
        gpuobs_map_updated_free(updated);
        return CTL_OK;
}

static int run_delete(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        struct gpuobs_map_delete_params p = {0};
        struct gpuobs_map_deleted *deleted;
        struct ctl_filter filter = {0};
        uint8_t key[KEY_MAX];
        size_t key_size = 0, size;
        int r;

        if (argc < 4 || argv[1][0] == '-')
                ctl_usage(self, "delete: PROBE MAP KEY");
        take_element_options(ctl, self, &filter, argc, argv);
        optind += 3;
        ctl_no_arguments(self, argc, argv);
        r = open_element(ctl, self, argv, SIZE_MAX, key, &key_size, &size);
        if (r)
                return r;
        p.probe = argv[1];
        p.map = argv[2];
        p.has_pid = filter.has_pid;
        p.pid = filter.pid;
        p.key = key;
        p.n_key = key_size;
        r = gpuobs_maps_delete(ctl->gpuobs, &p, &deleted);
        if (r < 0)
                return ctl_failed(ctl, r);
        gpuobs_map_deleted_free(deleted);
        return CTL_OK;
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct ctl_subcommand commands[] = {{"list", run_list},
                                                         {"dump", run_dump},
                                                         {"update", run_update},
                                                         {"delete", run_delete}};

        return ctl_run_subcommand(ctl, self, argc, argv, commands,
                                  sizeof(commands) / sizeof(commands[0]),
                                  "list, dump, update or delete?");
}

const struct ctl_command command_map = {
        "map", "COMMAND [OPTIONS]",
        "Read and write the maps of device programs (root or group gpuobs).",
        "  list                     the maps of all loaded programs\n"
        "  dump PROBE MAP           its elements; copies for multiprocessors, warps or\n"
        "                           threads are added up\n"
        "      --pid PID            in this process; needed when it is in several\n"
        "      --each               each copy for itself\n"
        "      --zeros              elements that are 0, too\n"
        "      --limit N            at most N elements\n"
        "  update PROBE MAP KEY VALUE...\n"
        "                           overwrite an element; KEY and VALUE: numbers as dump\n"
        "                           prints them, those of a KEY with commas between them\n"
        "      --pid PID            in this process\n"
        "  delete PROBE MAP KEY     take an element out of a hash\n"
        "      --pid PID            in this process\n\n",
        run};
