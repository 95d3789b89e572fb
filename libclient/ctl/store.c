/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "ctl.h"
#include "json.h"

#define TIMEOUT_MS 3600000 /* the daemon's own limit comes first: query_timeout_ms */

/* ---- flush ---- */

static int run_flush(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
        struct gpuobs_flushed *result;
        int r;

        ctl_option(ctl, self, NULL, argc, argv, options);
        ctl_no_arguments(self, argc, argv);
        r = ctl_connect(ctl);
        if (r)
                return r;
        gpuobs_set_timeout(ctl->gpuobs, TIMEOUT_MS);
        r = gpuobs_store_flush(ctl->gpuobs, NULL, &result);
        if (r < 0)
                return ctl_failed(ctl, r);
        if (ctl->json)
                json_print(SCHEMA_OF(flushed), result);
        gpuobs_flushed_free(result);
        return CTL_OK;
}

const struct ctl_command command_flush = {
        "flush", "[OPTIONS]", "Wait until finished launches are in the database (administrators).",
        "", run_flush};

/* ---- prune ---- */

enum { OPTION_OLDER_THAN = OPTION_OWN, OPTION_SUMS };

static int run_prune(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {
                CTL_COMMON_OPTIONS,
                {"older-than", required_argument, NULL, OPTION_OLDER_THAN},
                {"sums", no_argument, NULL, OPTION_SUMS},
                {0},
        };
        struct gpuobs_prune_params params = {0};
        struct gpuobs_pruned *result;
        bool has_age = false;
        int option, r;

        while ((option = ctl_option(ctl, self, NULL, argc, argv, options)) != -1) {
                if (option == OPTION_SUMS) {
                        params.has_sums = params.sums = true;
                } else {
                        has_age = true;
                        params.older_than_s =
                                ctl_duration_ns(self, "older-than", optarg) / 1000000000;
                }
        }
        ctl_no_arguments(self, argc, argv);
        if (!has_age)
                ctl_usage(self, "say how old launches must be: --older-than 7d (0 for all)");
        r = ctl_connect(ctl);
        if (r)
                return r;
        gpuobs_set_timeout(ctl->gpuobs, TIMEOUT_MS);
        r = gpuobs_store_prune(ctl->gpuobs, &params, &result);
        if (r < 0)
                return ctl_failed(ctl, r);
        if (ctl->json)
                json_print(SCHEMA_OF(pruned), result);
        else
                printf("%" PRIu64 " launches deleted\n", result->launches);
        gpuobs_pruned_free(result);
        return CTL_OK;
}

const struct ctl_command command_prune = {
        "prune", "[OPTIONS] --older-than DURATION",
        "Delete old launches from the database (administrators).",
        "      --older-than DURATION   e.g. 12h, 7d; 0 for all\n"
        "      --sums                  the sums per minute as well\n\n",
        run_prune};
