/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A log is one line per instruction walked, "12: (79) r1 = ...", source lines
 * that start with ";", at last the reason, then statistics ("processed ...").
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/verify.h"
#include "util/macro.h"

#define DEPTH "stack depth " /* then a number for each function, with + between them */

static bool starts_with(const char *line, size_t length, const char *prefix)
{
        return length >= strlen(prefix) && !strncmp(line, prefix, strlen(prefix));
}

/* Register states, printed where a loop is found to be endless. */
static bool is_state(const char *line, size_t length)
{
        return starts_with(line, length, "cur state:") || starts_with(line, length, "old state:");
}

static bool is_statistics(const char *line, size_t length)
{
        return starts_with(line, length, "processed ") ||
               starts_with(line, length, "verification time ") || starts_with(line, length, DEPTH);
}

/* "12: (79) ..." is instruction 12. */
static bool read_insn(const char *line, size_t length, size_t *ret_insn)
{
        size_t n = 0, digits = 0;

        while (digits < length && digits < 9 && isdigit((unsigned char)line[digits]))
                n = 10 * n + (size_t)(line[digits++] - '0');
        if (!digits || !starts_with(line + digits, length - digits, ": ("))
                return false;
        *ret_insn = n;
        return true;
}

int verify_read_log(const char *log, char *message, size_t message_size, size_t *ret_insn)
{
        bool found = false;
        size_t insn = 0;

        while (*log) {
                size_t length = strcspn(log, "\n");

                if (is_statistics(log, length))
                        break;
                if (length && !read_insn(log, length, &insn) && log[0] != ';' &&
                    !is_state(log, length)) {
                        snprintf(message, message_size, "%.*s", (int)length, log);
                        found = true;
                }
                log += length;
                log += *log == '\n';
        }
        if (!found)
                return -ENOENT;
        *ret_insn = insn;
        return 0;
}

unsigned verify_read_depth(const char *log)
{
        const char *line = strstr(log, DEPTH);
        unsigned long most = 0;

        for (char *at = (char *)(line ? line + strlen(DEPTH) : NULL), *end; at; at = end + 1) {
                unsigned long n = strtoul(at, &end, 10);

                most = n > most ? n : most;
                if (end == at || *end != '+')
                        break;
        }
        return (unsigned)most;
}
