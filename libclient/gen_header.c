/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes gpuobs_api.h, the generated part of the installed header: the enums,
 * structs and calls of schema.h as plain C that a person can read.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "schema.h"

#define COMMENT_COLUMN 44

static void print_upper(char *out, size_t size, const char *s)
{
        size_t i;

        for (i = 0; s[i] && i < size - 1; i++)
                out[i] = (char)toupper((unsigned char)s[i]);
        out[i] = '\0';
}

static void print_member(const char *code, const char *unit, const char *doc, const char *more)
{
        int n = printf("        %s", code);

        printf("%*s/* %s%s%s%s */\n", n < COMMENT_COLUMN ? COMMENT_COLUMN - n : 1, "", unit,
               *unit ? ": " : "", doc, more);
}

static void print_value(const char *enum_name, const char *name, int number, const char *doc)
{
        char of[32], value[32], code[96];

        print_upper(of, sizeof(of), enum_name);
        print_upper(value, sizeof(value), name);
        snprintf(code, sizeof(code), "GPUOBS_%s_%s = %d,", of, value, number);
        print_member(code, "", doc, "");
}

/* The C type of a field, with the space or star before its name. */
static void c_type(char *out, size_t size, const char *kind, const char *of)
{
        static const char *const plain[][2] = {
                {"u64", "uint64_t "},      {"u32", "uint32_t "},  {"i64", "int64_t "},
                {"flag", "bool "},         {"dim3", "uint32_t "}, {"text", "const char *"},
                {"bytes", "const void *"},
        };

        for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
                if (!strcmp(kind, plain[i][0])) {
                        snprintf(out, size, "%s", plain[i][1]);
                        return;
                }
        }
        snprintf(out, size, "%s gpuobs_%s %s", strcmp(kind, "choice") ? "struct" : "enum", of,
                 strcmp(kind, "list") ? "" : "*");
}

static void print_field(const char *kind, const char *presence, const char *name, const char *of,
                        const char *unit, const char *doc)
{
        bool may = !strcmp(presence, "may"), text = !strcmp(kind, "text");
        bool bytes = !strcmp(kind, "bytes"), list = !strcmp(kind, "list");
        char type[96], code[160];

        if (may && !text) {
                snprintf(code, sizeof(code), "bool has_%s;", name);
                print_member(code, "", "false: the next member is absent", "");
        }
        c_type(type, sizeof(type), kind, of);
        snprintf(code, sizeof(code), "%s%s%s;", type, name, strcmp(kind, "dim3") ? "" : "[3]");
        print_member(code, unit, doc, may && text ? "; NULL when absent" : "");
        if (list || bytes) {
                snprintf(code, sizeof(code), "size_t n_%s;", name);
                print_member(code, "", list ? "elements of the array above" : "bytes of it", "");
        }
}

static void print_call(const char *name, const char *method, const char *params, const char *result,
                       bool stream, const char *doc)
{
        printf("\n/*\n * %s: %s\n */\n", method, doc);
        if (stream) {
                printf("int gpuobs_%s(struct gpuobs *g, const struct gpuobs_%s *params,\n"
                       "        gpuobs_%s_fn *callback, void *data,\n"
                       "        struct gpuobs_call **ret_call);\n",
                       name, params, name);
                return;
        }
        printf("int gpuobs_%s(struct gpuobs *g, const struct gpuobs_%s *params,\n"
               "        struct gpuobs_%s **ret_result);\n",
               name, params, result);
        printf("int gpuobs_%s_async(struct gpuobs *g, const struct gpuobs_%s *params,\n"
               "        gpuobs_%s_fn *callback, void *data,\n"
               "        struct gpuobs_call **ret_call);\n",
               name, params, name);
}

static void print_enums(void)
{
        int number;

#define V(name, doc) print_value(enum_name, #name, number++, doc);
#define E(name, doc)                                                                               \
        {                                                                                          \
                const char *enum_name = #name;                                                     \
                                                                                                   \
                number = 0;                                                                        \
                printf("\n/* %s */\nenum gpuobs_%s {\n", doc, #name);                              \
                GPUOBS_VALUES_##name(V);                                                           \
                printf("};\n");                                                                    \
        }
        GPUOBS_ENUMS(E)
#undef E
#undef V
}

static void print_errors(void)
{
        printf("\n/* What went wrong, see gpuobs_error(). */\nenum gpuobs_error_number {\n"
               "        GPUOBS_ERROR_NONE = 0,\n");
#define X(name, number, errno_, doc) print_value("error", #name, number, doc);
        GPUOBS_ERRORS(X)
#undef X
        printf("};\n");
}

static void print_structs(void)
{
        int count;

#define F(in, kind, presence, name, of, unit, doc)                                                 \
        print_field(#kind, #presence, #name, #of, unit, doc);                                      \
        count++;
#define S(name, doc)                                                                               \
        count = 0;                                                                                 \
        printf("\n/* %s */\nstruct gpuobs_%s {\n", doc, #name);                                    \
        GPUOBS_FIELDS_##name(F, name);                                                             \
        if (!count)                                                                                \
                print_member("char empty;", "", "no members", "");                                 \
        printf("};\n");
        GPUOBS_STRUCTS(S)
#undef S
#undef F
}

static void print_texts(void)
{
        printf("\n/* The text of a value on the wire, e.g. \"exact\"; \"?\" for anything else. "
               "*/\n");
#define E(name, doc) printf("const char *gpuobs_%s_text(enum gpuobs_%s value);\n", #name, #name);
        GPUOBS_ENUMS(E)
#undef E
}

static void print_calls(void)
{
        printf("\n/*\n * Callbacks of asynchronous calls and streams. error is 0 and result there, "
               "or\n"
               " * error is -errno and result NULL: then the call is over. result belongs to the\n"
               " * library and lives until the callback returns.\n */\n");
#define M(name, method, params, result, privilege, stream, doc)                                    \
        printf("typedef void gpuobs_%s_fn(void *data, int error,\n"                                \
               "        const struct gpuobs_%s *result);\n",                                       \
               #name, #result);
        GPUOBS_METHODS(M)
#undef M
        printf("\n/* Free a result of a synchronous call. NULL is fine; returns NULL. */\n");
#define M(name, method, params, result, privilege, stream, doc)                                    \
        printf("struct gpuobs_%s *gpuobs_%s_free(struct gpuobs_%s *result);\n", #result, #result,  \
               #result);
        GPUOBS_METHODS(M)
#undef M
        printf("\n/*\n * The calls. params may be NULL: nothing given. 0 and *ret_result (yours to "
               "free),\n"
               " * or -errno; gpuobs_error() has the sentence. An _async call returns 0 once the\n"
               " * request is on its way; the callback has the answer; ret_call may be NULL.\n "
               "*/\n");
#define M(name, method, params, result, privilege, stream, doc)                                    \
        print_call(#name, method, #params, #result, stream, doc);
        GPUOBS_METHODS(M)
#undef M
}

int main(void)
{
        printf("/* SPDX-License-Identifier: Apache-2.0 */\n"
               "/* Generated from the API's schema. Included by gpuobs.h; do not include it "
               "yourself. */\n"
               "#pragma once\n\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n"
               "#ifdef __cplusplus\nextern \"C\" {\n#endif\n#pragma GCC visibility "
               "push(default)\n\n"
               "#define GPUOBS_API_VERSION %d\n\nstruct gpuobs;\nstruct gpuobs_call;\n",
               GPUOBS_API_VERSION);
        print_enums();
        print_errors();
        print_structs();
        print_texts();
        print_calls();
        printf("\n#pragma GCC visibility pop\n#ifdef __cplusplus\n}\n#endif\n");
        return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
