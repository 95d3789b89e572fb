/* SPDX-License-Identifier: Apache-2.0 */
#include "util/config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <syslog.h>

#include "util/macro.h"

#ifndef GPUOBS_LIBEXECDIR
#define GPUOBS_LIBEXECDIR "/usr/local/libexec/gpuobsd"
#endif

/* A larger file is not a configuration file of ours. */
#define CONFIG_BYTES_MAX (1u << 20)

static int set_text(char **field, const char *value)
{
        char *copy = strdup(value);

        if (!copy)
                return -ENOMEM;
        free(*field);
        *field = copy;
        return 0;
}

int config_init(struct config *c)
{
        *c = (struct config){
                .retention_bytes = 4ULL << 30,
                .retention_age_s = 7 * 86400,
                .ring_bytes = 8u << 20,
                .poll_ms = 5,
                .agent_launches = true,
                .log_level = LOG_INFO,
        };
        if (set_text(&c->database, "/var/lib/gpuobsd/launches.db") < 0 ||
            set_text(&c->api_socket, "/run/gpuobsd/gpuobsd.sock") < 0 ||
            set_text(&c->agent_socket, "/run/gpuobsd/agent.sock") < 0 ||
            set_text(&c->trace, "") < 0 ||
            set_text(&c->device_program, GPUOBS_LIBEXECDIR "/device/launch.bpf.o") < 0) {
                config_done(c);
                return -ENOMEM;
        }
        return 0;
}

void config_done(struct config *c)
{
        free(c->database);
        free(c->api_socket);
        free(c->agent_socket);
        free(c->device_program);
        free(c->trace);
        for (size_t i = 0; i < c->library_count; i++)
                free(c->libraries[i]);
        *c = (struct config){0};
}

/* A whole number with an optional unit from units (a letter per factor); the result is bounded by
 * max. */
static int parse_scaled(const char *value, const char *units, const uint64_t *factors, uint64_t max,
                        uint64_t *ret)
{
        unsigned long long n;
        char *end;

        if (!isdigit((unsigned char)value[0]))
                return -EINVAL;
        errno = 0;
        n = strtoull(value, &end, 10);
        if (errno)
                return -EINVAL;
        if (*end) {
                const char *unit = strchr(units, toupper((unsigned char)*end));

                if (!unit || end[1] || n > UINT64_MAX / factors[unit - units])
                        return -EINVAL;
                n *= factors[unit - units];
        }
        if (n > max)
                return -EINVAL;
        *ret = n;
        return 0;
}

static int parse_bytes(const char *value, uint64_t max, uint64_t *ret)
{
        static const uint64_t factors[] = {1ULL << 10, 1ULL << 20, 1ULL << 30, 1ULL << 40};

        return parse_scaled(value, "KMGT", factors, max, ret);
}

static int parse_seconds(const char *value, uint64_t *ret)
{
        static const uint64_t factors[] = {1, 60, 3600, 86400};

        return parse_scaled(value, "SMHD", factors, 100ULL * 366 * 86400, ret);
}

static int set_path(char **field, const char *value, char *error, size_t error_size)
{
        if (value[0] != '/') {
                snprintf(error, error_size, "give an absolute path, not \"%s\"", value);
                return -EINVAL;
        }
        return set_text(field, value);
}

static int add_library(struct config *c, const char *value, char *error, size_t error_size)
{
        int r;

        if (c->library_count == CONFIG_LIBRARIES_MAX) {
                snprintf(error, error_size, "at most %d libraries can be named",
                         CONFIG_LIBRARIES_MAX);
                return -EINVAL;
        }
        r = set_path(&c->libraries[c->library_count], value, error, error_size);
        if (r == 0)
                c->library_count++;
        return r;
}

static int set_log_level(struct config *c, const char *value)
{
        static const char *const levels[] = {"emerg",   "alert",  "crit", "err",
                                             "warning", "notice", "info", "debug"};

        for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
                if (strcmp(value, levels[i]) == 0) {
                        c->log_level = (int)i;
                        return 0;
                }
        return -EINVAL;
}

static int set_number(struct config *c, const char *key, const char *value, char *error,
                      size_t error_size)
{
        uint64_t n = 0;

        if (strcmp(key, "retention_bytes") == 0) {
                if (parse_bytes(value, UINT64_MAX, &c->retention_bytes) == 0)
                        return 0;
                snprintf(error, error_size,
                         "give a size such as 4G (K, M, G, T) or 0 for no limit");
        } else if (strcmp(key, "retention_age") == 0) {
                if (parse_seconds(value, &c->retention_age_s) == 0)
                        return 0;
                snprintf(error, error_size,
                         "give a time such as 7d (s, m, h, d) or 0 for no limit");
        } else if (strcmp(key, "ring_bytes") == 0) {
                if (parse_bytes(value, 1u << 30, &n) == 0 && n >= 65536 && (n & (n - 1)) == 0) {
                        c->ring_bytes = (uint32_t)n;
                        return 0;
                }
                snprintf(error, error_size, "give a power of two from 64K to 1G");
        } else if (strcmp(key, "poll_ms") == 0) {
                if (parse_bytes(value, 1000, &n) == 0 && n >= 1) {
                        c->poll_ms = (uint32_t)n;
                        return 0;
                }
                snprintf(error, error_size, "give a number of milliseconds from 1 to 1000");
        } else if (strcmp(key, "agent_launches") == 0) {
                if (strcmp(value, "yes") == 0 || strcmp(value, "no") == 0) {
                        c->agent_launches = value[0] == 'y';
                        return 0;
                }
                snprintf(error, error_size, "give yes or no");
        } else if (strcmp(key, "log_level") == 0) {
                if (set_log_level(c, value) == 0)
                        return 0;
                snprintf(error, error_size, "give one of err, warning, notice, info, debug");
        } else {
                snprintf(error, error_size, "there is no setting \"%s\"", key);
                return -ENOENT;
        }
        return -EINVAL;
}

int config_set(struct config *c, const char *key, const char *value, char *error, size_t error_size)
{
        if (strcmp(key, "database") == 0)
                return set_path(&c->database, value, error, error_size);
        if (strcmp(key, "api_socket") == 0)
                return set_path(&c->api_socket, value, error, error_size);
        if (strcmp(key, "agent_socket") == 0)
                return set_path(&c->agent_socket, value, error, error_size);
        if (strcmp(key, "device_program") == 0)
                return value[0] ? set_path(&c->device_program, value, error, error_size)
                                : set_text(&c->device_program, "");
        if (strcmp(key, "trace") == 0)
                return value[0] ? set_path(&c->trace, value, error, error_size)
                                : set_text(&c->trace, "");
        if (strcmp(key, "library") == 0)
                return add_library(c, value, error, error_size);
        return set_number(c, key, value, error, error_size);
}

static char *trim(char *s)
{
        char *end;

        while (isspace((unsigned char)*s))
                s++;
        end = s + strlen(s);
        while (end > s && isspace((unsigned char)end[-1]))
                *--end = '\0';
        return s;
}

static int parse_line(struct config *c, char *line, char *error, size_t error_size)
{
        char *comment = strchr(line, '#'), *equals, *key;

        if (comment)
                *comment = '\0';
        key = trim(line);
        if (!*key)
                return 0;
        equals = strchr(key, '=');
        if (!equals) {
                snprintf(error, error_size, "write it as key = value");
                return -EINVAL;
        }
        *equals = '\0';
        return config_set(c, trim(key), trim(equals + 1), error, error_size);
}

int config_parse(struct config *c, const char *text, size_t size, char *error, size_t error_size)
{
        _cleanup_free_ char *copy = strndup(text, size);
        char why[200] = "", *next = copy;
        int r;

        if (!copy)
                return -ENOMEM;
        for (int number = 1; next; number++) {
                char *line = strsep(&next, "\n");

                r = parse_line(c, line, why, sizeof(why));
                if (r < 0) {
                        snprintf(error, error_size, "line %d: %s", number, why);
                        return r;
                }
        }
        return 0;
}

int config_load(struct config *c, const char *path, char *error, size_t error_size)
{
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        _cleanup_free_ char *text = NULL;
        size_t size;

        if (!f)
                return -errno;
        text = malloc(CONFIG_BYTES_MAX);
        if (!text)
                return -ENOMEM;
        size = fread(text, 1, CONFIG_BYTES_MAX, f);
        if (ferror(f) || size == CONFIG_BYTES_MAX) {
                snprintf(error, error_size, "the file cannot be read or is larger than 1 MiB");
                return -EINVAL;
        }
        return config_parse(c, text, size, error, error_size);
}
