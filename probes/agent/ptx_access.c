/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "../device/device_abi.h"
#include "ptx_access.h"

/* `%rd1`, or `%rd<9>`, which stands for %rd0 to %rd8. */
struct ptx_declaration {
        size_t name, name_bytes;
        bool is_range;
        uint8_t bits; /* 0: no integer */
        size_t depth;
};

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

/* Declarations */

static uint8_t register_bits(const struct ptx_lexer *l, const struct ptx_token *type)
{
        static const char *const narrow[] = {".b32", ".u32", ".s32"};
        static const char *const wide[] = {".b64", ".u64", ".s64"};

        for (size_t i = 0; i < 3; i++) {
                if (ptx_is(l, type, narrow[i]))
                        return 32;
                if (ptx_is(l, type, wide[i]))
                        return 64;
        }
        return 0;
}

static bool add_declaration(struct ptx_registers *r, const struct ptx_declaration *d)
{
        struct ptx_declaration *at;
        size_t room = r->room ? 2 * r->room : 16;

        if (r->count == r->room) {
                at = reallocarray(r->at, room, sizeof(*at));
                if (!at)
                        return false;
                r->at = at;
                r->room = room;
        }
        r->at[r->count++] = *d;
        return true;
}

/* .reg .b32 %a, %r<10>; vectors (.v2) name no address. */
bool ptx_registers_add(struct ptx_registers *r, struct ptx_lexer lexer, size_t depth)
{
        struct ptx_token t = ptx_next(&lexer);
        uint8_t bits = register_bits(&lexer, &t);

        while (t.kind == PTX_WORD && lexer.text[t.start] == '.')
                t = ptx_next(&lexer);
        while (t.kind == PTX_WORD) {
                struct ptx_declaration d = {
                        .name = t.start, .name_bytes = t.size, .bits = bits, .depth = depth};

                t = ptx_next(&lexer);
                if (ptx_is(&lexer, &t, "<")) {
                        d.is_range = true;
                        ptx_next(&lexer);
                        ptx_next(&lexer);
                        t = ptx_next(&lexer);
                }
                if (!add_declaration(r, &d))
                        return false;
                if (ptx_is(&lexer, &t, ","))
                        t = ptx_next(&lexer);
        }
        return true;
}

void ptx_registers_leave(struct ptx_registers *r, size_t depth)
{
        while (r->count && r->at[r->count - 1].depth > depth)
                r->count--;
}

void ptx_registers_done(struct ptx_registers *r)
{
        free(r->at);
        *r = (struct ptx_registers){0};
}

static bool declares(const char *text, const struct ptx_declaration *d,
                     const struct ptx_token *name)
{
        bool begins = name->size >= d->name_bytes &&
                      memcmp(text + name->start, text + d->name, d->name_bytes) == 0;

        if (!begins || !d->is_range)
                return begins && name->size == d->name_bytes;
        if (name->size == d->name_bytes)
                return false;
        for (size_t i = d->name_bytes; i < name->size; i++)
                if (!is_digit(text[name->start + i]))
                        return false;
        return true;
}

/* The innermost declaration of a register; NULL: it is none. */
static const struct ptx_declaration *find(const struct ptx_registers *r, const char *text,
                                          const struct ptx_token *name)
{
        for (size_t i = r->count; i-- > 0;)
                if (declares(text, &r->at[i], name))
                        return &r->at[i];
        return NULL;
}

/* Opcodes: words separated by dots, the first of which is the operation. */

/* The next word of an opcode from *at on; its bytes, 0 at the end. */
static size_t next_word(const struct ptx_lexer *l, const struct ptx_token *opcode, size_t *at)
{
        size_t end = opcode->start + opcode->size, start = *at;

        if (start < end && l->text[start] == '.')
                *at = ++start;
        while (start < end && l->text[start] != '.')
                start++;
        return start - *at;
}

static bool word_is(const struct ptx_lexer *l, size_t at, size_t bytes, const char *word)
{
        return bytes == strlen(word) && memcmp(l->text + at, word, bytes) == 0;
}

/* Whether the opcode begins with these words. */
static bool opcode_begins(const struct ptx_lexer *l, const struct ptx_token *opcode,
                          const char *words)
{
        size_t n = strlen(words);

        return ptx_starts(l, opcode, words) &&
               (opcode->size == n || l->text[opcode->start + n] == '.');
}

/* Bytes of an element type (b32, f16x2, ...); 0: the word is none. */
static unsigned type_bytes(const char *word, size_t bytes)
{
        static const char *const others[] = {"f16x2", "bf16", "bf16x2"};
        static const uint8_t other_bytes[] = {4, 2, 4};
        unsigned bits = 0;

        for (size_t i = 0; i < 3; i++)
                if (strncmp(others[i], word, bytes) == 0 && !others[i][bytes])
                        return other_bytes[i];
        if (bytes < 2 || bytes > 4 || !word[0] || !strchr("bsuf", word[0]))
                return 0;
        for (size_t i = 1; i < bytes; i++) {
                if (!is_digit(word[i]))
                        return 0;
                bits = 10 * bits + (unsigned)(word[i] - '0');
        }
        return bits >= 8 && bits <= 128 && (bits & (bits - 1)) == 0 ? bits / 8 : 0;
}

/* What the words of an opcode say. */
struct modifiers {
        unsigned element; /* bytes; 0 not said */
        unsigned vector;
        uint8_t space;
        bool is_parameter;
};

static void read_space(const struct ptx_lexer *l, size_t at, size_t n, struct modifiers *m)
{
        static const struct {
                const char *word;
                uint8_t space;
        } spaces[] = {
                {"global", GPUOBS_SPACE_GLOBAL},      {"shared", GPUOBS_SPACE_SHARED},
                {"shared::cta", GPUOBS_SPACE_SHARED}, {"shared::cluster", GPUOBS_SPACE_SHARED},
                {"local", GPUOBS_SPACE_LOCAL},        {"const", GPUOBS_SPACE_CONST},
        };

        for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
                if (word_is(l, at, n, spaces[i].word))
                        m->space = spaces[i].space;
        m->is_parameter |= n >= 5 && memcmp(l->text + at, "param", 5) == 0;
}

static struct modifiers read_modifiers(const struct ptx_lexer *l, const struct ptx_token *opcode)
{
        struct modifiers m = {.vector = 1, .space = GPUOBS_SPACE_GENERIC};
        size_t at = opcode->start, n = next_word(l, opcode, &at);

        for (at += n; (n = next_word(l, opcode, &at)); at += n) {
                unsigned bytes = type_bytes(l->text + at, n);

                if (bytes)
                        m.element = bytes;
                else if (n == 2 && l->text[at] == 'v' && is_digit(l->text[at + 1]))
                        m.vector = (unsigned)(l->text[at + 1] - '0');
                else
                        read_space(l, at, n, &m);
        }
        return m;
}

/* Operands */

/* Behind the next opening bracket of the statement; false: it has none. */
static bool skip_to_bracket(struct ptx_lexer *l)
{
        struct ptx_token t;

        do {
                t = ptx_next(l);
                if (ptx_is(l, &t, "["))
                        return true;
        } while (t.kind != PTX_END && t.kind != PTX_BAD && !ptx_is(l, &t, ";"));
        return false;
}

/* `base`, `base+offset` or `base+-offset`, and the closing bracket. */
static bool read_address(struct ptx_lexer *l, const struct ptx_registers *registers,
                         struct ptx_access *a)
{
        struct ptx_token t = ptx_next(l);
        const struct ptx_declaration *d = find(registers, l->text, &t);

        if (t.kind != PTX_WORD || (d && !d->bits))
                return false;
        a->base = t.start;
        a->base_bytes = t.size;
        a->is_narrow = d && d->bits == 32;
        t = ptx_next(l);
        if (ptx_is(l, &t, "+")) {
                t = ptx_next(l);
                a->offset = t.start;
                if (ptx_is(l, &t, "-"))
                        t = ptx_next(l);
                if (t.kind != PTX_WORD || !is_digit(l->text[t.start]))
                        return false;
                a->offset_bytes = t.start + t.size - a->offset;
                t = ptx_next(l);
        }
        return ptx_is(l, &t, "]");
}

/* A number of bytes that is a whole operand, in any of the bases of PTX; 0: it is none. */
static unsigned read_bytes(struct ptx_lexer *l)
{
        struct ptx_token t = ptx_next(l);
        char text[8], *end;
        unsigned long bytes;

        if (!ptx_is(l, &t, ","))
                return 0;
        t = ptx_next(l);
        if (t.kind != PTX_WORD || t.size >= sizeof(text) || !is_digit(l->text[t.start]))
                return 0;
        memcpy(text, l->text + t.start, t.size);
        text[t.size] = '\0';
        bytes = strtoul(text, &end, 0);
        return *end ? 0 : (unsigned)bytes;
}

static uint8_t access_kind(const struct ptx_lexer *l, const struct ptx_token *opcode)
{
        if (opcode_begins(l, opcode, "ld") || opcode_begins(l, opcode, "ldu"))
                return GPUOBS_ACCESS_LOAD;
        if (opcode_begins(l, opcode, "st"))
                return GPUOBS_ACCESS_STORE;
        return opcode_begins(l, opcode, "atom") || opcode_begins(l, opcode, "red")
                       ? GPUOBS_ACCESS_ATOMIC
                       : 0;
}

/* Memory that is not accessed through one address of each thread, or seen by others only later. */
static bool is_other(const struct ptx_lexer *l, const struct ptx_token *opcode)
{
        static const char *const others[] = {
                "cp.async.bulk",
                "cp.reduce",
                "ldmatrix",
                "stmatrix",
                "wmma.load",
                "wmma.store",
                "wgmma.mma_async",
                "red.async",
                "st.async",
                "st.bulk",
                "multimem",
                "tex",
                "tld4",
                "suld",
                "sust",
                "sured",
        };

        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
                if (opcode_begins(l, opcode, others[i]))
                        return !opcode_begins(l, opcode, "cp.async.bulk.commit_group") &&
                               !opcode_begins(l, opcode, "cp.async.bulk.wait_group");
        return false;
}

/* cp.async [shared], [global], bytes: it is the global memory that is reported. */
static enum ptx_access_class read_copy(struct ptx_lexer *l, const struct ptx_registers *registers,
                                       struct ptx_access *a)
{
        unsigned bytes;

        a->kind = GPUOBS_ACCESS_LOAD;
        a->space = GPUOBS_SPACE_GLOBAL;
        if (!skip_to_bracket(l) || !skip_to_bracket(l) || !read_address(l, registers, a))
                return PTX_ACCESS_OTHER;
        bytes = read_bytes(l);
        a->size = (uint8_t)bytes;
        return bytes == 4 || bytes == 8 || bytes == 16 ? PTX_ACCESS_PLAIN : PTX_ACCESS_OTHER;
}

enum ptx_access_class ptx_access_read(struct ptx_lexer lexer, const struct ptx_token *opcode,
                                      const struct ptx_registers *registers,
                                      struct ptx_access *ret_access)
{
        uint8_t kind = access_kind(&lexer, opcode);
        struct ptx_access a = {.kind = kind};
        enum ptx_access_class class = PTX_ACCESS_PLAIN;
        struct modifiers m;

        if (is_other(&lexer, opcode))
                return PTX_ACCESS_OTHER;
        if (opcode_begins(&lexer, opcode, "cp.async.ca") ||
            opcode_begins(&lexer, opcode, "cp.async.cg")) {
                class = read_copy(&lexer, registers, &a);
        } else if (!kind) {
                return PTX_ACCESS_NONE;
        } else {
                m = read_modifiers(&lexer, opcode);
                if (m.is_parameter)
                        return PTX_ACCESS_NONE;
                a.size = (uint8_t)(m.element * m.vector);
                a.space = m.space;
                if (!m.element || !m.vector || a.size > 32 || !skip_to_bracket(&lexer) ||
                    !read_address(&lexer, registers, &a))
                        class = PTX_ACCESS_OTHER;
        }
        if (class == PTX_ACCESS_PLAIN)
                *ret_access = a;
        return class;
}
