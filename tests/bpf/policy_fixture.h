/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Policies from the build, for tests: their objects, loaded into an engine with parameters set. */
#include <stddef.h>
#include <stdint.h>

#include "policy/engine.h"

/* The directory with the objects; set from the command line. */
extern const char *fixture_policies;

/* Skip the test where eBPF cannot be loaded. */
void fixture_need_bpf(void);

/* The bytes of a policy's object; to be freed. */
void *fixture_object(const char *name, size_t *ret_size);

/*
 * Load "NAME variable=value variable=value ..." under its name with a precedence and no limits to
 * speak of. It must succeed.
 */
void fixture_load(struct policy_engine *e, const char *text, int32_t precedence);
/* The same with limits. */
void fixture_load_limited(struct policy_engine *e, const char *text, int32_t precedence,
                          const struct policy_limits *limits);

/* What the engine says of a policy; it must be there. */
struct policy_stats fixture_stats(const struct policy_engine *e, const char *name);
enum policy_state fixture_state(const struct policy_engine *e, const char *name,
                                char *ret_reason /* POLICY_REASON_MAX */);
uint64_t fixture_settings(const struct policy_engine *e, const char *name);
