/* SPDX-License-Identifier: Apache-2.0 */

/* Writes docs/api.md from the schema. */
#include <stdio.h>

#include "schema_tables.h"

static const char intro[] =
        "<!-- Generated from libclient/schema.h by libclient/gen_docs.c. Do not edit. -->\n"
        "# The API of gpuobsd\n"
        "\n"
        "API version %d. A SOCK_STREAM UNIX socket, by default `/run/gpuobsd/gpuobsd.sock`. The C\n"
        "library `libgpuobs` (`gpuobs.h`) speaks it; anything with a msgpack library can.\n"
        "\n"
        "## Frames\n"
        "\n"
        "A frame is a u32 length, little-endian, then so many bytes of msgpack: one map.\n"
        "\n"
        "    request   {id, method, params}             id: your number, above 0; params may be "
        "absent\n"
        "    answer    {id, result}                     or {id, error}\n"
        "    stream    {id, result, more: true} ...     until an answer without more, or an error\n"
        "    error     {code, number, message, detail}  detail may be absent\n"
        "\n"
        "Requests may be sent without waiting for the answers; answers carry the id of their\n"
        "request and may come in another order. An id must not be in use twice at a time. An "
        "error\n"
        "with id 0 is about the connection, which is then closed.\n"
        "\n"
        "A frame holds at most %u bytes, %u nested levels, and %u members in a map. Map keys are\n"
        "texts, none twice in one map; texts are UTF-8 without NUL; extension types and anything\n"
        "after the map are refused. Members that must be there must be; unknown ones are passed\n"
        "over. Integers may have any width that holds them.\n"
        "\n"
        "## Who sees what\n"
        "\n"
        "The daemon reads the peer's credentials once, when it connects. Root and members of "
        "group\n"
        "`gpuobs` see every process. Anybody else sees the processes of their own user id: rows,\n"
        "statistics and ledgers alike.\n"
        "\n"
        "Every answer about launches carries `losses`, the ledger of what was lost on the way, so\n"
        "that a hole in the data cannot be mistaken for an idle GPU.\n"
        "\n"
        "A member that is not known is absent, never zero.\n"
        "\n"
        "## Streams\n"
        "\n"
        "`launches.subscribe` answers at once with an empty batch, then with batches as launches\n"
        "are finished; `slices.subscribe` and `uvm.subscribe` do so with slices and events. When\n"
        "you read more slowly than they come, the daemon keeps a bounded\n"
        "amount, drops the rest, and says how many in `dropped`. Who reads nothing for long is\n"
        "disconnected. `stream.cancel` ends a stream; so does closing the connection.\n";

static void print_methods(void)
{
        printf("\n## Methods\n\n| method | params | result | who | what "
               "|\n|---|---|---|---|---|\n");
        for (int i = 0; i < METHOD_COUNT; i++) {
                const struct schema_method *m = &schema_methods[i];

                printf("| `%s` | [%s](#%s) | [%s](#%s)%s | %s | %s |\n", m->name, m->params->name,
                       m->params->name, m->result->name, m->result->name,
                       m->stream ? ", a stream" : "",
                       schema_enum_text("privilege", (uint32_t)m->privilege), m->doc);
        }
}

static void print_field(const struct schema_field *f)
{
        printf("| `%s` | ", f->name);
        if (f->of_name)
                printf("%s [%s](#%s)", schema_kind_names[f->kind], f->of_name, f->of_name);
        else
                printf("%s", schema_kind_names[f->kind]);
        printf(" | %s | %s | %s |\n", f->may ? "may be absent" : "", f->unit, f->doc);
}

static void print_structs(void)
{
        printf("\n## Structs\n\n"
               "`u64`, `u32`, `i64`: integers of that range. `flag`: true or false. `dim3`: array "
               "of\n"
               "three u32. `bytes`: a byte string. `choice`: one of the texts of an enum. "
               "`object`: a map. `list`: an "
               "array of\n"
               "maps.\n");
        for (size_t i = 0; i < schema_struct_count; i++) {
                const struct schema_struct *s = &schema_structs[i];

                printf("\n### %s\n\n%s\n", s->name, s->doc);
                if (!s->count)
                        continue;
                printf("\n| member | kind | presence | unit | meaning |\n|---|---|---|---|---|\n");
                for (uint32_t k = 0; k < s->count; k++)
                        print_field(&s->fields[k]);
        }
}

static void print_enums(void)
{
        printf("\n## Enums\n");
        for (size_t i = 0; i < schema_enum_count; i++) {
                const struct schema_enum *e = &schema_enums[i];

                printf("\n### %s\n\n%s\n\n| value | meaning |\n|---|---|\n", e->name, e->doc);
                for (uint32_t k = 0; k < e->count; k++)
                        printf("| `%s` | %s |\n", e->values[k].name, e->values[k].doc);
        }
}

static void print_errors(void)
{
        printf("\n## Errors\n\nCodes and numbers stay as they are. `libgpuobs` returns the "
               "errno.\n\n"
               "| code | number | errno | meaning |\n|---|---|---|---|\n");
        for (size_t i = 0; i < schema_error_count; i++) {
                const struct schema_error *e = &schema_errors[i];

                printf("| `%s` | %u | %s | %s |\n", e->code, e->number, e->error_name, e->doc);
        }
}

int main(void)
{
        printf(intro, GPUOBS_API_VERSION, GPUOBS_FRAME_MAX, GPUOBS_DEPTH_MAX, GPUOBS_MEMBER_MAX);
        print_methods();
        print_structs();
        print_enums();
        print_errors();
        return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
