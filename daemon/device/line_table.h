/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Source lines of an eBPF object: the line_info part of its .BTF.ext section.
 * A table borrows the section's bytes; it never reads outside them.
 */
#include <stddef.h>
#include <stdint.h>

struct line_position {
        uint32_t file; /* offset of the file name in the BTF strings */
        uint32_t text; /* offset of the source text of the line */
        uint32_t line; /* from 1 */
        uint32_t column;
};

/* One ELF section's lines; records are sorted by offset as the compiler wrote them. */
struct line_section {
        uint32_t name; /* offset of the section name in the BTF strings */
        uint32_t count;
        const uint8_t *records;
};

struct line_table {
        uint32_t record_size;
        size_t count;
        struct line_section *sections;
};

/*
 * Take the line table out of a .BTF.ext section of `bytes` bytes. 0; -EINVAL
 * when it is not well formed; -ENOMEM. An object without line_info gives an
 * empty table. Free with line_table_done().
 */
int line_table_init(const void *section, size_t bytes, struct line_table *ret_table);
void line_table_done(struct line_table *t);

/* Record i of a section: returns the byte offset in the section it starts at. i < s->count. */
uint32_t line_table_record(const struct line_table *t, const struct line_section *s, uint32_t i,
                           struct line_position *ret_position);

/* The position that covers byte `offset` of a section; -ENOENT when none does. */
int line_table_find(const struct line_table *t, const struct line_section *s, uint32_t offset,
                    struct line_position *ret_position);
