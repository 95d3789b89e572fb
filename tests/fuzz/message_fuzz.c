/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Messages: formats that are anything, and records of any number and arguments.
 *
 * Input: a format up to its NUL, then the arguments of a record.
 */
#include <errno.h>
#include <string.h>

#include "device/message.h"
#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A format that was taken prints with its own number of arguments, and with no other. */
static void print(const struct messages *m, unsigned number, unsigned arguments,
                  const uint64_t *values)
{
        char text[100], small[3];

        for (size_t count = 0; count < 14; count++) {
                int error = messages_print(m, number, values, count, text, sizeof(text));

                CHECK_EQ(error, count == arguments ? 0 : -EINVAL);
                if (error)
                        continue;
                CHECK(memchr(text, 0, sizeof(text)));
                for (const char *p = text; *p; p++)
                        CHECK((unsigned char)*p >= ' ' && *p != 0x7f);
                CHECK_EQ(messages_print(m, number, values, count, small, sizeof(small)), 0);
                CHECK(memchr(small, 0, sizeof(small)));
        }
        CHECK_EQ(messages_print(m, number + 1, values, arguments, text, sizeof(text)), -EINVAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const uint8_t *end = memchr(data, 0, size);
        size_t bytes = end ? (size_t)(end - data) + 1 : size;
        char reason[160] = "", *format = malloc(bytes + 1);
        struct messages *m = messages_new();
        unsigned number, again, arguments;
        uint64_t values[14] = {};
        int error;

        CHECK(m && format);
        memcpy(format, data, bytes);
        memcpy(values, data + bytes, size - bytes < sizeof(values) ? size - bytes : sizeof(values));
        error = messages_add(m, format, bytes, reason, sizeof(reason), &number, &arguments);
        if (error) {
                CHECK_EQ(error, -EINVAL);
                CHECK(reason[0]);
                CHECK_EQ(messages_count(m), 0);
        } else {
                CHECK_EQ(messages_add(m, format, bytes, reason, sizeof(reason), &again, &arguments),
                         0);
                CHECK_EQ(again, number);
                CHECK_EQ(messages_count(m), 1);
                print(m, number, arguments, values);
        }
        messages_free(m);
        free(format);
        return 0;
}
