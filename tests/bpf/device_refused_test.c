/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Device programs that must be refused: device_refused_test SOURCE OBJECT ...
 * A source says in "expect: TEXT" what the message starts with; LINE in it
 * stands for the number of the line that is marked with LINE. A message with a line
 * names the instruction, too.
 */
#include <bpf/libbpf.h>
#include <errno.h>

#include "bpf/device_tools.h"
#include "device/program.h"
#include "unit/test.h"

/* The number of the line with the mark. */
static unsigned marked_line(const char *source)
{
        const char *mark = strstr(source, "/* LINE */");
        unsigned line = 1;

        CHECK(mark);
        for (const char *p = source; p < mark; p++)
                line += *p == '\n';
        return line;
}

static void read_expected(const char *source, char *ret, size_t size)
{
        const char *start = strstr(source, "expect: "), *end, *token;

        CHECK(start);
        start += strlen("expect: ");
        end = strstr(start, " */");
        CHECK(end);
        token = strstr(start, ":LINE:");
        if (token && token < end)
                snprintf(ret, size, "%.*s:%u:%.*s", (int)(token - start), start,
                         marked_line(source), (int)(end - token - 6), token + 6);
        else
                snprintf(ret, size, "%.*s", (int)(end - start), start);
}

/* "(instruction N)" at its end, where a line is named; clang makes no program of these that long.
 */
static bool names_instruction(const char *error)
{
        const char *tail = strrchr(error, '(');
        unsigned insn;
        char end;

        return tail && sscanf(tail, "(instruction %u%c", &insn, &end) == 2 && end == ')' &&
               insn < 1000;
}

static void check_refused(const char *source_path, const char *object_path)
{
        char expected[512], error[1024] = "";
        size_t bytes, object_bytes;
        char *source = device_read_file(source_path, &bytes);
        char *elf = device_read_file(object_path, &object_bytes);
        struct device_object *object = NULL;
        int result;

        CHECK(source && elf);
        read_expected(source, expected, sizeof(expected));
        result = device_object_load(elf, object_bytes, NULL, error, sizeof(error), &object);
        if (result == -EPERM)
                test_skip(error);
        if (strncmp(error, expected, strlen(expected)) != 0) {
                fprintf(stderr, "%s: expected \"%s\", got \"%s\"\n", source_path, expected, error);
                exit(1);
        }
        CHECK(result == -EACCES || result == -ENOTSUP || result == -EINVAL);
        CHECK(!object);
        CHECK(!strstr(source, "/* LINE */") || names_instruction(error));
        printf("ok %s\n", error);
        free(source);
        free(elf);
}

static void test_no_object(void)
{
        static const char garbage[] = "this is no ELF object, but long enough to look at, really";
        struct device_object *object = NULL;
        char error[1024];

        CHECK_EQ(device_object_load(garbage, sizeof(garbage), NULL, error, sizeof(error), &object),
                 -EINVAL);
        CHECK(strstr(error, "not an eBPF object"));
        CHECK_EQ(device_object_load(garbage, 0, NULL, error, sizeof(error), &object), -EINVAL);
        CHECK(!object);
}

int main(int argc, char **argv)
{
        CHECK(argc > 2 && argc % 2 == 1);
        libbpf_set_print(NULL);
        TEST(test_no_object);
        for (int i = 1; i < argc; i += 2)
                check_refused(argv[i], argv[i + 1]);
        return 0;
}
