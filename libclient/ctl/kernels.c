/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "ctl.h"
#include "demangle.h"
#include "format.h"
#include "json.h"
#include "table.h"

static const struct table_column columns[] = {
        {"KERNEL", TABLE_SHRINK},   {"LAUNCHES", TABLE_RIGHT},  {"TOTAL", TABLE_RIGHT},
        {"AVG", TABLE_RIGHT},       {"P50", TABLE_RIGHT},       {"P95", TABLE_RIGHT},
        {"P99", TABLE_RIGHT},       {"MAX", TABLE_RIGHT},       {"QUEUE-P50", TABLE_RIGHT},
        {"QUEUE-P99", TABLE_RIGHT}, {"QUEUE-MAX", TABLE_RIGHT}, {0},
};

static void cell(struct table *t, bool known, uint64_t ns)
{
        table_cell(t, format_known_duration(known, (int64_t)ns));
}

static void add_row(struct table *t, const struct gpuobs_kernel *k)
{
        table_cell(t, demangle(k->kernel));
        table_cell(t, format_count(k->launches));
        cell(t, k->has_execution, k->execution.total_ns);
        cell(t, k->has_execution, k->execution.avg_ns);
        cell(t, k->has_execution, k->execution.p50_ns);
        cell(t, k->has_execution, k->execution.p95_ns);
        cell(t, k->has_execution, k->execution.p99_ns);
        cell(t, k->has_execution, k->execution.max_ns);
        cell(t, k->has_queue, k->queue.p50_ns);
        cell(t, k->has_queue, k->queue.p99_ns);
        cell(t, k->has_queue, k->queue.max_ns);
}

static void show(struct ctl *ctl, const struct gpuobs_kernels *kernels)
{
        struct table *t = table_new(columns);

        for (size_t i = 0; i < kernels->n_kernels; i++) {
                if (ctl->json)
                        json_print(SCHEMA_OF(kernel), &kernels->kernels[i]);
                else
                        add_row(t, &kernels->kernels[i]);
        }
        if (!ctl->json)
                table_flush(t);
        table_free(t);
        if (kernels->has_rows_from_ns)
                fprintf(stderr,
                        "gpuobsctl: launches before %s are deleted: counted by whole minutes, "
                        "percentiles within 6 %%\n",
                        format_time(kernels->rows_from_ns));
        if (kernels->truncated)
                fprintf(stderr, "gpuobsctl: there are more kernels; see --limit\n");
}

static int run(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv)
{
        static const struct option options[] = {CTL_COMMON_OPTIONS, CTL_FILTER_OPTIONS, {0}};
        struct gpuobs_kernels_params p = {0};
        struct gpuobs_kernels *kernels;
        struct ctl_filter f = {0};
        int r;

        ctl_option(ctl, self, &f, argc, argv, options);
        ctl_no_arguments(self, argc, argv);
        p = (struct gpuobs_kernels_params){
                .has_since_ns = f.has_since,
                .since_ns = f.since_ns,
                .has_until_ns = f.has_until,
                .until_ns = f.until_ns,
                .has_pid = f.has_pid,
                .pid = f.pid,
                .has_gpu = f.has_gpu,
                .gpu = f.gpu,
                .kernel = f.kernel,
                .has_limit = f.has_limit,
                .limit = f.limit,
        };
        r = ctl_connect(ctl);
        if (r)
                return r;
        r = gpuobs_kernels_stats(ctl->gpuobs, &p, &kernels);
        if (r < 0)
                return ctl_failed(ctl, r);
        show(ctl, kernels);
        ctl_warn_losses(&kernels->losses);
        gpuobs_kernels_free(kernels);
        return CTL_OK;
}

const struct ctl_command command_kernels = {
        "kernels", "[OPTIONS]", "Statistics per kernel, by total execution time.",
        "      --since AGO     launches of the last AGO: 10s, 500ms, 5m, 1h\n"
        "      --until AGO     launches before AGO\n"
        "      --pid PID       only this process\n"
        "      --gpu N         only this GPU\n"
        "      --kernel GLOB   only kernels whose (mangled) name matches: * ? [a-z]\n"
        "      --limit N       at most N kernels, default 1000\n"
        "\n"
        "TOTAL to MAX are of the execution on the GPU; QUEUE from the call's return to\n"
        "the start on the GPU.\n\n",
        run};
