/* SPDX-License-Identifier: Apache-2.0 */

/* gpuobs-policy-simulate: what `gpuobsctl policy simulate` runs. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/object.h"
#include "policy/sim/generate.h"
#include "policy/sim/options.h"
#include "policy/sim/replay.h"
#include "util/macro.h"
#include "util/time.h"

#ifndef GPUOBS_POLICY_PATH
#define GPUOBS_POLICY_PATH "/usr/local/libexec/gpuobsd/policies"
#endif

/* ---- policies ---- */

/* What a case's policies did, all together. */
struct summary {
        const struct simulate_case *of;
        uint64_t asked, done, runs, run_ns;
};

static FILE *open_object(const char *name)
{
        char path[512];
        FILE *f = fopen(name, "re");

        if (f || strchr(name, '/'))
                return f;
        snprintf(path, sizeof(path), "%s/%s%s", GPUOBS_POLICY_PATH, name,
                 strstr(name, ".bpf.o") ? "" : ".bpf.o");
        return fopen(path, "re");
}

static int read_object(const char *name, char **ret_bytes, size_t *ret_size)
{
        _cleanup_fclose_ FILE *f = open_object(name);
        _cleanup_free_ char *bytes = malloc(POLICY_OBJECT_BYTES_MAX + 1);

        if (!f || !bytes) {
                fprintf(stderr, "%s: %s; give an object's file, or the name of a policy in %s\n",
                        name, strerror(errno), GPUOBS_POLICY_PATH);
                return -ENOENT;
        }
        *ret_size = fread(bytes, 1, POLICY_OBJECT_BYTES_MAX + 1, f);
        *ret_bytes = TAKE_PTR(bytes);
        return 0;
}

/* "x=1": the simulated time a policy may use is not that of the machine, so there are no limits. */
static int set(struct policy_engine *e, const char *name, char *setting)
{
        char *equals = strchr(setting, '='), error[256];
        int r;

        if (!equals) {
                fprintf(stderr, "%s: \"%s\" is not VARIABLE=VALUE\n", name, setting);
                return -EINVAL;
        }
        *equals = '\0';
        r = policy_engine_set(e, name, setting, equals + 1, error, sizeof(error));
        *equals = '=';
        if (r < 0)
                fprintf(stderr, "%s: %s\n", name, error);
        return r;
}

static void short_name(const char *file, size_t index, char *name, size_t size)
{
        const char *slash = strrchr(file, '/');
        char *dot;

        snprintf(name, size, "%.24s", slash ? slash + 1 : file);
        dot = strstr(name, ".bpf.o");
        if (dot)
                *dot = '\0';
        snprintf(name + strlen(name), size - strlen(name), ".%zu", index + 1);
}

/* "NAME@1": for GPU 1 alone. Cuts that off. */
static bool take_gpu(char *file, uint32_t *ret_gpu)
{
        char *at = strrchr(file, '@'), *end;
        unsigned long gpu = at ? strtoul(at + 1, &end, 10) : 0;

        if (!at || end == at + 1 || *end || gpu >= UVM_TRACE_GPUS)
                return false;
        *at = '\0';
        *ret_gpu = (uint32_t)gpu;
        return true;
}

static int load_one(struct policy_engine *e, const char *text, size_t index)
{
        static const struct policy_limits none = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
        _cleanup_free_ char *copy = strdup(text), *bytes = NULL;
        char *next = copy, *file = strsep(&next, ","), *word, name[POLICY_NAME_MAX], error[400];
        struct policy_options options = {
                .name = name, .precedence = -(int32_t)index, .may_discard = true, .limits = none};
        size_t size;
        int r;

        options.has_gpu = take_gpu(file, &options.gpu);
        r = read_object(file, &bytes, &size);
        if (r < 0)
                return r;
        short_name(file, index, name, sizeof(name));
        r = policy_engine_load(e, &options, bytes, size, 0, error, sizeof(error));
        if (r < 0)
                fprintf(stderr, "%s: %s\n", file, error);
        while (r == 0 && (word = strsep(&next, ",")))
                r = set(e, name, word);
        return r;
}

static int load(struct policy_engine *e, void *data)
{
        const struct summary *s = data;
        int r = 0;

        for (size_t i = 0; i < s->of->count && r == 0; i++)
                r = load_one(e, s->of->policies[i], i);
        return r;
}

static int add_policy(void *data, const struct policy_info *info)
{
        struct summary *s = data;

        if (info->state != POLICY_ACTIVE)
                fprintf(stderr, "%s was ejected: %s\n", info->options->name, info->reason);
        s->asked += info->stats->asked;
        s->done += info->stats->done;
        s->runs += info->stats->runs;
        s->run_ns += info->stats->run_ns;
        return 0;
}

static void summarize(struct policy_engine *e, void *data)
{
        policy_engine_each(e, add_policy, data);
}

/* "a+b,x=1" of "dir/a.bpf.o+dir/b.bpf.o,x=1": what a row is called. */
static const char *label(const struct simulate_case *c)
{
        static char text[128];
        size_t used = 0;

        for (size_t i = 0; i < c->count && used < sizeof(text) - 1; i++) {
                const char *policy = c->policies[i], *comma = strchrnul(policy, ','), *end, *rest;

                for (const char *at = policy; at < comma; at++)
                        policy = *at == '/' ? at + 1 : policy;
                end = strstr(policy, ".bpf.o");
                end = end && end < comma ? end : comma;
                rest = end < comma ? end + strlen(".bpf.o") : comma;
                used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%.*s%s", i ? "+" : "",
                                         (int)(end - policy), policy, rest);
        }
        return text;
}

/* ... as JSON has it. */
static void print_quoted(const char *text)
{
        putchar('"');
        for (; *text; text++) {
                if ((unsigned char)*text < ' ')
                        printf("\\u%04x", *text);
                else
                        printf("%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
        }
        putchar('"');
}

/* ---- managed memory ---- */

static double ms(uint64_t ns)
{
        return (double)ns / 1e6;
}

/* A row: all of a case, or what of it is of one GPU. */
struct row {
        const char *name;
        int gpu; /* -1: all */
        uint64_t time_ns;
        const struct uvm_model_stats *stats, *driver; /* driver: what the others are compared to */
        const struct summary *summary;                /* NULL: policies are counted for all GPUs */
};

static void print_row_json(const struct row *row)
{
        const struct uvm_model_stats *m = row->stats;

        printf("{\"policy\":");
        print_quoted(row->name);
        if (row->gpu >= 0)
                printf(",\"gpu\":%d", row->gpu);
        else
                printf(",\"time_ns\":%" PRIu64, row->time_ns);
        printf(",\"stall_ns\":%" PRIu64 ",\"faults\":%" PRIu64 ",\"batches\":%" PRIu64
               ",\"fetches\":%" PRIu64 ",\"to_gpu_bytes\":%" PRIu64 ",\"to_host_bytes\":%" PRIu64
               ",\"peer_bytes\":%" PRIu64 ",\"evictions\":%" PRIu64,
               m->stall_ns, m->faults, m->batches, m->fetches, m->to_gpu_bytes, m->to_host_bytes,
               m->peer_bytes, m->evictions);
        if (row->summary)
                printf(",\"asked\":%" PRIu64 ",\"done\":%" PRIu64, row->summary->asked,
                       row->summary->done);
        printf("}\n");
}

static void print_row(const struct row *row)
{
        const struct uvm_model_stats *m = row->stats;
        double stall = row->driver->stall_ns
                               ? 100.0 * (double)m->stall_ns / (double)row->driver->stall_ns
                               : 100;
        char time[32] = "", name[32];

        snprintf(name, sizeof(name), "  GPU %d", row->gpu);
        if (row->gpu < 0)
                snprintf(time, sizeof(time), "%.1f", ms(row->time_ns));
        printf("%-32s %10s %10.1f %6.1f %9" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64
               " %9" PRIu64,
               row->gpu < 0 ? row->name : name, time, ms(m->stall_ns), stall, m->faults, m->fetches,
               m->to_gpu_bytes >> 20, m->to_host_bytes >> 20, m->evictions);
        if (row->summary)
                printf(" %8" PRIu64 " %8" PRIu64, row->summary->asked, row->summary->done);
        printf("\n");
}

static void print_memory(const struct simulate_options *o, uint32_t gpus, const char *name,
                         const struct replay_result *r, const struct summary *s,
                         const struct replay_result *driver)
{
        void (*print)(const struct row *row) = o->json ? print_row_json : print_row;
        struct row row = {.name = name,
                          .gpu = -1,
                          .time_ns = r->time_ns,
                          .stats = &r->memory,
                          .driver = &driver->memory,
                          .summary = s};

        print(&row);
        row.summary = NULL;
        for (uint32_t gpu = 0; gpus > 1 && gpu < gpus; gpu++) {
                row.gpu = (int)gpu;
                row.stats = &r->gpus[gpu];
                row.driver = &driver->gpus[gpu];
                print(&row);
        }
}

static int open_trace(const struct simulate_options *o, struct uvm_trace **ret_trace)
{
        const struct generate_options options = {.pattern = o->pattern,
                                                 .gpus = o->gpus,
                                                 .gpu_bytes = o->gpu_bytes,
                                                 .percent = o->percent,
                                                 .launches = o->launches,
                                                 .seed = o->seed};
        char error[256];
        int r;

        if (o->trace) {
                r = uvm_trace_load(o->trace, error, sizeof(error), ret_trace);
                if (r < 0)
                        fprintf(stderr, "%s: %s\n", o->trace,
                                r == -ENOMEM ? "out of memory" : error);
                return r;
        }
        r = generate(&options, ret_trace);
        if (r == -EINVAL)
                fprintf(stderr,
                        "%s: so little memory is too little for it; raise --gpu-mib or "
                        "--percent\n",
                        o->pattern);
        else if (r < 0)
                fprintf(stderr, "%s: %s\n", o->pattern,
                        r == -ENOENT ? "there is no such pattern; see --list" : strerror(-r));
        return r;
}

static int run_memory_cases(const struct simulate_options *o, const struct uvm_trace *t)
{
        uint32_t gpus = o->gpus ? o->gpus : uvm_trace_gpus(t);
        struct replay_options options = {.gpus = gpus,
                                         .gpu_bytes = o->gpu_bytes,
                                         .costs = uvm_costs_h200,
                                         .ahead = o->ahead};
        struct replay_result driver, result;
        const struct summary nothing = {0};
        int r;

        if (o->no_peer)
                options.costs.peer_mbps = 0;
        r = replay(t, &options, &driver);
        if (r == -ENODEV)
                fprintf(stderr, "%s: it has %u GPUs; give --gpus %u, or leave it out\n",
                        o->trace ? o->trace : o->pattern, uvm_trace_gpus(t), uvm_trace_gpus(t));
        if (r < 0)
                return r;
        print_memory(o, gpus, "driver", &driver, &nothing, &driver);
        options.prepare = load;
        options.finish = summarize;
        for (size_t i = 0; i < o->case_count && r == 0; i++) {
                struct summary s = {.of = &o->cases[i]};

                options.data = &s;
                r = replay(t, &options, &result);
                if (r == 0)
                        print_memory(o, gpus, label(&o->cases[i]), &result, &s, &driver);
        }
        options.prepare = NULL;
        options.optimum = true;
        if (r == 0)
                r = replay(t, &options, &result);
        if (r == 0)
                print_memory(o, gpus, "driver, best victims", &result, &nothing, &driver);
        return r;
}

static int run_memory(const struct simulate_options *o)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = NULL;
        int r = open_trace(o, &t);
        uint32_t gpus;

        if (r < 0)
                return r;
        gpus = o->gpus ? o->gpus : uvm_trace_gpus(t);
        if (o->save) {
                r = uvm_trace_save(t, o->save);
                if (r < 0) {
                        fprintf(stderr, "%s: %s\n", o->save, strerror(-r));
                        return r;
                }
        }
        if (!o->json)
                printf("%s, %zu records, %u GPU%s of %" PRIu64
                       " MiB; times in ms, memory that moved in MiB\n\n"
                       "%-32s %10s %10s %6s %9s %8s %8s %8s %9s %8s %8s\n",
                       t->head.pattern, t->count, gpus, gpus == 1 ? "" : "s", o->gpu_bytes >> 20,
                       "POLICY", "TIME", "STALL", "%", "FAULTS", "FETCHES", "TO GPU", "TO HOST",
                       "EVICTIONS", "ASKED", "DONE");
        return run_memory_cases(o, t);
}

/* ---- time ---- */

static void print_client(const struct simulate_options *o, const char *policy,
                         const struct share_client *c, const struct share_result *r,
                         uint64_t all_ns)
{
        uint64_t mean_ns = r->bursts ? r->latency_ns / r->bursts : 0;
        double share = all_ns ? 100.0 * (double)r->active_ns / (double)all_ns : 0;

        if (o->json) {
                printf("{\"policy\":");
                print_quoted(policy);
                printf(",\"client\":");
                print_quoted(c->name);
                printf(",\"active_ns\":%" PRIu64 ",\"kernels\":%" PRIu64 ",\"bursts\":%" PRIu64
                       ",\"mean_ns\":%" PRIu64 ",\"longest_ns\":%" PRIu64 ",\"missed\":%" PRIu64
                       "}\n",
                       r->active_ns, r->kernels, r->bursts, mean_ns, r->longest_ns, r->missed);
                return;
        }
        printf("%-24s %-12s %7.1f %9" PRIu64 " %8" PRIu64 " %10.3f %10.3f %8" PRIu64 "\n", policy,
               c->name, share, r->kernels, r->bursts, ms(mean_ns), ms(r->longest_ns), r->missed);
}

static int run_share_case(const struct simulate_options *o, const struct simulate_case *c)
{
        struct summary s = {.of = c};
        const struct share_options options = {.time_ns = o->seconds * NSEC_PER_SEC,
                                              .period_ns = 10 * NSEC_PER_MSEC,
                                              .switch_ns = 88 * NSEC_PER_USEC,
                                              .slice_us = 2048,
                                              .prepare = c ? load : NULL,
                                              .finish = summarize,
                                              .data = &s};
        struct share_result results[SHARE_CLIENTS_MAX];
        uint64_t all_ns = 0;
        int r = share_run(&options, o->clients, o->client_count, results);

        for (size_t i = 0; i < o->client_count && r == 0; i++)
                all_ns += results[i].active_ns;
        for (size_t i = 0; i < o->client_count && r == 0; i++)
                print_client(o, c ? label(c) : "driver", &o->clients[i], &results[i], all_ns);
        return r;
}

static int run_shares(const struct simulate_options *o)
{
        int r;

        if (!o->json)
                printf("%-24s %-12s %7s %9s %8s %10s %10s %8s\n", "POLICY", "CLIENT", "SHARE %",
                       "KERNELS", "BURSTS", "MEAN MS", "LONGEST", "MISSED");
        r = run_share_case(o, NULL);
        for (size_t i = 0; i < o->case_count && r == 0; i++)
                r = run_share_case(o, &o->cases[i]);
        return r;
}

int main(int argc, char **argv)
{
        struct simulate_options o;
        int r;

        simulate_options_parse(argc, argv, &o);
        r = o.client_count ? run_shares(&o) : run_memory(&o);
        simulate_options_done(&o);
        return r < 0 || fflush(stdout) ? 1 : 0;
}
