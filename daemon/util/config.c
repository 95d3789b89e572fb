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

#define RULES_MAX       64
#define RULES_BYTES_MAX 2048

#define SECONDS_MAX (100ULL * 366 * 86400)

enum kind {
        KIND_PATH,
        KIND_PATH_OR_NONE,
        KIND_LIBRARY, /* a path more */
        KIND_RULES,
        KIND_BYTES,
        KIND_SECONDS,
        KIND_NUMBER,       /* 32 bits */
        KIND_POWER_OF_TWO, /* bytes, 32 bits */
        KIND_SWITCH,
        KIND_WORD, /* an int: which of its words */
};

#define AT(field) .offset = offsetof(struct config, field)

static const char *const levels[] = {"emerg",  "alert", "crit",  "err", "warning",
                                     "notice", "info",  "debug", NULL};
static const char *const decisions[] = {[CONFIG_DECISIONS_NO] = "no",
                                        [CONFIG_DECISIONS_YES] = "yes",
                                        [CONFIG_DECISIONS_FENTRY] = "fentry",
                                        NULL};

const struct config_setting config_settings[] = {
        {"database", false, "path of the SQLite file", KIND_PATH, AT(database)},
        {"api_socket", false, "socket of clients, when systemd passes none", KIND_PATH,
         AT(api_socket)},
        {"agent_socket", false, "socket of agents, when systemd passes none", KIND_PATH,
         AT(agent_socket)},
        {"device_program", false, "eBPF object that runs on the GPU; empty: none",
         KIND_PATH_OR_NONE, AT(device_program)},
        {"library", false, "further copies of libcuda to probe", KIND_LIBRARY, AT(libraries)},
        {"trace", false, "file of the correlator's inputs; empty: none", KIND_PATH_OR_NONE,
         AT(trace)},
        {"policy_trace", false, "file that managed memory is recorded in; empty: none",
         KIND_PATH_OR_NONE, AT(policy_trace)},
        {"ring_bytes", false, "size of the kernel's event ring", KIND_POWER_OF_TWO, AT(ring_bytes),
         64u << 10, 1u << 30, "a power of two from 64K to 1G"},
        {"retention_bytes", true, "size of the database; 0: no limit", KIND_BYTES,
         AT(retention_bytes), 0, UINT64_MAX, "a size such as 4G (K, M, G, T) or 0 for no limit"},
        {"retention_age", true, "age of the oldest launch; 0: no limit", KIND_SECONDS,
         AT(retention_age_s), 0, SECONDS_MAX, "a time such as 7d (s, m, h, d) or 0 for no limit"},
        {"retention_sums", true, "age of the oldest sums per minute; 0: no limit", KIND_SECONDS,
         AT(retention_sums_s), 0, SECONDS_MAX, "a time such as 30d (s, m, h, d) or 0 for no limit"},
        {"poll_ms", true, "how often rings are read while there is work", KIND_NUMBER, AT(poll_ms),
         1, 1000, "a number of milliseconds from 1 to 1000"},
        {"agent_launches", true, "processes with an agent record their launches themselves",
         KIND_SWITCH, AT(agent_launches), .allowed = "yes or no"},
        {"agents_per_user", true, "processes of one user that may have an agent", KIND_NUMBER,
         AT(agents_per_user), 1, 4096, "a number from 1 to 4096"},
        {"agent_clock", false, "read no GPU clock through the driver: agents supply it",
         KIND_SWITCH, AT(agent_clock), .allowed = "yes or no"},
        {"probe_rules", true, "kernels that agents leave alone", KIND_RULES, AT(probe_rules),
         .allowed = "words -image:GLOB, -kernel:GLOB, +image:GLOB or +kernel:GLOB, at most 64"},
        {"agent_map_bytes", true, "GPU memory that maps of programs may take in one process",
         KIND_BYTES, AT(agent_map_bytes), 2u << 20, 1u << 30, "a size from 2M to 1G"},
        {"driver_calls", false, "record ioctls on the driver's device files", KIND_SWITCH,
         AT(driver_calls), .allowed = "yes or no"},
        {"context_switches", false, "trace who has the GPUs when", KIND_SWITCH,
         AT(context_switches), .allowed = "yes or no"},
        {"nvml", false, "ask NVIDIA's management library for load, memory, power and errors",
         KIND_SWITCH, AT(nvml), .allowed = "yes or no"},
        {"managed_memory", true, "events of managed memory are read, of all who allocate it",
         KIND_SWITCH, AT(managed_memory), .allowed = "yes or no"},
        {"managed_decisions", false,
         "probe the functions in which the driver decides about managed memory", KIND_WORD,
         AT(managed_decisions), .allowed = "yes, no or fentry", .words = decisions},
        {"managed_queue_bytes", true, "size of the queue of events of one process",
         KIND_POWER_OF_TWO, AT(managed_queue_bytes), 64u << 10, 64u << 20,
         "a power of two from 64K to 64M"},
        {"connections", true, "clients connected at the same time", KIND_NUMBER, AT(connections),
         16, 65536, "a number from 16 to 65536"},
        {"connections_per_user", true, "of these, of one user", KIND_NUMBER,
         AT(connections_per_user), 1, 65536, "a number from 1 to 65536"},
        {"requests_per_user", true, "requests of one user being worked on", KIND_NUMBER,
         AT(requests_per_user), 1, 65536, "a number from 1 to 65536"},
        {"streams_per_user", true, "streams of one user", KIND_NUMBER, AT(streams_per_user), 1,
         65536, "a number from 1 to 65536"},
        {"unread_per_user", true, "answers that one user has not read", KIND_BYTES,
         AT(unread_per_user), 2u << 20, 1u << 30, "a size from 2M to 1G"},
        {"query_timeout_ms", true, "how long a query of the database may take", KIND_NUMBER,
         AT(query_timeout_ms), 10, 3600000, "a number of milliseconds from 10 to 3600000"},
        {"log_level", true, "what goes to the log", KIND_WORD, AT(log_level), .min = LOG_ERR,
         .allowed = "one of err, warning, notice, info, debug", .words = levels},
};
const size_t config_setting_count = ARRAY_SIZE(config_settings);

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
                .retention_sums_s = 30 * 86400,
                .ring_bytes = 8u << 20,
                .poll_ms = 5,
                .agent_launches = true,
                .agents_per_user = 256,
                .agent_map_bytes = 64u << 20,
                .driver_calls = true,
                .context_switches = true,
                .nvml = true,
                .managed_memory = true,
                .managed_decisions = CONFIG_DECISIONS_YES,
                .managed_queue_bytes = 4u << 20,
                .connections = 2048,
                .connections_per_user = 256,
                .requests_per_user = 32,
                .streams_per_user = 16,
                .unread_per_user = 16u << 20,
                .query_timeout_ms = 5000,
                .log_level = LOG_INFO,
        };
        if (set_text(&c->database, "/var/lib/gpuobsd/launches.db") < 0 ||
            set_text(&c->api_socket, "/run/gpuobsd/gpuobsd.sock") < 0 ||
            set_text(&c->agent_socket, "/run/gpuobsd/agent.sock") < 0 ||
            set_text(&c->trace, "") < 0 || set_text(&c->probe_rules, "") < 0 ||
            set_text(&c->policy_trace, "") < 0 ||
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
        free(c->probe_rules);
        free(c->policy_trace);
        for (size_t i = 0; i < c->library_count; i++)
                free(c->libraries[i]);
        *c = (struct config){0};
}

/* ---- from text ---- */

struct unit {
        char letter;
        uint64_t factor;
};
static const struct unit byte_units[] = {
        {'T', 1ULL << 40}, {'G', 1ULL << 30}, {'M', 1ULL << 20}, {'K', 1ULL << 10}, {0}};
static const struct unit time_units[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}, {0}};

static const struct unit *units_of(enum kind kind)
{
        static const struct unit none[] = {{0}};

        if (kind == KIND_BYTES || kind == KIND_POWER_OF_TWO)
                return byte_units;
        return kind == KIND_SECONDS ? time_units : none;
}

/* A whole number with an optional unit. */
static int parse_number(const char *value, const struct unit *units, uint64_t *ret)
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
                while (units->letter && toupper(units->letter) != toupper((unsigned char)*end))
                        units++;
                if (!units->letter || end[1] || n > UINT64_MAX / units->factor)
                        return -EINVAL;
                n *= units->factor;
        }
        *ret = n;
        return 0;
}

static int set_number(void *field, const struct config_setting *s, const char *value)
{
        uint64_t n;

        if (parse_number(value, units_of(s->kind), &n) < 0 || n < s->min || n > s->max)
                return -EINVAL;
        if (s->kind == KIND_POWER_OF_TWO && (n & (n - 1)))
                return -EINVAL;
        if (s->kind == KIND_BYTES || s->kind == KIND_SECONDS)
                *(uint64_t *)field = n;
        else
                *(uint32_t *)field = (uint32_t)n;
        return 0;
}

static int set_switch(bool *field, const char *value)
{
        if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
                return -EINVAL;
        *field = value[0] == 'y';
        return 0;
}

static int set_word(int *field, const struct config_setting *s, const char *value)
{
        for (int i = (int)s->min; s->words[i]; i++)
                if (strcmp(value, s->words[i]) == 0) {
                        *field = i;
                        return 0;
                }
        return -EINVAL;
}

static int set_path(char **field, const char *value, char *error, size_t error_size)
{
        if (value[0] != '/') {
                snprintf(error, error_size, "give an absolute path, not \"%s\"", value);
                return -EINVAL;
        }
        return set_text(field, value);
}

static bool is_rule(const char *word, size_t length)
{
        static const char *const kinds[] = {"image:", "kernel:"};

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                size_t n = strlen(kinds[i]);

                if ((word[0] == '-' || word[0] == '+') && length > n + 1 &&
                    strncmp(word + 1, kinds[i], n) == 0)
                        return true;
        }
        return false;
}

/* What agents make of it: probes/agent/probe_rules.h. */
static int set_rules(char **field, const char *value)
{
        size_t count = 0;

        for (const char *at = value + strspn(value, " \t"); *at; at += strspn(at, " \t")) {
                size_t length = strcspn(at, " \t");

                if (!is_rule(at, length) || ++count > RULES_MAX)
                        return -EINVAL;
                at += length;
        }
        return strlen(value) < RULES_BYTES_MAX ? set_text(field, value) : -EINVAL;
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

const struct config_setting *config_find(const char *name)
{
        for (size_t i = 0; i < config_setting_count; i++)
                if (strcmp(config_settings[i].name, name) == 0)
                        return &config_settings[i];
        return NULL;
}

int config_set(struct config *c, const char *key, const char *value, char *error, size_t error_size)
{
        const struct config_setting *s = config_find(key);
        void *field = s ? (char *)c + s->offset : NULL;
        int r;

        if (!s) {
                snprintf(error, error_size, "there is no setting \"%s\"", key);
                return -ENOENT;
        }
        switch ((enum kind)s->kind) {
        case KIND_PATH:
                return set_path(field, value, error, error_size);
        case KIND_PATH_OR_NONE:
                return value[0] ? set_path(field, value, error, error_size) : set_text(field, "");
        case KIND_LIBRARY:
                return add_library(c, value, error, error_size);
        case KIND_RULES:
                r = set_rules(field, value);
                break;
        case KIND_SWITCH:
                r = set_switch(field, value);
                break;
        case KIND_WORD:
                r = set_word(field, s, value);
                break;
        default:
                r = set_number(field, s, value);
        }
        if (r < 0)
                snprintf(error, error_size, "give %s", s->allowed);
        return r;
}

/* ---- to text ---- */

/* With the largest unit that leaves a whole number. */
static void print_number(uint64_t n, const struct unit *units, char *buffer, size_t size)
{
        while (units->letter && (n == 0 || n % units->factor))
                units++;
        if (units->letter)
                snprintf(buffer, size, "%llu%c", (unsigned long long)(n / units->factor),
                         units->letter);
        else
                snprintf(buffer, size, "%llu", (unsigned long long)n);
}

static void print_libraries(const struct config *c, char *buffer, size_t size)
{
        size_t used = 0;

        buffer[0] = '\0';
        for (size_t i = 0; i < c->library_count && used < size; i++)
                used += (size_t)snprintf(buffer + used, size - used, "%s%s", i ? " " : "",
                                         c->libraries[i]);
}

void config_get(const struct config *c, const struct config_setting *s, char *buffer, size_t size)
{
        const void *field = (const char *)c + s->offset;

        switch ((enum kind)s->kind) {
        case KIND_PATH:
        case KIND_PATH_OR_NONE:
        case KIND_RULES:
                snprintf(buffer, size, "%s", *(char *const *)field);
                break;
        case KIND_LIBRARY:
                print_libraries(c, buffer, size);
                break;
        case KIND_BYTES:
        case KIND_SECONDS:
                print_number(*(const uint64_t *)field, units_of(s->kind), buffer, size);
                break;
        case KIND_NUMBER:
        case KIND_POWER_OF_TWO:
                print_number(*(const uint32_t *)field, units_of(s->kind), buffer, size);
                break;
        case KIND_SWITCH:
                snprintf(buffer, size, "%s", *(const bool *)field ? "yes" : "no");
                break;
        case KIND_WORD:
                snprintf(buffer, size, "%s", s->words[*(const int *)field]);
                break;
        }
}

/* ---- the file ---- */

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
