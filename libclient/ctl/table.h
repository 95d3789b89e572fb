/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An aligned table on stdout. On a terminal the column marked TABLE_SHRINK gives
 * way so that a line fits; piped, nothing is cut. Control characters in a cell
 * (names come from observed programs) are shown as "?".
 */
#include <stdbool.h>
#include <stddef.h>

#define TABLE_COLUMNS_MAX 16

enum table_flags {
        TABLE_RIGHT = 1,  /* numbers */
        TABLE_SHRINK = 2, /* cut when the terminal is too narrow; one column */
};

/* Columns of the terminal that stdout is; 0: it is none. */
size_t table_terminal_width(void);

struct table_column {
        const char *title;
        unsigned int flags;
};

struct table;

/* columns end with a NULL title and live as long as the table. Ends the program on no memory. */
struct table *table_new(const struct table_column *columns);
struct table *table_free(struct table *t);

/* The next cell of the current row; text is copied; NULL is shown as "-". */
void table_cell(struct table *t, const char *text);

/* Print the rows so far (and the titles, the first time) and forget them; widths are kept. */
void table_flush(struct table *t);
