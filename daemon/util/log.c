/* SPDX-License-Identifier: Apache-2.0 */
#include "util/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-journal.h>

static int max_level = LOG_INFO;
static bool is_brief;

void log_set_level(int level)
{
        max_level = level;
}

int log_level(void)
{
        return max_level;
}

void log_set_brief(void)
{
        is_brief = true;
}

/* systemd sets JOURNAL_STREAM to "dev:inode" of the stderr it connected to the journal. */
static bool stderr_is_journal(void)
{
        static int known = -1;
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long dev, ino;
        struct stat st;

        if (known < 0)
                known = stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
                        fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
        return known;
}

void log_pid(int level, pid_t pid, const char *format, ...)
{
        _cleanup_free_ char *text = NULL;
        va_list ap;
        int r;

        if (level > max_level)
                return;
        va_start(ap, format);
        r = vasprintf(&text, format, ap);
        va_end(ap);
        if (r < 0) {
                text = NULL;
                return;
        }
        if (!stderr_is_journal())
                fprintf(stderr, "gpuobsd: %s\n", text);
        else if (is_brief)
                fprintf(stderr, "<%d>%s\n", level, text);
        else if (pid)
                sd_journal_send("MESSAGE=%s", text, "PRIORITY=%i", level, "GPUOBS_PID=%i", (int)pid,
                                NULL);
        else
                sd_journal_send("MESSAGE=%s", text, "PRIORITY=%i", level, NULL);
}
