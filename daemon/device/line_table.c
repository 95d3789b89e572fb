/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The format (Documentation/bpf/btf.rst): a header that says where func_info and
 * line_info lie behind it; line_info is a record size, then for each section its
 * name, the number of records and the records {offset, file, line text,
 * line << 10 | column}.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/line_table.h"

#define BTF_MAGIC          0xeb9f
#define HEADER_MIN_BYTES   24
#define RECORD_MIN_BYTES   16
#define RECORD_MAX_BYTES   1024
#define SECTION_HEAD_BYTES 8
#define LINE_COLUMN_BITS   10

struct cursor {
        const uint8_t *at;
        size_t left;
};

static uint32_t read_u32(const uint8_t *p)
{
        uint32_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

static int take_u32(struct cursor *c, uint32_t *ret)
{
        if (c->left < 4)
                return -EINVAL;
        *ret = read_u32(c->at);
        c->at += 4;
        c->left -= 4;
        return 0;
}

/* The line_info bytes of a .BTF.ext section. */
static int find_line_info(const uint8_t *p, size_t bytes, struct cursor *ret)
{
        uint16_t magic;
        uint64_t header, offset, length;

        if (bytes < HEADER_MIN_BYTES)
                return -EINVAL;
        memcpy(&magic, p, sizeof(magic));
        header = read_u32(p + 4);
        offset = read_u32(p + 16);
        length = read_u32(p + 20);
        if (magic != BTF_MAGIC || header < HEADER_MIN_BYTES || header + offset + length > bytes)
                return -EINVAL;
        *ret = (struct cursor){p + header + offset, length};
        return 0;
}

static int take_section(struct cursor *c, uint32_t record_size, struct line_section *ret)
{
        uint32_t name, count;

        if (take_u32(c, &name) || take_u32(c, &count))
                return -EINVAL;
        if ((uint64_t)count * record_size > c->left)
                return -EINVAL;
        *ret = (struct line_section){name, count, c->at};
        c->at += (size_t)count * record_size;
        c->left -= (size_t)count * record_size;
        return 0;
}

static int take_sections(struct cursor *c, struct line_table *t)
{
        while (c->left) {
                int error = take_section(c, t->record_size, &t->sections[t->count]);

                if (error)
                        return error;
                t->count++;
        }
        return 0;
}

int line_table_init(const void *section, size_t bytes, struct line_table *ret_table)
{
        struct line_table t = {};
        struct cursor c;
        int error = find_line_info(section, bytes, &c);

        if (error)
                return error;
        if (c.left == 0) {
                *ret_table = t;
                return 0;
        }
        if (take_u32(&c, &t.record_size) || t.record_size < RECORD_MIN_BYTES ||
            t.record_size > RECORD_MAX_BYTES)
                return -EINVAL;
        t.sections = calloc(c.left / SECTION_HEAD_BYTES + 1, sizeof(*t.sections));
        if (!t.sections)
                return -ENOMEM;
        error = take_sections(&c, &t);
        if (error) {
                line_table_done(&t);
                return error;
        }
        *ret_table = t;
        return 0;
}

void line_table_done(struct line_table *t)
{
        free(t->sections);
        *t = (struct line_table){};
}

uint32_t line_table_record(const struct line_table *t, const struct line_section *s, uint32_t i,
                           struct line_position *ret_position)
{
        const uint8_t *p = s->records + (size_t)i * t->record_size;
        uint32_t packed = read_u32(p + 12);

        *ret_position = (struct line_position){
                .file = read_u32(p + 4),
                .text = read_u32(p + 8),
                .line = packed >> LINE_COLUMN_BITS,
                .column = packed & ((1u << LINE_COLUMN_BITS) - 1),
        };
        return read_u32(p);
}

int line_table_find(const struct line_table *t, const struct line_section *s, uint32_t offset,
                    struct line_position *ret_position)
{
        int result = -ENOENT;

        for (uint32_t i = 0; i < s->count; i++) {
                struct line_position position;

                if (line_table_record(t, s, i, &position) > offset)
                        break;
                *ret_position = position;
                result = 0;
        }
        return result;
}
