/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small pictures of numbers, of characters, on stdout. */
#include <stddef.h>
#include <stdint.h>

#define DRAW_STRIP_WIDTH 32
#define DRAW_STRIP_BYTES (3 * DRAW_STRIP_WIDTH + 1)

struct draw_row {
        const char *label;
        uint64_t count;
};

/* A histogram: a line for each row with its label, a bar, the count and its share of all. */
void draw_histogram(const struct draw_row *rows, size_t n);

/* Whole numbers, 12 to a line, with the number of the first at the left. */
void draw_grid(const unsigned *values, size_t n);

/*
 * Values side by side, each a block as high as its share of the greatest, " " for 0; of
 * more than DRAW_STRIP_WIDTH several share a block, as high as the greatest of them.
 * Returns text.
 */
const char *draw_strip(const uint64_t *values, size_t n, char text[DRAW_STRIP_BYTES]);
