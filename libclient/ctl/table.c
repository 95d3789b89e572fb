/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "need.h"

#define SHRUNK_MIN 12 /* the shrinking column keeps so much */

struct cell {
        wchar_t *text;
        size_t width;
};

struct table {
        const struct table_column *columns;
        size_t column_count;
        size_t widths[TABLE_COLUMNS_MAX];
        struct cell *cells;
        size_t cell_count, cell_room;
        size_t terminal_width; /* 0: not a terminal */
        bool titled;
};

size_t table_terminal_width(void)
{
        struct winsize w;

        if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0)
                return 0;
        return w.ws_col;
}

/* ---- text ---- */

static size_t char_width(wchar_t c)
{
        int w = wcwidth(c);

        return w < 0 ? 1 : (size_t)w;
}

static wchar_t printable(wchar_t c)
{
        return c < 0x20 || (c >= 0x7f && c < 0xa0) || wcwidth(c) < 0 ? L'?' : c;
}

/* UTF-8 to wide characters, with what cannot be shown replaced. */
static struct cell cell_of(const char *text)
{
        size_t bytes = strlen(text), n = 0;
        struct cell c = {need(calloc(bytes + 1, sizeof(wchar_t))), 0};
        mbstate_t state = {0};

        while (bytes) {
                size_t used = mbrtowc(&c.text[n], text, bytes, &state);

                if (used == 0 || used > bytes) {
                        memset(&state, 0, sizeof(state));
                        c.text[n] = L'?';
                        used = 1;
                }
                c.text[n] = printable(c.text[n]);
                c.width += char_width(c.text[n++]);
                text += used;
                bytes -= used;
        }
        c.text[n] = L'\0';
        return c;
}

/* ---- rows ---- */

struct table *table_new(const struct table_column *columns)
{
        struct table *t = need(calloc(1, sizeof(*t)));

        t->columns = columns;
        t->terminal_width = table_terminal_width();
        while (columns[t->column_count].title) {
                t->widths[t->column_count] = strlen(columns[t->column_count].title);
                t->column_count++;
        }
        return t;
}

static void forget_rows(struct table *t)
{
        for (size_t i = 0; i < t->cell_count; i++)
                free(t->cells[i].text);
        t->cell_count = 0;
}

struct table *table_free(struct table *t)
{
        if (!t)
                return NULL;
        forget_rows(t);
        free(t->cells);
        free(t);
        return NULL;
}

void table_cell(struct table *t, const char *text)
{
        size_t column = t->cell_count % t->column_count;
        struct cell *c;

        if (t->cell_count == t->cell_room) {
                t->cell_room = t->cell_room ? t->cell_room * 2 : 64;
                t->cells = need(realloc(t->cells, t->cell_room * sizeof(*t->cells)));
        }
        c = &t->cells[t->cell_count++];
        *c = cell_of(text ? text : "-");
        if (c->width > t->widths[column])
                t->widths[column] = c->width;
}

/* ---- printing ---- */

static void pad(size_t n)
{
        while (n--)
                putchar(' ');
}

/* Print at most width columns of the text, with "…" for what was cut. Returns columns printed. */
static size_t put_text(const struct cell *c, size_t width)
{
        bool cut = c->width > width;
        size_t shown = 0, room = cut && width ? width - 1 : width;

        for (const wchar_t *w = c->text; *w && shown + char_width(*w) <= room; w++) {
                printf("%lc", (wint_t)*w);
                shown += char_width(*w);
        }
        if (!cut || !width)
                return shown;
        printf("…");
        return shown + 1;
}

static void put_cell(const struct table *t, const struct cell *c, size_t column, size_t width)
{
        bool last = column + 1 == t->column_count;
        size_t shown = c->width < width ? c->width : width;

        if (t->columns[column].flags & TABLE_RIGHT)
                pad(width - shown);
        shown = put_text(c, width);
        if (!last && !(t->columns[column].flags & TABLE_RIGHT))
                pad(width - shown);
        if (!last)
                pad(2);
}

/* Widths that fit the terminal: the shrinking column gives what is too much. */
static void fit(const struct table *t, size_t *ret_widths)
{
        size_t total = 2 * (t->column_count - 1), shrink = t->column_count;

        for (size_t i = 0; i < t->column_count; i++) {
                ret_widths[i] = t->widths[i];
                total += t->widths[i];
                if (t->columns[i].flags & TABLE_SHRINK)
                        shrink = i;
        }
        if (!t->terminal_width || total <= t->terminal_width || shrink == t->column_count)
                return;
        if (ret_widths[shrink] <= SHRUNK_MIN)
                return;
        total -= t->terminal_width;
        ret_widths[shrink] =
                ret_widths[shrink] > total + SHRUNK_MIN ? ret_widths[shrink] - total : SHRUNK_MIN;
}

static void put_titles(struct table *t, const size_t *widths)
{
        struct cell c;

        for (size_t i = 0; i < t->column_count; i++) {
                c = cell_of(t->columns[i].title);
                put_cell(t, &c, i, widths[i]);
                free(c.text);
        }
        putchar('\n');
        t->titled = true;
}

void table_flush(struct table *t)
{
        size_t widths[TABLE_COLUMNS_MAX];

        fit(t, widths);
        if (!t->titled)
                put_titles(t, widths);
        for (size_t i = 0; i < t->cell_count; i++) {
                put_cell(t, &t->cells[i], i % t->column_count, widths[i % t->column_count]);
                if ((i + 1) % t->column_count == 0)
                        putchar('\n');
        }
        forget_rows(t);
        fflush(stdout);
}
