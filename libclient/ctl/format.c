/* SPDX-License-Identifier: Apache-2.0 */
#include "format.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#define BUFFERS      16
#define BUFFER_BYTES 1024 /* a glob of cgroups with its scope */

static char *next_buffer(void)
{
        static char buffers[BUFFERS][BUFFER_BYTES];
        static unsigned int at;

        return buffers[at++ % BUFFERS];
}

const char *format_text(const char *format, ...)
{
        char *b = next_buffer();
        va_list args;

        va_start(args, format);
        vsnprintf(b, BUFFER_BYTES, format, args);
        va_end(args);
        return b;
}

const char *format_duration(int64_t ns)
{
        static const struct {
                double ns;
                const char *unit;
        } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}};
        double size = ns < 0 ? -(double)ns : (double)ns;

        for (int i = 0; i < 3; i++)
                /* 999.996 µs would round to "1000.00 µs" */
                if (size >= units[i].ns * 0.999995)
                        return format_text("%.2f %s", (double)ns / units[i].ns, units[i].unit);
        return format_text("%" PRId64 " ns", ns);
}

const char *format_known_duration(bool known, int64_t ns)
{
        return known ? format_duration(ns) : "-";
}

const char *format_bytes(uint64_t bytes)
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        double n = (double)bytes;
        int i = 0;

        for (; n >= 1024 && i < 6; i++)
                n /= 1024;
        return format_text(i ? "%.1f %s" : "%.0f %s", n, units[i]);
}

const char *format_time(uint64_t monotonic_ns)
{
        struct timespec real, mono;
        struct tm tm;
        int64_t ns;
        time_t s;

        clock_gettime(CLOCK_REALTIME, &real);
        clock_gettime(CLOCK_MONOTONIC, &mono);
        ns = (int64_t)monotonic_ns - (mono.tv_sec * 1000000000LL + mono.tv_nsec) +
             (real.tv_sec * 1000000000LL + real.tv_nsec);
        s = ns / 1000000000;
        localtime_r(&s, &tm);
        return format_text("%02d:%02d:%02d.%06d", tm.tm_hour, tm.tm_min, tm.tm_sec,
                           (int)(ns % 1000000000 / 1000));
}

const char *format_count(uint64_t n)
{
        return format_text("%" PRIu64, n);
}

const char *format_share(uint64_t part, uint64_t whole)
{
        return whole ? format_text("%.1f %%", 100.0 * (double)part / (double)whole) : "-";
}
