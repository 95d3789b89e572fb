/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "bpf/device_tools.h"
#include "unit/test.h"
#include "util/macro.h"

char *device_read_file(const char *path, size_t *ret_bytes)
{
        _cleanup_fclose_ FILE *f = fopen(path, "rb");
        char *data;
        long size;

        if (!f || fseek(f, 0, SEEK_END))
                return NULL;
        size = ftell(f);
        rewind(f);
        data = size >= 0 ? malloc((size_t)size + 1) : NULL;
        if (!data || fread(data, 1, (size_t)size, f) != (size_t)size) {
                free(data);
                return NULL;
        }
        data[size] = 0;
        *ret_bytes = (size_t)size;
        return data;
}

struct device_object *device_test_load(const char *path)
{
        struct device_object *object;
        char error[1024];
        size_t bytes;
        char *elf = device_read_file(path, &bytes);
        int result;

        CHECK(elf);
        result = device_object_load(elf, bytes, NULL, error, sizeof(error), &object);
        free(elf);
        if (result == -EPERM)
                test_skip(error);
        if (result)
                fprintf(stderr, "%s\n", error);
        CHECK_EQ(result, 0);
        return object;
}

/* Write the token's replacement; returns its length, 0 when text does not start with a token. */
static size_t put_token(FILE *out, const char *text, const struct device_values *v)
{
        const struct {
                const char *token, *value;
        } words[] = {
                {"@U@", "0"},         {"@K@", v->kernel_id}, {"@C0@", "mov.u32"},
                {"@C1@", v->context}, {"@Q0@", "mov.u32"},   {"@Q1@", v->queue},
                {"@A@", v->address},  {"@S@", v->access},    {"@O@", v->loosen ? "" : "//"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
                size_t n = strlen(words[i].token);

                if (words[i].value && !strncmp(text, words[i].token, n)) {
                        fputs(words[i].value, out);
                        return n;
                }
        }
        if (text[0] == '@' && text[1] == 'M' && text[2] >= '0' && text[2] <= '7' &&
            text[3] == '@') {
                fprintf(out, "0x%" PRIx64, v->maps[text[2] - '0']);
                return 4;
        }
        return 0;
}

char *device_make_kernel(const char *fragment, const char *name, const struct device_values *values,
                         int head)
{
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);

        if (!out)
                return NULL;
        if (head)
                fprintf(out, ".version 8.0\n.target sm_90\n.address_size 64\n");
        fprintf(out, ".visible .entry %s()\n{\n", name);
        while (*fragment) {
                size_t n = put_token(out, fragment, values);

                if (!n)
                        fputc(*fragment, out);
                fragment += n ? n : 1;
        }
        fprintf(out, "ret;\n}\n");
        fclose(out);
        return text;
}
