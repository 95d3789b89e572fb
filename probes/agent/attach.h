/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the rest of the agent does when it is brought into a running process (attach.c). */
#include <stdbool.h>

#include "attach_abi.h"
#include "hook.h"

extern struct attach_block gpuobs_attach_block;

void attach_set_state(enum attach_state state);
/* FAILED, with a sentence. */
void attach_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A hook that is to be written by who attaches, or taken out by who detaches. */
void attach_add_patch(const struct hook *h, const struct hook_plan *plan);

/*
 * The steps, in agent.c. Plan the hooks and connect to the daemon: false after
 * attach_fail(). Once they are written: open the session if the driver has been
 * initialised, and replace what is loaded; then READY or FAILED. The end: everything runs
 * as it was loaded again, what was loaded beside it is unloaded; then UNHOOK.
 */
bool agent_late_prepare(const char *socket);
void agent_late_start(uint32_t *ret_initialised);
void agent_late_end(void);
