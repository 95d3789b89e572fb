/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobsctl gpus */
#include <inttypes.h>
#include <stdio.h>

#include "ctl.h"
#include "format.h"
#include "json.h"
#include "table.h"

static const struct table_column columns[] = {
        {"GPU", TABLE_RIGHT},
        {"NAME", TABLE_SHRINK},
        {"LOAD", TABLE_RIGHT},
        {"MEMORY", TABLE_RIGHT},
        {"OF", TABLE_RIGHT},
        {"SM-CLOCK", TABLE_RIGHT},
        {"POWER", TABLE_RIGHT},
        {"LIMIT", TABLE_RIGHT},
        {"TEMP", TABLE_RIGHT},
        {"ECC", TABLE_RIGHT},
        {"XID", TABLE_RIGHT},
        {"SLOWED-BY", 0},
        {0},
};

static const char *known(bool is_known, const char *format, double value)
{
        return is_known ? format_text(format, value) : NULL;
}

static void add_row(struct table *t, const struct gpuobs_gpu_state *g)
{
        table_cell(t, g->has_gpu ? format_count(g->gpu) : NULL);
        table_cell(t, g->name);
        table_cell(t, known(g->has_utilization, "%.0f %%", g->utilization));
        table_cell(t, g->has_memory_used ? format_bytes(g->memory_used) : NULL);
        table_cell(t, g->has_memory_total ? format_bytes(g->memory_total) : NULL);
        table_cell(t, known(g->has_sm_clock, "%.0f MHz", g->sm_clock));
        table_cell(t, known(g->has_power_mw, "%.0f W", g->power_mw / 1000.0));
        table_cell(t, known(g->has_power_limit_mw, "%.0f W", g->power_limit_mw / 1000.0));
        table_cell(t, known(g->has_temperature, "%.0f °C", g->temperature));
        table_cell(t, g->has_ecc_corrected && g->has_ecc_uncorrected
                              ? format_text("%" PRIu64 "+%" PRIu64, g->ecc_corrected,
                                            g->ecc_uncorrected)
                              : NULL);
        table_cell(t, g->has_last_xid
                              ? format_text("%" PRIu32 " (%" PRIu64 ")", g->last_xid, g->xids)
                              : NULL);
        table_cell(t, g->has_throttle_mask ? g->throttle ? g->throttle : "nothing" : NULL);
}

static void show(struct ctl *ctl, const struct gpuobs_gpu_states *s)
{
        struct table *t = table_new(columns);

        for (size_t i = 0; i < s->n_gpus; i++) {
                if (ctl->json)
                        json_print(SCHEMA_OF(gpu_state), &s->gpus[i]);
                else
                        add_row(t, &s->gpus[i]);
        }
        if (!ctl->json)
                table_flush(t);
        table_free(t);
        if (s->reason)
                fprintf(stderr, "gpuobsctl: %s\n", s->reason);
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
        struct gpuobs_gpu_states *states;
        int r;

        ctl_option(ctl, self, NULL, argc, argv, options);
        ctl_no_arguments(self, argc, argv);
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_gpus_list(ctl->gpuobs, NULL, &states);
        if (r < 0)
                return ctl_failed(ctl, r);
        show(ctl, states);
        gpuobs_gpu_states_free(states);
        return CTL_OK;
}

const struct ctl_command command_gpus = {
        "gpus", "[OPTIONS]", "Load, memory, clocks, power, temperature and errors of the GPUs.",
        "LOAD: share of the last sample period in which a kernel ran. ECC: corrected and\n"
        "uncorrected errors since the driver was loaded. XID: the last error event, and\n"
        "how many since the daemon started. SLOWED-BY: why clocks are below their\n"
        "highest.\n\n",
        run};
