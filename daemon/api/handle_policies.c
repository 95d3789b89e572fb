/* SPDX-License-Identifier: Apache-2.0 */

/* policies.list, .load, .show, .change, .unload */
#include <errno.h>
#include <string.h>

#include "api/handlers.h"
#include "api/internal.h"
#include "policy/engine.h"
#include "util/log.h"
#include "util/time.h"

/* Rows gathered in the call's arena; texts stay the engine's, which does not change meanwhile. */
struct gathering {
        struct api_call *call;
        const char *name; /* of the one that is wanted; NULL all */
        struct gpuobs_policy policies[POLICIES_MAX];
        size_t count;
        struct gpuobs_policy_variable *variables;
        size_t variable_count, variable_room;
        bool failed;
};

static struct policy_engine *engine_of(struct api_call *call)
{
        struct api_server *s = call->server;

        return s->backend->policies(s->data);
}

/* ---- rows ---- */

static uint64_t fill_refusals(struct gathering *g, const struct policy_stats *s,
                              struct gpuobs_policy *row)
{
        uint64_t sum = 0;

        row->refusals =
                codec_arena_alloc(&g->call->arena, POLICY_REFUSED_COUNT * sizeof(*row->refusals));
        g->failed = g->failed || !row->refusals;
        for (int i = 0; i < POLICY_REFUSED_COUNT && row->refusals; i++) {
                sum += s->refused[i];
                if (s->refused[i])
                        row->refusals[row->n_refusals++] = (struct gpuobs_policy_refusal){
                                policy_refusal_names[i], s->refused[i], policy_refusal_texts[i]};
        }
        return sum;
}

static int gather_policy(void *data, const struct policy_info *info)
{
        static const enum gpuobs_policy_state states[] = {
                [POLICY_ACTIVE] = GPUOBS_POLICY_STATE_ACTIVE,
                [POLICY_DISABLED] = GPUOBS_POLICY_STATE_DISABLED,
                [POLICY_EJECTED] = GPUOBS_POLICY_STATE_EJECTED};
        struct gathering *g = data;
        const struct policy_options *o = info->options;
        const struct policy_stats *s = info->stats;
        struct gpuobs_policy *row = &g->policies[g->count];

        if (g->name && strcmp(o->name, g->name) != 0)
                return 0;
        *row = (struct gpuobs_policy){
                .name = o->name,
                .state = states[info->state],
                .reason = info->reason[0] ? info->reason : NULL,
                .precedence = o->precedence,
                .has_gpu = o->has_gpu,
                .gpu = o->gpu,
                .cgroup = o->cgroup,
                .process = o->process,
                .may_discard = o->may_discard,
                .loaded_ns = info->loaded_ns,
                .events = s->events,
                .skipped = s->skipped,
                .runs = s->runs,
                .run_ns = s->run_ns,
                .longest_ns = s->longest_ns,
                .asked = s->asked,
                .done = s->done,
                .waiting = s->waiting,
                .overrode = s->overrode,
                .bytes = s->bytes,
                .bytes_seen = s->bytes_seen,
                .settings = info->settings,
                .undone = s->undone,
                .not_undone = s->not_undone,
                .renewed = s->renewed,
                .unrenewed = s->unrenewed,
                .missed = s->missed,
                .untold = s->untold,
                .max_runs = o->limits.runs,
                .max_run_ns = o->limits.run_ns,
                .max_actions = o->limits.actions,
                .max_bytes = o->limits.bytes,
        };
        row->refused = fill_refusals(g, s, row);
        g->count++;
        return g->failed || g->count == POLICIES_MAX;
}

static const char *copy(struct gathering *g, const char *text)
{
        char *to = codec_arena_copy(&g->call->arena, text, strlen(text));

        g->failed = g->failed || !to;
        return to;
}

static int count_variable(void *data, const struct policy_variable *v)
{
        struct gathering *g = data;

        g->variable_room++;
        return 0;
}

static int gather_variable(void *data, const struct policy_variable *v)
{
        struct gathering *g = data;

        if (g->variable_count == g->variable_room)
                return 1;
        g->variables[g->variable_count++] = (struct gpuobs_policy_variable){
                .name = v->name,
                .type = copy(g, v->type),
                .value = copy(g, v->value),
                .parameter = v->declared,
                .has_low = v->bounded,
                .low = v->low,
                .has_high = v->bounded,
                .high = v->high,
                .doc = v->doc[0] ? v->doc : NULL,
        };
        return g->failed;
}

static void gather_variables(struct gathering *g)
{
        struct policy_engine *e = engine_of(g->call);

        (void)policy_engine_variables(e, g->name, count_variable, g);
        g->variables =
                codec_arena_alloc(&g->call->arena, (g->variable_room + 1) * sizeof(*g->variables));
        if (g->variables)
                (void)policy_engine_variables(e, g->name, gather_variable, g);
        else
                g->failed = true;
}

/* ---- answers ---- */

static void fail_unknown(struct api_call *call)
{
        api_call_fail_param(call, "name", "is not that of a loaded policy");
}

/* The one policy that is named; false: the call has been failed. */
static bool gather_one(struct gathering *g)
{
        policy_engine_each(engine_of(g->call), gather_policy, g);
        if (g->failed)
                api_call_fail_error(g->call, -ENOMEM, NULL);
        else if (!g->count)
                fail_unknown(g->call);
        return !g->failed && g->count;
}

/* ---- methods ---- */

void api_handle_policies_list(struct api_call *call, const struct gpuobs_policies_params *params)
{
        struct gathering g = {.call = call};
        struct gpuobs_policies result = {0};

        policy_engine_each(engine_of(call), gather_policy, &g);
        if (g.failed) {
                api_call_fail_error(call, -ENOMEM, NULL);
                return;
        }
        result.policies = g.policies;
        result.n_policies = g.count;
        api_call_reply(call, &result, NULL, 0);
}

static int set_all(struct policy_engine *e, const char *name,
                   const struct gpuobs_policy_setting *settings, size_t n, char *error,
                   size_t error_size)
{
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++)
                r = policy_engine_set(e, name, settings[i].variable, settings[i].value, error,
                                      error_size);
        return r;
}

void api_handle_policies_load(struct api_call *call, const struct gpuobs_policy_load_params *p)
{
        const struct policy_options options = {
                .name = p->name,
                .precedence = p->has_precedence ? (int32_t)p->precedence : 0,
                .has_gpu = p->has_gpu,
                .gpu = p->gpu,
                .cgroup = p->cgroup,
                .process = p->process,
                .may_discard = p->has_may_discard && p->may_discard,
                .is_disabled = true, /* until its variables are set */
                .limits = {.runs = p->has_max_runs ? p->max_runs : 0,
                           .run_ns = p->has_max_run_ns ? p->max_run_ns : 0,
                           .actions = p->has_max_actions ? p->max_actions : 0,
                           .bytes = p->has_max_bytes ? p->max_bytes : 0},
        };
        struct gathering g = {.call = call, .name = p->name};
        struct policy_engine *e = engine_of(call);
        struct gpuobs_policy_loaded result;
        char error[400] = "";
        int r;

        if (p->has_precedence && (p->precedence < INT32_MIN || p->precedence > INT32_MAX)) {
                api_call_fail_param(call, "precedence", "does not fit into 32 bits");
                return;
        }
        r = policy_engine_load(e, &options, p->object, p->n_object, now_ns(), error, sizeof(error));
        if (r < 0) {
                api_call_fail_error(call, r, error);
                return;
        }
        r = set_all(e, p->name, p->set, p->n_set, error, sizeof(error));
        if (r < 0) {
                (void)policy_engine_unload(e, p->name);
                api_call_fail_error(call, r, error);
                return;
        }
        (void)policy_engine_enable(e, p->name, now_ns());
        log_notice("policy %s was loaded for user %u", p->name, (unsigned)call->peer.uid);
        if (!gather_one(&g))
                return;
        result.policy = g.policies[0];
        api_call_reply(call, &result, NULL, 0);
}

void api_handle_policies_show(struct api_call *call, const struct gpuobs_policy_name_params *p)
{
        struct gathering g = {.call = call, .name = p->name};
        struct gpuobs_policy_details result = {0};

        if (!gather_one(&g))
                return;
        gather_variables(&g);
        if (g.failed) {
                api_call_fail_error(call, -ENOMEM, NULL);
                return;
        }
        result.policy = g.policies[0];
        result.variables = g.variables;
        result.n_variables = g.variable_count;
        api_call_reply(call, &result, NULL, 0);
}

void api_handle_policies_change(struct api_call *call, const struct gpuobs_policy_change_params *p)
{
        struct gathering g = {.call = call, .name = p->name};
        struct policy_engine *e = engine_of(call);
        struct gpuobs_policy_changed result;
        char error[400] = "";
        int r = set_all(e, p->name, p->set, p->n_set, error, sizeof(error));

        if (r < 0) {
                api_call_fail_error(call, r, error);
                return;
        }
        if (p->has_run && p->run)
                (void)policy_engine_enable(e, p->name, now_ns());
        else if (p->has_run)
                (void)policy_engine_disable(e, p->name);
        if (!gather_one(&g))
                return;
        result.policy = g.policies[0];
        api_call_reply(call, &result, NULL, 0);
}

void api_handle_policies_unload(struct api_call *call, const struct gpuobs_policy_name_params *p)
{
        struct gpuobs_policy_unloaded result = {0};

        if (policy_engine_unload(engine_of(call), p->name) < 0) {
                fail_unknown(call);
                return;
        }
        log_notice("policy %s was unloaded for user %u", p->name, (unsigned)call->peer.uid);
        api_call_reply(call, &result, NULL, 0);
}
