/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The simulator's command line. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/sim/share_model.h"

#define SIMULATE_CASES_MAX    32
#define SIMULATE_POLICIES_MAX 8

/* Policies that run together: "a,x=1+b" is a with x set to 1, and b below it. */
struct simulate_case {
        char *copy;                            /* what the next ones point into */
        char *policies[SIMULATE_POLICIES_MAX]; /* "name,variable=value,..." */
        size_t count;
};

struct simulate_options {
        const char *trace;   /* file; NULL: a pattern */
        const char *pattern; /* NULL with a trace, or with clients */
        const char *save;    /* write the trace there */
        uint32_t gpus;       /* 0: as many as the trace has */
        bool no_peer;        /* no link between them */
        uint64_t gpu_bytes;
        uint32_t percent, launches, ahead;
        uint64_t seed;
        bool json, list;
        struct simulate_case cases[SIMULATE_CASES_MAX];
        size_t case_count;
        struct share_client clients[SHARE_CLIENTS_MAX];
        size_t client_count;
        uint64_t seconds; /* of shares */
};

/* Ends the program with 2 when the command line makes no sense, with 0 after --help. */
void simulate_options_parse(int argc, char **argv, struct simulate_options *ret_options);
void simulate_options_done(struct simulate_options *o);
