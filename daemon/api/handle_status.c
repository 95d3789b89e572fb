/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "api/handlers.h"
#include "api/rows.h"
#include "util/macro.h"
#include "util/time.h"

static uint64_t rss_bytes(void)
{
        _cleanup_fclose_ FILE *f = fopen("/proc/self/statm", "re");
        unsigned long long pages;

        if (!f || fscanf(f, "%*u %llu", &pages) != 1)
                return 0;
        return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int add_gpus(struct codec_arena *a, const struct api_state *state, struct gpuobs_status *st)
{
        st->gpus = codec_arena_alloc(a, (state->gpu_count + 1) * sizeof(*st->gpus));
        if (!st->gpus)
                return -1;
        for (size_t i = 0; i < state->gpu_count; i++) {
                const struct api_gpu *g = &state->gpus[i];

                st->gpus[st->n_gpus++] = (struct gpuobs_gpu){
                        .gpu = g->gpu,
                        .uuid = rows_text(g->uuid),
                        .clock = g->clock,
                        .has_drift_ppb = g->has_drift,
                        .drift_ppb = g->drift_ppb,
                        .has_clock_error_ns = g->has_clock_error,
                        .clock_error_ns = g->clock_error_ns,
                };
        }
        return 0;
}

static int add_problems(struct codec_arena *a, const struct api_state *state,
                        struct gpuobs_status *st)
{
        st->problems = codec_arena_alloc(a, (state->problem_count + 1) * sizeof(*st->problems));
        if (!st->problems)
                return -1;
        for (size_t i = 0; i < state->problem_count; i++) {
                st->problems[i].name = state->problems[i].name;
                st->problems[i].doc = state->problems[i].text;
        }
        st->n_problems = state->problem_count;
        return 0;
}

static void fill_status(struct api_call *call, const struct api_state *state,
                        struct gpuobs_status *st)
{
        *st = (struct gpuobs_status){
                .version = GPUOBS_VERSION,
                .pid = (uint32_t)getpid(),
                .now_ns = now_ns(),
                .rss_bytes = rss_bytes(),
                .libraries = state->libraries,
                .processes = state->processes,
                .agents = state->agents,
                .connections = call->server->connection_count,
                .subscriptions = call->server->stream_count,
                .store = {.path = state->store_path ? state->store_path : "",
                          .bytes = state->store.bytes,
                          .launches = state->store.launches,
                          .queued = state->store.queued,
                          .failing = state->store.failing,
                          .error = rows_text(state->store.error)},
                .all_processes = call->peer.privileged,
        };
        st->uptime_ns = st->now_ns - state->started_ns;
}

void api_handle_status(struct api_call *call, const struct gpuobs_status_params *params)
{
        struct api_server *s = call->server;
        struct api_state state = {0};
        struct gpuobs_status st;

        s->backend->state(s->data, &state);
        fill_status(call, &state, &st);
        if (add_gpus(&call->arena, &state, &st) < 0 ||
            add_problems(&call->arena, &state, &st) < 0 ||
            rows_losses(s, api_call_uid(call), false, &call->arena, &st.losses) < 0)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, &st, NULL, 0);
}
