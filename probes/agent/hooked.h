/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which functions of the driver are hooked: each part of the agent says its own. */
#include <stddef.h>

#include "cuda_api.h"
#include "hook.h"

/* Write the part's hooks into an array with room for HOOK_MAX; how many they are. */
size_t loads_hooks(struct hook *hooks);     /* image loading */
size_t resets_hooks(struct hook *hooks);    /* the death and rebirth of primary contexts */
size_t handles_hooks(struct hook *hooks);   /* functions and kernels being given out */
size_t graphs_hooks(struct hook *hooks);    /* graphs being made executable */
size_t replace_hooks(struct hook *hooks);   /* functions and what is done with them */
size_t occupancy_hooks(struct hook *hooks); /* how many blocks fit */
size_t streams_hooks(struct hook *hooks);   /* priorities of streams */
size_t launches_hooks(struct hook *hooks);

/*
 * Install all of them. library is a dlopen handle of the libcuda that is being
 * initialised. In api, what is hooked is replaced by the way to the original.
 * The number of hooks; -errno with *ret_reason. refusals lists those that could
 * not be installed, or is empty.
 */
int hooked_install(void *library, struct cuda_api *api, const char **ret_reason, char *refusals,
                   size_t refusals_size);

/* The same, but for writing them: see hooks_prepare(). Once in the life of the process. */
int hooked_prepare(void *library, struct cuda_api *api,
                   void (*planned)(const struct hook *h, const struct hook_plan *plan),
                   const char **ret_reason, char *refusals, size_t refusals_size);
