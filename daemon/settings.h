/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the settings come from, and what may change while the daemon runs:
 * defaults, then the file, then the command line. SIGHUP reads all of it again;
 * settings.set of the API changes one until then.
 */
#include <stddef.h>

#include "util/config.h"

struct agent_limits;
struct api_limits;
struct gpuobsd;

struct settings_source {
        const char *file;         /* NULL: CONFIG_FILE_DEFAULT, which may be missing */
        char *const *assignments; /* KEY=VALUE of the command line */
        size_t assignment_count;
};

/* Fill a config (config_done() it). 0, or -errno with a sentence in error[] and nothing to free. */
int settings_load(const struct settings_source *source, struct config *ret_config, char *error,
                  size_t error_size);

/* The limits of the API's server. */
void settings_limits(const struct config *c, struct api_limits *ret_limits);
/* Those of the agents' server. */
void settings_agent_limits(const struct config *c, struct agent_limits *ret_limits);

/* Bring what the settings say into effect where they may change. Event loop's thread. */
void settings_apply(struct gpuobsd *d);

/*
 * Read everything again: what may change takes effect, one line in the log each;
 * one each also for what waits for the next start. A mistake changes nothing.
 */
void settings_reload(struct gpuobsd *d);

/*
 * Change one. -ENOENT no such setting, -EPERM it cannot change while the daemon
 * runs, -EINVAL bad value; error[] has the sentence.
 */
int settings_set(struct gpuobsd *d, const char *name, const char *value, char *error,
                 size_t error_size);
