/* SPDX-License-Identifier: Apache-2.0 */
#include "draw.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format.h"

#define BAR_WIDTH  40
#define GRID_WIDTH 12
#define EIGHTHS    8

/* A bar of so many eighths of a character. */
static void put_bar(unsigned eighths)
{
        static const char *const parts[EIGHTHS] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
        unsigned whole = eighths / EIGHTHS, part = eighths % EIGHTHS;

        for (unsigned i = 0; i < whole; i++)
                fputs("█", stdout);
        fputs(parts[part], stdout);
        printf("%*s", (int)(BAR_WIDTH - whole - (part != 0)), "");
}

/* A part of a whole as one of `steps` steps; what is there is never nothing. */
static unsigned step_of(uint64_t part, uint64_t whole, unsigned steps)
{
        double share = whole ? (double)part / (double)whole : 0;
        unsigned n = (unsigned)(share * steps + 0.5);

        return part && !n ? 1 : n > steps ? steps : n;
}

/* Characters of UTF-8 text: bytes that begin one. */
static size_t count_characters(const char *text)
{
        size_t n = 0;

        for (; *text; text++)
                n += (*text & 0xc0) != 0x80;
        return n;
}

static size_t widest(const struct draw_row *rows, size_t n)
{
        size_t width = 0;

        for (size_t i = 0; i < n; i++)
                if (count_characters(rows[i].label) > width)
                        width = count_characters(rows[i].label);
        return width;
}

void draw_histogram(const struct draw_row *rows, size_t n)
{
        uint64_t most = 0, sum = 0;
        size_t width = widest(rows, n);
        int digits;

        for (size_t i = 0; i < n; i++) {
                most = rows[i].count > most ? rows[i].count : most;
                sum += rows[i].count;
        }
        digits = (int)strlen(format_count(most));
        for (size_t i = 0; i < n; i++) {
                printf("  %*s%s  ", (int)(width - count_characters(rows[i].label)), "",
                       rows[i].label);
                put_bar(step_of(rows[i].count, most, BAR_WIDTH * EIGHTHS));
                printf("  %*" PRIu64 "  %7s\n", digits, rows[i].count,
                       format_share(rows[i].count, sum));
        }
}

void draw_grid(const unsigned *values, size_t n)
{
        printf("      ");
        for (size_t i = 0; i < GRID_WIDTH && i < n; i++)
                printf("%5s", format_text("+%zu", i));
        for (size_t i = 0; i < n; i++) {
                if (i % GRID_WIDTH == 0)
                        printf("\n  %4zu", i);
                printf("%5u", values[i]);
        }
        printf("\n");
}

const char *draw_strip(const uint64_t *values, size_t n, char text[DRAW_STRIP_BYTES])
{
        static const char *const heights[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
        uint64_t greatest[DRAW_STRIP_WIDTH] = {0}, most = 0;
        size_t width = n < DRAW_STRIP_WIDTH ? n : DRAW_STRIP_WIDTH;

        for (size_t i = 0; i < n; i++) {
                uint64_t *block = &greatest[i * width / n];

                *block = values[i] > *block ? values[i] : *block;
                most = values[i] > most ? values[i] : most;
        }
        text[0] = 0;
        for (size_t i = 0; i < width; i++)
                strcat(text, heights[step_of(greatest[i], most, EIGHTHS)]);
        return text;
}
