/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fragment.h"

/* A token is an @, a capital letter, perhaps a digit, an @. Predicates never look like that. */
static size_t token_bytes(const char *at)
{
        if (at[0] != '@' || at[1] < 'A' || at[1] > 'Z')
                return 0;
        if (at[2] == '@')
                return 3;
        return at[2] >= '0' && at[2] <= '9' && at[3] == '@' ? 4 : 0;
}

static const struct agent_program *blob_programs(const struct agent_blob *blob)
{
        return (const struct agent_program *)(blob + 1);
}

static bool blob_valid(const struct agent_blob *blob, size_t size)
{
        if (size < sizeof(*blob) || blob->magic != AGENT_BLOB_MAGIC || !blob->count ||
            blob->count > AGENT_PROGRAMS_MAX ||
            size - sizeof(*blob) < blob->count * sizeof(struct agent_program))
                return false;
        for (uint32_t i = 0; i < AGENT_MAP_MAX; i++) {
                const struct agent_map *m = &blob->maps[i];

                if (m->initial_bytes > m->bytes || m->initial_offset > size ||
                    m->initial_bytes > size - m->initial_offset)
                        return false;
        }
        for (uint32_t i = 0; i < blob->count; i++) {
                const struct agent_program *p = &blob_programs(blob)[i];

                if (p->where < AGENT_PROGRAM_ENTRY || p->where > AGENT_PROGRAM_MEM)
                        return false;
                if (!p->text_bytes || p->text_offset > size ||
                    p->text_bytes > size - p->text_offset)
                        return false;
                if (memchr((const char *)blob + p->text_offset, '\0', p->text_bytes) ||
                    !memchr(p->name, '\0', sizeof(p->name)))
                        return false;
        }
        return true;
}

void *programs_read(int fd, uint64_t size)
{
        char *blob = size && size <= PROGRAMS_BYTES_MAX ? malloc(size) : NULL;
        size_t done = 0;

        while (blob && done < size) {
                ssize_t n = pread(fd, blob + done, size - done, (off_t)done);

                if (n <= 0) {
                        free(blob);
                        return NULL;
                }
                done += (size_t)n;
        }
        return blob;
}

int programs_parse(const void *bytes, size_t size, struct programs *ret_programs)
{
        struct programs p = {0};
        struct agent_blob blob;

        if (size < sizeof(blob))
                return -EINVAL;
        memcpy(&blob, bytes, sizeof(blob));
        if (!blob_valid(bytes, size))
                return -EINVAL;
        memcpy(p.maps, blob.maps, sizeof(p.maps));
        for (uint32_t i = 0; i < blob.count; i++) {
                const struct agent_program *from = &blob_programs(bytes)[i];
                struct program *to = &p.at[p.count++];

                to->where = from->where;
                memcpy(to->name, from->name, sizeof(to->name));
                to->text = strndup((const char *)bytes + from->text_offset, from->text_bytes);
                if (!to->text) {
                        programs_done(&p);
                        return -ENOMEM;
                }
        }
        *ret_programs = p;
        return 0;
}

void programs_done(struct programs *p)
{
        for (size_t i = 0; i < p->count; i++)
                free(p->at[i].text);
        *p = (struct programs){0};
}

/* A token that differs between the places of insertion: what it stands for there, or NULL. */
static const char *place_value(const char *at, size_t token, const struct fragment_values *v)
{
        switch (token == 3 ? at[1] : 0) {
        case 'K':
                return v->kernel;
        case 'U':
                return v->label;
        case 'A':
                return v->address;
        case 'S':
                return v->access;
        case 'O':
                return v->loosen ? "" : "//";
        }
        switch (token == 4 && at[2] <= '1' ? at[1] : 0) {
        case 'C':
                return at[2] == '0' ? v->context.opcode : v->context.source;
        case 'Q':
                return at[2] == '0' ? v->queue.opcode : v->queue.source;
        }
        return NULL;
}

int fragment_bind(const char *text, const uint64_t addresses[AGENT_MAP_MAX], char **ret_text)
{
        static const struct fragment_values known = {"", "", {"", ""}, {"", ""},
                                                     "", "", NULL,     false};
        struct text out = {0};

        for (const char *at = text; *at;) {
                size_t token = token_bytes(at);
                unsigned map = token == 4 && at[1] == 'M' ? (unsigned)(at[2] - '0') : AGENT_MAP_MAX;

                if (!token || place_value(at, token, &known)) {
                        text_add(&out, at, token ?: 1);
                        at += token ?: 1;
                } else if (map < AGENT_MAP_MAX && addresses[map]) {
                        text_print(&out, "0x%" PRIx64, addresses[map]);
                        at += token;
                } else {
                        text_done(&out);
                        return -EINVAL;
                }
        }
        if (out.failed || !out.bytes) {
                text_done(&out);
                return -ENOMEM;
        }
        *ret_text = out.bytes;
        return 0;
}

/*
 * A question for the active lanes, in new words or in old ones (ptx_dialect.c). Its
 * length, and its register; 0: it is none.
 */
static size_t lanes_question(const char *at, const char **ret_register, size_t *ret_bytes)
{
        static const struct {
                const char *begin, *end;
        } forms[] = {{"activemask.b32 ", ";"}, {"vote.ballot.b32 ", ", 1;"}};

        for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
                size_t begin = strlen(forms[i].begin), end = strlen(forms[i].end);
                size_t name =
                        strncmp(at, forms[i].begin, begin) == 0 ? strcspn(at + begin, ",; @\n") : 0;

                if (name && strncmp(at + begin + name, forms[i].end, end) == 0) {
                        *ret_register = at + begin;
                        *ret_bytes = name;
                        return begin + name + end;
                }
        }
        return 0;
}

static size_t expand_lanes(struct text *out, const char *at, const char *lanes)
{
        const char *name;
        size_t bytes, length = lanes ? lanes_question(at, &name, &bytes) : 0;

        if (!length)
                return 0;
        text_print(out, "mov.b32 ");
        text_add(out, name, bytes);
        text_print(out, ", %s;", lanes);
        return length;
}

void fragment_expand(struct text *out, const char *text, const struct fragment_values *values)
{
        const char *start = text, *at = text;

        while (*at) {
                size_t token = token_bytes(at), length;
                const char *value = place_value(at, token, values);
                bool question = (*at == 'a' || *at == 'v') && values->lanes;

                if (!value && !question) {
                        at++;
                        continue;
                }
                text_add(out, start, (size_t)(at - start));
                start = at;
                length = value ? token : expand_lanes(out, at, values->lanes);
                if (value)
                        text_add(out, value, strlen(value));
                at += length ?: 1;
                start += length;
        }
        text_add(out, start, (size_t)(at - start));
}
