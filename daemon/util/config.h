/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Settings of the daemon: defaults, then /etc/gpuobsd/gpuobsd.conf (lines of
 * `key = value`, # starts a comment), then the command line. docs/gpuobsd.conf.5
 * describes each key.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_FILE_DEFAULT  "/etc/gpuobsd/gpuobsd.conf"
#define CONFIG_LIBRARIES_MAX 16

/* Whether functions of the managed-memory driver are probed, and how. */
enum config_decisions {
        CONFIG_DECISIONS_NO,
        CONFIG_DECISIONS_YES,
        CONFIG_DECISIONS_FENTRY, /* also where there are kprobes */
};

struct config {
        char *database;   /* path of the SQLite file */
        char *api_socket; /* used when systemd passes no socket */
        char *agent_socket;
        char *device_program; /* eBPF object run on the GPU; "" = none: no agent is served */
        char *trace;          /* file of the correlator's inputs; "" = none */
        char *policy_trace;   /* file that managed memory is recorded in; "" = none */
        char *libraries[CONFIG_LIBRARIES_MAX]; /* further copies of libcuda to probe */
        size_t library_count;
        uint64_t retention_bytes;  /* 0 = no limit */
        uint64_t retention_age_s;  /* 0 = no limit */
        uint64_t retention_sums_s; /* of sums per minute; 0 = no limit */
        uint32_t ring_bytes;       /* kernel event ring, power of two */
        uint32_t poll_ms;          /* how often rings are read while there is work, 1..1000 */
        bool agent_launches;       /* processes with an agent record their launches themselves */
        bool agent_clock;          /* agents supply the GPUs' clocks, whatever the driver offers */
        char *probe_rules;         /* kernels that agents leave alone (docs/gpuobsd.conf.5) */
        uint32_t agents_per_user;  /* processes of one user that may have an agent */
        uint64_t agent_map_bytes;  /* of GPU memory that maps may take in one process */
        bool driver_calls;         /* ioctls on the driver's files are recorded */
        bool context_switches;     /* of the GPUs are traced */
        bool nvml;                 /* the management library is asked */
        bool managed_memory;       /* events of managed memory are read, of all who allocate it */
        int managed_decisions;     /* enum config_decisions */
        uint32_t managed_queue_bytes; /* of one process; power of two */
        uint32_t connections; /* API clients in all, and what each of their users may have */
        uint32_t connections_per_user;
        uint32_t requests_per_user;
        uint32_t streams_per_user;
        uint64_t unread_per_user; /* bytes of answers */
        uint32_t query_timeout_ms;
        int log_level; /* syslog level */
};

/* Fill with defaults. 0 or -ENOMEM. */
int config_init(struct config *c);
void config_done(struct config *c);

/* ---- settings by name ---- */

#define CONFIG_TEXT_MAX 8192 /* bytes of a setting's value as text, with its NUL */

struct config_setting {
        const char *name;
        bool run_time; /* takes effect while the daemon runs; false: at the next start */
        const char *doc;
        /* for config.c: */
        uint8_t kind;
        uint16_t offset;
        uint64_t min, max;
        const char *allowed;
        const char *const *words; /* that a number stands for, by the number; NULL at the end */
};

extern const struct config_setting config_settings[];
extern const size_t config_setting_count;

/* NULL when there is none of this name. */
const struct config_setting *config_find(const char *name);

/*
 * Set one key from text; `library` is added to those before. -ENOENT unknown
 * key, -EINVAL bad value (error[] says what is allowed), -ENOMEM.
 */
int config_set(struct config *c, const char *key, const char *value, char *error,
               size_t error_size);

/* The value as config_set() takes it, libraries separated by spaces. Cut to size. */
void config_get(const struct config *c, const struct config_setting *s, char *buffer, size_t size);

/* ---- the file ---- */

/* Read text of a file; the first bad line stops it: error[] names the line. */
int config_parse(struct config *c, const char *text, size_t size, char *error, size_t error_size);

/* Read a file; a missing file is -ENOENT and no error text. */
int config_load(struct config *c, const char *path, char *error, size_t error_size);
