/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline.h"

#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ#?";

void timeline_begin(struct timeline *t, uint64_t from_ns, uint64_t until_ns, uint32_t width)
{
        memset(t, 0, sizeof(*t));
        t->from_ns = from_ns;
        t->until_ns = until_ns;
        t->width = width;
}

/* Where a cell begins; cell `width` is the end. */
static uint64_t cell_ns(const struct timeline *t, uint32_t cell)
{
        return t->from_ns + (uint64_t)((double)(t->until_ns - t->from_ns) * cell / t->width);
}

void timeline_add(struct timeline *t, uint64_t start_ns, uint64_t end_ns, uint32_t who)
{
        uint64_t from = start_ns > t->from_ns ? start_ns : t->from_ns;
        uint64_t until = end_ns < t->until_ns ? end_ns : t->until_ns;
        uint32_t cell;

        if (from >= until)
                return;
        cell = (uint32_t)((double)(from - t->from_ns) * t->width /
                          (double)(t->until_ns - t->from_ns));
        /* Rounding may have put it one off. */
        while (cell > 0 && cell_ns(t, cell) > from)
                cell--;
        for (; cell < t->width && cell_ns(t, cell) < until; cell++) {
                uint64_t a = cell_ns(t, cell), b = cell_ns(t, cell + 1);

                if (a < from)
                        a = from;
                if (b > until)
                        b = until;
                if (b > a)
                        t->ns[cell][who] += b - a;
        }
}

static char cell_character(const struct timeline *t, uint32_t cell)
{
        uint64_t all = cell_ns(t, cell + 1) - cell_ns(t, cell), sum = 0, most = 0;
        char c = '.';

        for (uint32_t i = 0; i < TIMELINE_LETTERS + 2; i++) {
                sum += t->ns[cell][i];
                if (t->ns[cell][i] <= most)
                        continue;
                most = t->ns[cell][i];
                c = letters[i];
        }
        return sum < all && all - sum > most ? '.' : c;
}

void timeline_text(const struct timeline *t, char ret_text[TIMELINE_WIDTH_MAX + 1])
{
        for (uint32_t i = 0; i < t->width; i++)
                ret_text[i] = cell_character(t, i);
        ret_text[t->width] = '\0';
}
