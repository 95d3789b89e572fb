/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fragment.h"

#define PROGRAM_MAX 8

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
            blob->count > PROGRAM_MAX ||
            size - sizeof(*blob) < blob->count * sizeof(struct agent_program))
                return false;
        for (uint32_t i = 0; i < blob->count; i++) {
                const struct agent_program *p = &blob_programs(blob)[i];

                if (p->where != AGENT_PROGRAM_ENTRY && p->where != AGENT_PROGRAM_EXIT)
                        return false;
                if (!p->text_bytes || p->text_offset > size ||
                    p->text_bytes > size - p->text_offset)
                        return false;
                if (memchr((const char *)blob + p->text_offset, '\0', p->text_bytes))
                        return false;
        }
        return true;
}

/* Several programs at one place share one text: their labels must stay apart. */
static void add_program(struct text *t, const char *program, size_t size, uint32_t number)
{
        size_t start = 0;

        for (size_t i = 0; i + 2 < size; i++)
                if (memcmp(program + i, "@U@", 3) == 0) {
                        text_add(t, program + start, i - start);
                        text_print(t, "%c@U@", 'a' + (int)number);
                        start = i + 3;
                        i += 2;
                }
        text_add(t, program + start, size - start);
        text_add(t, "\n", 1);
}

int programs_parse(const void *bytes, size_t size, struct programs *ret_programs)
{
        struct programs p = {0};
        struct text entry = {0}, exit = {0};
        struct agent_blob blob;

        if (size < sizeof(blob))
                return -EINVAL;
        memcpy(&blob, bytes, sizeof(blob));
        if (!blob_valid(bytes, size))
                return -EINVAL;
        memcpy(p.maps, blob.maps, sizeof(p.maps));
        for (uint32_t i = 0; i < blob.count; i++) {
                const struct agent_program *program = &blob_programs(bytes)[i];

                add_program(program->where == AGENT_PROGRAM_ENTRY ? &entry : &exit,
                            (const char *)bytes + program->text_offset, program->text_bytes, i);
        }
        if (entry.failed || exit.failed) {
                text_done(&entry);
                text_done(&exit);
                return -ENOMEM;
        }
        p.entry = entry.bytes;
        p.exit = exit.bytes;
        *ret_programs = p;
        return 0;
}

void programs_done(struct programs *p)
{
        free(p->entry);
        free(p->exit);
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
        static const struct fragment_values known = {"", "", {"", ""}, {"", ""}, "", ""};
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

void fragment_expand(struct text *out, const char *text, const struct fragment_values *values)
{
        const char *start = text, *at = text;

        while (*at) {
                size_t token = token_bytes(at);
                const char *value = place_value(at, token, values);

                if (!value) {
                        at++;
                        continue;
                }
                text_add(out, start, (size_t)(at - start));
                text_add(out, value, strlen(value));
                at += token;
                start = at;
        }
        text_add(out, start, (size_t)(at - start));
}
