/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "hooked.h"
#include "launches.h"

static void list_refusals(const struct hook *hooks, size_t count, char *text, size_t size)
{
        size_t used = 0;

        text[0] = '\0';
        for (size_t i = 0; i < count; i++)
                if (hooks[i].target && hooks[i].refusal && !hook_is_alias(hooks, i) && used < size)
                        used += (size_t)snprintf(text + used, size - used, "%s%s: %s",
                                                 used ? "; " : "", hooks[i].name, hooks[i].refusal);
}

static void *way_around(const struct hook *hooks, size_t count, const char *name, void *otherwise)
{
        for (size_t i = 0; i < count; i++)
                if (strcmp(hooks[i].name, name) == 0 && *hooks[i].original)
                        return *hooks[i].original;
        return otherwise;
}

typedef void planned_fn(const struct hook *h, const struct hook_plan *plan);

static int hook_all(void *library, struct cuda_api *api, planned_fn *planned,
                    const char **ret_reason, char *refusals, size_t refusals_size)
{
        struct hook hooks[HOOK_MAX] = {0};
        size_t count, first_launch;
        int r;

        count = loads_hooks(hooks);
        count += resets_hooks(hooks + count);
        count += handles_hooks(hooks + count);
        count += replace_hooks(hooks + count);
        count += occupancy_hooks(hooks + count);
        count += streams_hooks(hooks + count);
        count += graphs_hooks(hooks + count);
        first_launch = count;
        count += launches_hooks(hooks + count);
        for (size_t i = 0; i < count; i++) {
                hooks[i].target = dlsym(library, hooks[i].name);
                *hooks[i].original = hooks[i].target;
        }
        r = planned ? hooks_prepare(hooks, count, planned, ret_reason)
                    : hooks_install(hooks, count, ret_reason);
        if (r > 0)
                launches_hooked(hooks + first_launch, count - first_launch);
        *(void **)&api->module_load_data =
                way_around(hooks, count, "cuModuleLoadData", (void *)api->module_load_data);
        *(void **)&api->primary_retain =
                way_around(hooks, count, "cuDevicePrimaryCtxRetain", (void *)api->primary_retain);
        *(void **)&api->stream_create =
                way_around(hooks, count, "cuStreamCreate", (void *)api->stream_create);
        list_refusals(hooks, count, refusals, refusals_size);
        return r;
}

int hooked_install(void *library, struct cuda_api *api, const char **ret_reason, char *refusals,
                   size_t refusals_size)
{
        return hook_all(library, api, NULL, ret_reason, refusals, refusals_size);
}

int hooked_prepare(void *library, struct cuda_api *api,
                   void (*planned)(const struct hook *h, const struct hook_plan *plan),
                   const char **ret_reason, char *refusals, size_t refusals_size)
{
        return hook_all(library, api, planned, ret_reason, refusals, refusals_size);
}
