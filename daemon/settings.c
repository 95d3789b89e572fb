/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <errno.h>
#include <string.h>

#include "api/agent_server.h"
#include "api/server.h"
#include "daemon.h"
#include "programs.h"
#include "store/store.h"
#include "util/log.h"
#include "util/macro.h"

/* ---- reading ---- */

static int assign(struct config *c, const char *text, char *error, size_t error_size)
{
        char key[64], why[256] = "";
        const char *equals = strchr(text, '=');
        int r;

        if (!equals || (size_t)(equals - text) >= sizeof(key)) {
                snprintf(error, error_size, "write --set KEY=VALUE, not \"%s\"", text);
                return -EINVAL;
        }
        memcpy(key, text, (size_t)(equals - text));
        key[equals - text] = '\0';
        r = config_set(c, key, equals + 1, why, sizeof(why));
        if (r < 0)
                snprintf(error, error_size, "%s: %s", key, why);
        return r;
}

/* A file that was named must exist. */
static int load_file(struct config *c, const char *named, char *error, size_t error_size)
{
        const char *path = named ? named : CONFIG_FILE_DEFAULT;
        char why[256] = "";
        int r = config_load(c, path, why, sizeof(why));

        if (r == 0 || (r == -ENOENT && !named && !why[0]))
                return 0;
        snprintf(error, error_size, "%s: %s", path, why[0] ? why : strerror(-r));
        return r;
}

int settings_load(const struct settings_source *source, struct config *ret_config, char *error,
                  size_t error_size)
{
        struct config c;
        int r = config_init(&c);

        if (r < 0) {
                snprintf(error, error_size, "out of memory");
                return r;
        }
        r = load_file(&c, source->file, error, error_size);
        for (size_t i = 0; r == 0 && i < source->assignment_count; i++)
                r = assign(&c, source->assignments[i], error, error_size);
        if (r < 0)
                config_done(&c);
        else
                *ret_config = c;
        return r;
}

/* ---- changing ---- */

void settings_apply(struct gpuobsd *d)
{
        const struct config *c = d->config;
        struct agent_limits agents;
        struct api_limits limits;

        log_set_level(c->log_level);
        store_set_limits(d->store, c->retention_bytes, c->retention_age_s, c->retention_sums_s);
        settings_limits(c, &limits);
        api_server_set_limits(d->api, &limits);
        settings_agent_limits(c, &agents);
        agent_server_set_limits(d->agents, &agents);
        programs_rules_changed(d);
        /* poll_ms and agent_launches are looked up where they are used. */
}

void settings_limits(const struct config *c, struct api_limits *ret_limits)
{
        api_limits_default(ret_limits);
        ret_limits->connections = c->connections;
        ret_limits->connections_per_uid = c->connections_per_user;
        ret_limits->requests_per_uid = c->requests_per_user;
        ret_limits->streams_per_uid = c->streams_per_user;
        ret_limits->bytes_per_uid = c->unread_per_user;
        ret_limits->query_timeout_ms = c->query_timeout_ms;
}

void settings_agent_limits(const struct config *c, struct agent_limits *ret_limits)
{
        *ret_limits = (struct agent_limits)AGENT_LIMITS_DEFAULT;
        ret_limits->per_user = c->agents_per_user;
}

/* Take over one setting, if it differs and may; say so. */
static void take_over(struct config *now, const struct config *fresh,
                      const struct config_setting *s)
{
        char old_value[CONFIG_TEXT_MAX], new_value[CONFIG_TEXT_MAX], error[256];

        config_get(now, s, old_value, sizeof(old_value));
        config_get(fresh, s, new_value, sizeof(new_value));
        if (strcmp(old_value, new_value) == 0)
                return;
        if (!s->run_time)
                log_notice("%s changes to \"%s\" with the next start (systemctl restart gpuobsd)",
                           s->name, new_value);
        else if (config_set(now, s->name, new_value, error, sizeof(error)) == 0)
                log_notice("%s is \"%s\" now", s->name, new_value);
}

void settings_reload(struct gpuobsd *d)
{
        struct config fresh;
        char error[512] = "";

        if (settings_load(d->source, &fresh, error, sizeof(error)) < 0) {
                log_error("%s; the settings stay as they were", error);
                return;
        }
        for (size_t i = 0; i < config_setting_count; i++)
                take_over(d->config, &fresh, &config_settings[i]);
        config_done(&fresh);
        settings_apply(d);
}

int settings_set(struct gpuobsd *d, const char *name, const char *value, char *error,
                 size_t error_size)
{
        const struct config_setting *s = config_find(name);
        int r;

        if (s && !s->run_time) {
                snprintf(error, error_size,
                         "%s cannot change while gpuobsd runs: set it in gpuobsd.conf and restart",
                         name);
                return -EPERM;
        }
        r = config_set(d->config, name, value, error, error_size);
        if (r < 0)
                return r;
        log_notice("%s is \"%s\" now, until the settings are read again", name, value);
        settings_apply(d);
        return 0;
}
