/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "table.h"

static const struct table_column columns[] = {
        {"SETTING", 0}, {"VALUE", 0}, {"CHANGES", 0}, {"MEANING", TABLE_SHRINK}, {0}};

/* ---- settings ---- */

static void show(struct ctl *ctl, const struct gpuobs_settings *all)
{
        struct table *t = table_new(columns);

        for (size_t i = 0; i < all->n_settings; i++) {
                const struct gpuobs_setting *s = &all->settings[i];

                if (ctl->json) {
                        json_print(SCHEMA_OF(setting), s);
                        continue;
                }
                table_cell(t, s->name);
                table_cell(t, *s->value ? s->value : NULL);
                table_cell(t, s->run_time ? "at once" : "with a restart");
                table_cell(t, s->doc);
        }
        if (!ctl->json)
                table_flush(t);
        table_free(t);
}

static int run_settings(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
        struct gpuobs_settings *all;
        int r;

        ctl_option(ctl, self, NULL, argc, argv, options);
        ctl_no_arguments(self, argc, argv);
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_settings_get(ctl->gpuobs, NULL, &all);
        if (r < 0)
                return ctl_failed(ctl, r);
        show(ctl, all);
        gpuobs_settings_free(all);
        return CTL_OK;
}

const struct ctl_command command_settings = {
        "settings", "[OPTIONS]", "The daemon's settings, see gpuobsd.conf(5).", "", run_settings};

/* ---- set ---- */

static int run_set(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
        struct gpuobs_set_params params;
        struct gpuobs_set_result *result;
        int r;

        ctl_option(ctl, self, NULL, argc, argv, options);
        if (argc - optind != 2)
                ctl_usage(self, "takes a setting and its value");
        params = (struct gpuobs_set_params){.name = argv[optind], .value = argv[optind + 1]};
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_settings_set(ctl->gpuobs, &params, &result);
        if (r < 0)
                return ctl_failed(ctl, r);
        if (ctl->json)
                json_print(SCHEMA_OF(setting), &result->setting);
        else
                printf("%s is %s until the settings are read again\n", result->setting.name,
                       *result->setting.value ? result->setting.value : "empty");
        gpuobs_set_result_free(result);
        return CTL_OK;
}

const struct ctl_command command_set = {"set", "[OPTIONS] SETTING VALUE",
                                        "Change a setting while the daemon runs (administrators).",
                                        "", run_set};
