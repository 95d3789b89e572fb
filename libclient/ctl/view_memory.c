/* SPDX-License-Identifier: Apache-2.0 */

/* Bytes of kernels, heat of pages. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "format.h"
#include "json.h"
#include "need.h"
#include "table.h"
#include "view.h"

#define SECTOR_BYTES 32

/* ---- bytes ---- */

static int bytes_by_id(const void *a, const void *b)
{
        const struct mem_bytes *x = a, *y = b;

        return (x->owner.id > y->owner.id) - (x->owner.id < y->owner.id);
}

static uint64_t all_bytes(const struct mem_bytes *k)
{
        return k->loaded + k->stored + k->atomic;
}

static int bytes_by_amount(const void *a, const void *b)
{
        uint64_t x = all_bytes(a), y = all_bytes(b);

        return x != y ? (x < y ? 1 : -1) : bytes_by_id(a, b);
}

/* The multiprocessors' tables made one, the most first; returns how many kernels there are. */
static size_t merge_bytes(struct mem_bytes *k, size_t count)
{
        size_t n = 0;

        qsort(k, count, sizeof(*k), bytes_by_id);
        for (size_t i = 0; i < count; i++) {
                if (!k[i].owner.id)
                        continue;
                if (!n || k[n - 1].owner.id != k[i].owner.id) {
                        k[n++] = k[i];
                        continue;
                }
                k[n - 1].loaded += k[i].loaded;
                k[n - 1].stored += k[i].stored;
                k[n - 1].atomic += k[i].atomic;
                k[n - 1].generic += k[i].generic;
                k[n - 1].sectors += k[i].sectors;
        }
        qsort(k, n, sizeof(*k), bytes_by_amount);
        return n;
}

static void print_bytes_json(const struct view_options *o, const struct mem_bytes *k)
{
        printf("{\"kernel_id\":%" PRIu32 ",\"kernel\":", (uint32_t)k->owner.id);
        json_put_text(view_kernel(o, k->owner.id));
        printf(",\"loaded\":%" PRIu64 ",\"stored\":%" PRIu64 ",\"atomic\":%" PRIu64
               ",\"generic\":%" PRIu64 ",\"sectors\":%" PRIu64 "}\n",
               (uint64_t)k->loaded, (uint64_t)k->stored, (uint64_t)k->atomic, (uint64_t)k->generic,
               (uint64_t)k->sectors);
}

static void add_bytes(struct table *t, const struct view_options *o, const struct mem_bytes *k)
{
        double moved = (double)k->sectors * SECTOR_BYTES;

        table_cell(t, view_kernel(o, k->owner.id));
        table_cell(t, format_bytes(k->loaded));
        table_cell(t, format_bytes(k->stored));
        table_cell(t, format_bytes(k->atomic));
        table_cell(t, format_count(k->sectors));
        /* More than all: lanes that read the same. */
        table_cell(t, moved > 0 ? format_text("%.1f %%", 100 * (double)all_bytes(k) / moved) : "-");
}

void view_bytes(const struct view_options *o, const struct mem_bytes *kernels, size_t count,
                uint64_t without_place)
{
        static const struct table_column columns[] = {
                {"KERNEL", TABLE_SHRINK},
                {"LOADED", TABLE_RIGHT},
                {"STORED", TABLE_RIGHT},
                {"ATOMIC", TABLE_RIGHT},
                {"SECTORS", TABLE_RIGHT},
                {"USED", TABLE_RIGHT},
                {0},
        };
        struct mem_bytes *k = need(calloc(count + 1, sizeof(*k)));
        struct table *t = table_new(columns);
        size_t n;

        memcpy(k, kernels, count * sizeof(*k));
        n = merge_bytes(k, count);
        for (size_t i = 0; i < n && i < o->limit; i++) {
                if (o->json)
                        print_bytes_json(o, &k[i]);
                else
                        add_bytes(t, o, &k[i]);
        }
        if (!o->json)
                table_flush(t);
        view_lost(o, "requests", without_place);
        table_free(t);
        free(k);
}

/* ---- heat ---- */

/* Pages of one allocation; or, side by side, of several each or of none that is known. */
struct stretch {
        const struct mem_heat *pages; /* those that were accessed, ascending */
        size_t count;
        const struct view_allocation *first;
        size_t allocations;
        uint64_t loads, writes, sectors;
};

static int pages_by_id(const void *a, const void *b)
{
        const struct mem_heat *x = a, *y = b;

        return (x->owner.id > y->owner.id) - (x->owner.id < y->owner.id);
}

/* The multiprocessors' tables made one, in order of addresses. */
static size_t merge_pages(struct mem_heat *p, size_t count)
{
        size_t n = 0;

        qsort(p, count, sizeof(*p), pages_by_id);
        for (size_t i = 0; i < count; i++) {
                if (!p[i].owner.id)
                        continue;
                if (!n || p[n - 1].owner.id != p[i].owner.id) {
                        p[n++] = p[i];
                        continue;
                }
                p[n - 1].loads += p[i].loads;
                p[n - 1].writes += p[i].writes;
                p[n - 1].sectors += p[i].sectors;
        }
        return n;
}

static int stretches_by_heat(const void *a, const void *b)
{
        const struct stretch *x = a, *y = b;
        uint64_t p = x->loads + x->writes, q = y->loads + y->writes;

        if (p != q)
                return p < q ? 1 : -1;
        return (x->pages > y->pages) - (x->pages < y->pages);
}

static uint64_t page_address(const struct mem_heat *p)
{
        return (uint64_t)p->owner.id << MEM_HEAT_PAGE_SHIFT;
}

/* Which allocations lie in a page. *at: the first that may, moved on from page to page. */
static struct stretch whose(const struct mem_heat *page, const struct view_allocations *a,
                            size_t *at)
{
        uint64_t begin = page_address(page), end = begin + (UINT64_C(1) << MEM_HEAT_PAGE_SHIFT);
        struct stretch s = {.pages = page};

        while (*at < a->count && a->at[*at].address + a->at[*at].bytes <= begin)
                ++*at;
        for (size_t i = *at; i < a->count && a->at[i].address < end; i++)
                s.allocations++;
        if (s.allocations)
                s.first = &a->at[*at];
        return s;
}

/* Whether a page goes on with a stretch. */
static bool joins(const struct stretch *s, const struct stretch *page)
{
        if (s->allocations == 1 || page->allocations == 1)
                return page->allocations == s->allocations && s->first == page->first;
        return !s->allocations == !page->allocations &&
               s->pages[s->count - 1].owner.id + 1 == page->pages->owner.id;
}

static void add_page(struct stretch *s, const struct stretch *page)
{
        size_t end = page->first ? (size_t)(page->first - s->first) + page->allocations : 0;

        /* The last one of a page may be the first of the next, too. */
        if (end > s->allocations)
                s->allocations = end;
        s->count++;
        s->loads += page->pages->loads;
        s->writes += page->pages->writes;
        s->sectors += page->pages->sectors;
}

static size_t find_stretches(const struct mem_heat *p, size_t count,
                             const struct view_allocations *a, struct stretch *ret)
{
        size_t n = 0, at = 0;

        for (size_t i = 0; i < count; i++) {
                const struct stretch page = whose(&p[i], a, &at);

                if (!n || !joins(&ret[n - 1], &page))
                        ret[n++] = page;
                add_page(&ret[n - 1], &page);
        }
        qsort(ret, n, sizeof(*ret), stretches_by_heat);
        return n;
}

static uint64_t address_of(const struct stretch *s)
{
        return s->allocations == 1 ? s->first->address : page_address(s->pages);
}

static uint64_t bytes_of(const struct stretch *s)
{
        return s->allocations == 1 ? s->first->bytes : (uint64_t)s->count << MEM_HEAT_PAGE_SHIFT;
}

static const char *kind_of(const struct stretch *s)
{
        return s->allocations == 1 ? s->first->kind : s->allocations ? "several" : "unknown";
}

/* Requests of each page from the first that was accessed to the last; malloc'd. */
static uint64_t *requests_of(const struct stretch *s, size_t *ret_count)
{
        uint32_t first = s->pages[0].owner.id;
        size_t count = s->pages[s->count - 1].owner.id - first + 1;
        uint64_t *requests = need(calloc(count, sizeof(*requests)));

        for (size_t i = 0; i < s->count; i++)
                requests[s->pages[i].owner.id - first] = s->pages[i].loads + s->pages[i].writes;
        *ret_count = count;
        return requests;
}

static void print_stretch_json(const struct stretch *s)
{
        size_t count;
        uint64_t *requests = requests_of(s, &count);

        printf("{\"address\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"kind\":\"%s\",\"allocations\":%zu"
               ",\"loads\":%" PRIu64 ",\"writes\":%" PRIu64 ",\"sectors\":%" PRIu64
               ",\"touched\":%zu,\"first_page\":%" PRIu64 ",\"pages\":[",
               address_of(s), bytes_of(s), kind_of(s), s->allocations, s->loads, s->writes,
               s->sectors, s->count, page_address(s->pages));
        for (size_t i = 0; i < count; i++)
                printf("%s%" PRIu64, i ? "," : "", requests[i]);
        printf("]}\n");
        free(requests);
}

static void add_stretch(struct table *t, const struct stretch *s)
{
        char strip[DRAW_STRIP_BYTES];
        uint64_t all = s->loads + s->writes;
        size_t count;
        uint64_t *requests = requests_of(s, &count);

        table_cell(t, format_text("0x%" PRIx64, address_of(s)));
        table_cell(t, format_bytes(bytes_of(s)));
        table_cell(t, s->allocations > 1 ? format_text("%zu allocations", s->allocations)
                                         : kind_of(s));
        table_cell(t, format_count(s->count));
        table_cell(t, format_count(s->loads));
        table_cell(t, format_count(s->writes));
        table_cell(t, all ? format_text("%.1f", (double)s->sectors / (double)all) : "-");
        table_cell(t, draw_strip(requests, count, strip));
        free(requests);
}

void view_heat(const struct view_options *o, const struct mem_heat *pages, size_t count,
               const struct view_allocations *allocations, uint64_t without_place)
{
        static const struct table_column columns[] = {
                {"ADDRESS", TABLE_RIGHT},
                {"SIZE", TABLE_RIGHT},
                {"KIND", 0},
                {"PAGES", TABLE_RIGHT},
                {"LOADS", TABLE_RIGHT},
                {"WRITES", TABLE_RIGHT},
                {"SECTORS/REQ", TABLE_RIGHT},
                {"HEAT", 0},
                {0},
        };
        struct mem_heat *p = need(calloc(count + 1, sizeof(*p)));
        struct stretch *stretches = need(calloc(count + 1, sizeof(*stretches)));
        struct table *t = table_new(columns);
        size_t n;

        memcpy(p, pages, count * sizeof(*p));
        n = find_stretches(p, merge_pages(p, count), allocations, stretches);
        for (size_t i = 0; i < n && i < o->limit; i++) {
                if (o->json)
                        print_stretch_json(&stretches[i]);
                else
                        add_stretch(t, &stretches[i]);
        }
        if (!o->json)
                table_flush(t);
        view_lost(o, "requests", without_place);
        table_free(t);
        free(stretches);
        free(p);
}
