/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/engine.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "policy/internal.h"
#include "util/time.h"

static const struct policy_limits default_limits = {
        .runs = 50000,
        .run_ns = 200 * NSEC_PER_MSEC,
        .actions = 50000,
        .bytes = 256ull << 30,
};

const char *const policy_refusal_names[POLICY_REFUSED_COUNT] = {
#define X(name, value, text) #name,
        POLICY_REFUSALS(X)
#undef X
};

const char *const policy_refusal_texts[POLICY_REFUSED_COUNT] = {
#define X(name, value, text) text,
        POLICY_REFUSALS(X)
#undef X
};

/* ---- life ---- */

struct policy_engine *policy_engine_new(const struct policy_actuator_ops *ops, void *data)
{
        struct policy_engine *e = calloc(1, sizeof(*e));

        if (!e)
                return NULL;
        e->ops = ops;
        e->data = data;
        e->next_policy = 1;
        e->next_order = 1;
        for (size_t i = 0; i < POLICY_GPUS_MAX; i++)
                e->gpus[i].total_bytes = e->gpus[i].free_bytes = POLICY_UNKNOWN;
        return e;
}

struct waiting *waiting_free(struct waiting *w)
{
        if (w)
                free(w->displaced.list);
        free(w);
        return NULL;
}

void waiting_free_all(struct waiting **list)
{
        struct waiting *w, *next;

        DL_FOREACH_SAFE(*list, w, next)
        {
                DL_DELETE(*list, w);
                waiting_free(w);
        }
}

static struct policy *policy_free(struct policy *p)
{
        if (!p)
                return NULL;
        policy_object_free(p->object);
        free(p->refused.items);
        free(p->cgroup);
        free(p->process);
        free(p);
        return NULL;
}
DEFINE_CLEANUP(struct policy *, policy_free)

struct policy_engine *policy_engine_free(struct policy_engine *e)
{
        struct waiting *w, *next;

        if (!e)
                return NULL;
        policy_engine_unload_all(e);
        HASH_ITER (hh, e->orders, w, next) {
                HASH_DEL(e->orders, w);
                waiting_free(w);
        }
        waiting_free_all(&e->stuck);
        waiting_free_all(&e->parked);
        targets_done(&e->targets);
        claims_done(&e->claims);
        free(e->settings.list);
        free(e);
        return NULL;
}

/* ---- finding ---- */

struct policy *engine_policy(const struct policy_engine *e, uint32_t id)
{
        struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                if (p->id == id)
                        return p;
        }
        return NULL;
}

static struct policy *find(const struct policy_engine *e, const char *name)
{
        struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                if (strcmp(p->name, name) == 0)
                        return p;
        }
        return NULL;
}

bool engine_in_scope(const struct policy *p, const struct target *t)
{
        if (p->options.has_gpu && !target_uses(t, p->options.gpu))
                return false;
        if (p->cgroup && fnmatch(p->cgroup, t->cgroup, 0) != 0)
                return false;
        return !p->process || fnmatch(p->process, t->comm, 0) == 0;
}

bool engine_in_reach(const struct policy *p, const struct target *t, const struct policy_action *a)
{
        uint32_t gpu = p->options.gpu;

        if (!p->options.has_gpu || (claim_is_setting(a->kind) && undo_takes_back(a)))
                return true;
        if (claim_has_groups(a->kind))
                return claim_gpu(a) == gpu;
        if (!a->bytes)
                return !t->gpus || t->gpus == 1ull << gpu;
        if (a->to == gpu && claim_has_place(a->kind))
                return true;
        if (a->to != POLICY_HOST && claim_has_place(a->kind))
                return false;
        return !target_is_on_other(t, a->address, a->bytes, gpu);
}

/* ---- loading ---- */

static bool name_is_good(const char *name)
{
        static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789_.-";
        size_t length = strlen(name);

        return length > 0 && length < POLICY_NAME_MAX && strspn(name, allowed) == length;
}

static int check_options(const struct policy_engine *e, const struct policy_options *options,
                         char *error, size_t error_size)
{
        if (!name_is_good(options->name)) {
                snprintf(error, error_size,
                         "a policy's name has 1 to %d letters, digits, and . _ -",
                         POLICY_NAME_MAX - 1);
                return -EINVAL;
        }
        if (find(e, options->name)) {
                snprintf(error, error_size, "there is a policy %s already", options->name);
                return -EEXIST;
        }
        if (e->policy_count == POLICIES_MAX) {
                snprintf(error, error_size, "at most %d policies can be loaded", POLICIES_MAX);
                return -ENOSPC;
        }
        return 0;
}

static int copy_glob(const char *glob, char **ret_copy)
{
        if (!glob || !*glob)
                return 0;
        *ret_copy = strdup(glob);
        return *ret_copy ? 0 : -ENOMEM;
}

static void fill_limits(struct policy_limits *l)
{
        l->runs = l->runs ? l->runs : default_limits.runs;
        l->run_ns = l->run_ns ? l->run_ns : default_limits.run_ns;
        l->actions = l->actions ? l->actions : default_limits.actions;
        l->bytes = l->bytes ? l->bytes : default_limits.bytes;
}

static int policy_new(const struct policy_options *options, struct policy **ret_policy)
{
        _cleanup_(policy_freep) struct policy *p = calloc(1, sizeof(*p));

        if (!p || copy_glob(options->cgroup, &p->cgroup) < 0 ||
            copy_glob(options->process, &p->process) < 0)
                return -ENOMEM;
        snprintf(p->name, sizeof(p->name), "%s", options->name);
        p->options = *options;
        p->options.name = p->name;
        p->options.cgroup = p->cgroup;
        p->options.process = p->process;
        fill_limits(&p->options.limits);
        *ret_policy = TAKE_PTR(p);
        return 0;
}

/* Higher precedence first; of equals, who was there first. */
static void insert(struct policy_engine *e, struct policy *p)
{
        struct policy *before;

        DL_FOREACH(e->policies, before)
        {
                if (before->options.precedence < p->options.precedence)
                        break;
        }
        if (before)
                DL_PREPEND_ELEM(e->policies, before, p);
        else
                DL_APPEND(e->policies, p);
        e->policy_count++;
}

int policy_engine_load(struct policy_engine *e, const struct policy_options *options,
                       const void *bytes, size_t size, uint64_t now_ns, char *error,
                       size_t error_size)
{
        _cleanup_(policy_freep) struct policy *p = NULL;
        int r = check_options(e, options, error, error_size);

        if (r < 0)
                return r;
        r = policy_new(options, &p);
        if (r < 0)
                return r;
        r = policy_object_load(bytes, size, error, error_size, &p->object);
        if (r < 0)
                return r;
        e->now_ns = now_ns;
        p->id = e->next_policy++;
        p->loaded_ns = now_ns;
        p->state = options->is_disabled ? POLICY_DISABLED : POLICY_ACTIVE;
        insert(e, p);
        if (e->policy_count == 2)
                decide_claim_all(e);
        dispatch_introduce(e, TAKE_PTR(p));
        return 0;
}

/* ---- stopping ---- */

/* Those that it had its way against may ask again. */
static void stop(struct policy_engine *e, struct policy *p, enum policy_state state)
{
        struct policy *other;

        p->state = state;
        p->refused.count = 0;
        claims_drop_policy(&e->claims, p->id);
        p->stats.undone += undo_policy(e, p->id);
        DL_FOREACH(e->policies, other)
        {
                if (other->options.precedence < p->options.precedence && p->stats.overrode)
                        other->has_lost = true;
        }
}

void engine_eject(struct policy_engine *e, struct policy *p, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(p->reason, sizeof(p->reason), format, args);
        va_end(args);
        if (e->ops->ejected)
                e->ops->ejected(e->data, p->name, p->reason);
        stop(e, p, POLICY_EJECTED);
}

int policy_engine_unload(struct policy_engine *e, const char *name)
{
        struct policy *p = find(e, name);

        if (!p)
                return -ENOENT;
        stop(e, p, POLICY_DISABLED);
        DL_DELETE(e->policies, p);
        e->policy_count--;
        policy_free(p);
        return 0;
}

void policy_engine_unload_all(struct policy_engine *e)
{
        struct waiting *w, *next;

        while (e->policies)
                (void)policy_engine_unload(e, e->policies->name);
        do
                e->ops->flush(e->data);
        while (order_backlog(e));
        DL_FOREACH_SAFE(e->backlog, w, next)
        {
                order_not_undone(e, w, -EBUSY);
                DL_DELETE(e->backlog, w);
                waiting_free(w);
        }
}

int policy_engine_disable(struct policy_engine *e, const char *name)
{
        struct policy *p = find(e, name);

        if (!p)
                return -ENOENT;
        if (p->state == POLICY_ACTIVE)
                stop(e, p, POLICY_DISABLED);
        return 0;
}

int policy_engine_enable(struct policy_engine *e, const char *name, uint64_t now_ns)
{
        struct policy *p = find(e, name);

        if (!p)
                return -ENOENT;
        if (p->state == POLICY_ACTIVE)
                return 0;
        p->state = POLICY_ACTIVE;
        p->reason[0] = '\0';
        e->now_ns = now_ns;
        dispatch_introduce(e, p);
        return 0;
}

/* ---- asking ---- */

int policy_engine_set(struct policy_engine *e, const char *name, const char *variable,
                      const char *value, char *error, size_t error_size)
{
        struct policy *p = find(e, name);
        int r;

        if (!p) {
                snprintf(error, error_size, "there is no policy %s", name);
                return -ENOENT;
        }
        r = policy_variable_set(p->object, variable, value, error, error_size);
        if (r == 0)
                dispatch_processes(e, p);
        return r;
}

uint32_t policy_engine_count(const struct policy_engine *e)
{
        return e->policy_count;
}

void policy_engine_each(const struct policy_engine *e,
                        int (*row)(void *data, const struct policy_info *info), void *data)
{
        const struct policy *p;

        DL_FOREACH(e->policies, p)
        {
                struct policy_info info = {.id = p->id,
                                           .state = p->state,
                                           .reason = p->reason,
                                           .options = &p->options,
                                           .stats = &p->stats,
                                           .settings = undo_count(e, p->id),
                                           .loaded_ns = p->loaded_ns};

                if (row(data, &info))
                        return;
        }
}

int policy_engine_variables(const struct policy_engine *e, const char *name,
                            int (*row)(void *data, const struct policy_variable *v), void *data)
{
        const struct policy *p = find(e, name);

        if (!p)
                return -ENOENT;
        policy_variables(p->object, row, data);
        return 0;
}
