/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sim/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/sim/generate.h"
#include "util/macro.h"

static _Noreturn void usage(const char *format, ...) _printf_(1, 2);

static _Noreturn void usage(const char *format, ...)
{
        va_list args;

        fprintf(stderr, "gpuobsctl policy simulate: ");
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fprintf(stderr, "\nTry: gpuobsctl policy simulate --help\n");
        exit(2);
}

static void print_patterns(void)
{
#define X(name, doc) printf("  %-10s %s\n", #name, doc);
        GENERATE_PATTERNS(X)
#undef X
}

static _Noreturn void help(void)
{
        printf("gpuobsctl policy simulate (--pattern NAME | --trace FILE | --client ...)\n"
               "                          [--policy NAME]... [OPTIONS]\n"
               "Compares policies on a model of a GPU's managed memory, or of its time. Needs\n"
               "root for eBPF, neither a GPU nor the daemon.\n\n"
               "      --policy P       a policy: an object's file, or the name of one installed;\n"
               "                       P,VAR=VALUE,... with variables set; P@N for GPU N alone;\n"
               "                       P+Q several at once,\n"
               "                       the first with the highest precedence; may be repeated\n"
               "      --pattern NAME   make up memory use: see --list\n"
               "      --trace FILE     replay a trace\n"
               "      --gpus N         several GPUs, at most %d, the pattern on each;\n"
               "                       of a trace: as many as it has\n"
               "      --no-peer        no link between them: memory goes through the host\n"
               "      --gpu-mib N      memory of each GPU, default 1024\n"
               "      --percent N      memory used, of the GPU's, default 150\n"
               "      --launches N     default 2000\n"
               "      --seed N         default 1: the same seed, the same trace\n"
               "      --ahead N        launches the CPU is ahead of the GPU, default 8\n"
               "      --save FILE      keep the trace\n"
               "      --client NAME,kernel_us=N[,period_us=N][,burst=N][,group=N]\n"
               "                               [,deadline_us=N]\n"
               "                       a process that shares the GPU's time; may be repeated\n"
               "      --seconds N      of that, default 10\n"
               "      --json           one object per line\n"
               "      --list           the patterns\n",
               UVM_TRACE_GPUS);
        exit(0);
}

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most)
{
        unsigned long long n;
        char *end;

        errno = 0;
        n = strtoull(text, &end, 10);
        if (errno || end == text || *end || text[0] == '-' || n < least || n > most)
                usage("%s: \"%s\" is not a number from %llu to %llu", option, text,
                      (unsigned long long)least, (unsigned long long)most);
        return n;
}

static void add_case(struct simulate_options *o, const char *text)
{
        struct simulate_case *c = &o->cases[o->case_count];
        char *next;

        if (o->case_count == SIMULATE_CASES_MAX)
                usage("--policy: at most %d", SIMULATE_CASES_MAX);
        *c = (struct simulate_case){.copy = strdup(text)};
        next = c->copy;
        while (next) {
                if (c->count == SIMULATE_POLICIES_MAX)
                        usage("--policy: at most %d at once", SIMULATE_POLICIES_MAX);
                c->policies[c->count++] = strsep(&next, "+");
        }
        o->case_count++;
}

static void client_member(struct share_client *c, const char *name, const char *value)
{
        const uint64_t us = 1000, most = 1000000000;

        if (!strcmp(name, "kernel_us"))
                c->kernel_ns = number(name, value, 1, most) * us;
        else if (!strcmp(name, "period_us"))
                c->period_ns = number(name, value, 0, most) * us;
        else if (!strcmp(name, "deadline_us"))
                c->deadline_ns = number(name, value, 0, most) * us;
        else if (!strcmp(name, "burst"))
                c->burst = (uint32_t)number(name, value, 1, SHARE_QUEUE_MAX / SHARE_CLIENTS_MAX);
        else if (!strcmp(name, "group"))
                c->group = (uint32_t)number(name, value, 0, SHARE_CLIENTS_MAX - 1);
        else
                usage("--client: there is no %s", name);
}

static void add_client(struct simulate_options *o, char *text)
{
        struct share_client *c = &o->clients[o->client_count];
        char *next = text, *word;

        if (o->client_count == SHARE_CLIENTS_MAX)
                usage("--client: at most %d", SHARE_CLIENTS_MAX);
        *c = (struct share_client){
                .name = strsep(&next, ","), .group = (uint32_t)o->client_count, .burst = 64};
        while ((word = strsep(&next, ","))) {
                char *equals = strchr(word, '=');

                if (!equals)
                        usage("--client: \"%s\" is not NAME=NUMBER", word);
                *equals = '\0';
                client_member(c, word, equals + 1);
        }
        if (!c->kernel_ns)
                usage("--client: %s has no kernel_us", c->name);
        o->client_count++;
}

static void take(struct simulate_options *o, int option)
{
        switch (option) {
        case 'P':
                add_case(o, optarg);
                break;
        case 'p':
                o->pattern = optarg;
                break;
        case 't':
                o->trace = optarg;
                break;
        case 'g':
                o->gpu_bytes = number("--gpu-mib", optarg, 128, 1 << 20) << 20;
                break;
        case 'G':
                o->gpus = (uint32_t)number("--gpus", optarg, 1, UVM_TRACE_GPUS);
                break;
        case 'n':
                o->no_peer = true;
                break;
        case 'c':
                o->percent = (uint32_t)number("--percent", optarg, 50, 1000);
                break;
        case 'l':
                o->launches = (uint32_t)number("--launches", optarg, 1, 1000000);
                break;
        case 's':
                o->seed = number("--seed", optarg, 0, UINT64_MAX);
                break;
        case 'a':
                o->ahead = (uint32_t)number("--ahead", optarg, 0, 1024);
                break;
        case 'w':
                o->save = optarg;
                break;
        case 'C':
                add_client(o, optarg);
                break;
        case 'S':
                o->seconds = number("--seconds", optarg, 1, 3600);
                break;
        case 'j':
                o->json = true;
                break;
        case 'L':
                o->list = true;
                break;
        case 'h':
                help();
        }
}

void simulate_options_parse(int argc, char **argv, struct simulate_options *ret_options)
{
        static const struct option options[] = {{"policy", required_argument, NULL, 'P'},
                                                {"pattern", required_argument, NULL, 'p'},
                                                {"trace", required_argument, NULL, 't'},
                                                {"gpu-mib", required_argument, NULL, 'g'},
                                                {"gpus", required_argument, NULL, 'G'},
                                                {"no-peer", no_argument, NULL, 'n'},
                                                {"percent", required_argument, NULL, 'c'},
                                                {"launches", required_argument, NULL, 'l'},
                                                {"seed", required_argument, NULL, 's'},
                                                {"ahead", required_argument, NULL, 'a'},
                                                {"save", required_argument, NULL, 'w'},
                                                {"client", required_argument, NULL, 'C'},
                                                {"seconds", required_argument, NULL, 'S'},
                                                {"json", no_argument, NULL, 'j'},
                                                {"list", no_argument, NULL, 'L'},
                                                {"help", no_argument, NULL, 'h'},
                                                {0}};
        struct simulate_options *o = ret_options;
        int option;

        *o = (struct simulate_options){.gpu_bytes = 1ull << 30,
                                       .percent = 150,
                                       .launches = 2000,
                                       .ahead = 8,
                                       .seed = 1,
                                       .seconds = 10};
        opterr = 0;
        while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
                if (option == ':')
                        usage("%s needs a value", argv[optind - 1]);
                if (option == '?')
                        usage("there is no option %s", argv[optind - 1]);
                take(o, option);
        }
        if (optind < argc)
                usage("does not take \"%s\"", argv[optind]);
        if (o->list) {
                print_patterns();
                exit(0);
        }
        if ((o->pattern != NULL) + (o->trace != NULL) + (o->client_count > 0) != 1)
                usage("give one of --pattern, --trace and --client");
}

void simulate_options_done(struct simulate_options *o)
{
        for (size_t i = 0; i < o->case_count; i++)
                free(o->cases[i].copy);
}
