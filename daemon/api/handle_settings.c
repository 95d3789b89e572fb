/* SPDX-License-Identifier: Apache-2.0 */

/* settings.get, settings.set */
#include <errno.h>
#include <string.h>

#include "api/handlers.h"
#include "api/internal.h"
#include "util/config.h"

/* False on no memory; the value is in the call's arena. */
static bool fill(struct api_call *call, const struct config_setting *s, struct gpuobs_setting *row)
{
        struct api_server *server = call->server;
        char text[CONFIG_TEXT_MAX], *value;

        config_get(server->backend->settings(server->data), s, text, sizeof(text));
        value = codec_arena_alloc(&call->arena, strlen(text) + 1);
        if (!value)
                return false;
        memcpy(value, text, strlen(text) + 1);
        *row = (struct gpuobs_setting){s->name, value, s->run_time, s->doc};
        return true;
}

static bool fill_all(struct api_call *call, struct gpuobs_settings *result)
{
        result->settings =
                codec_arena_alloc(&call->arena, config_setting_count * sizeof(*result->settings));
        if (!result->settings)
                return false;
        while (result->n_settings < config_setting_count) {
                size_t i = result->n_settings++;

                if (!fill(call, &config_settings[i], &result->settings[i]))
                        return false;
        }
        return true;
}

void api_handle_settings_get(struct api_call *call, const struct gpuobs_settings_params *params)
{
        struct gpuobs_settings result = {0};

        if (fill_all(call, &result))
                api_call_reply(call, &result, NULL, 0);
        else
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
}

void api_handle_settings_set(struct api_call *call, const struct gpuobs_set_params *params)
{
        struct api_server *s = call->server;
        struct gpuobs_set_result result = {0};
        char error[256] = "";
        int r = s->backend->set(s->data, params->name, params->value, error, sizeof(error));

        if (r == 0 && fill(call, config_find(params->name), &result.setting))
                api_call_reply(call, &result, NULL, 0);
        else if (r == 0 || r == -ENOMEM)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_fail(call, GPUOBS_ERROR_BAD_PARAMS, NULL, error);
}
