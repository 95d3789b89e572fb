/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the managed-memory driver decides, from probes inside it
 * (probe/uvm_probes.h), where there can be any: attached when its module is loaded,
 * also later, and again when it is loaded again.
 */
#include <stdbool.h>
#include <stddef.h>

struct api_decisions;
struct gpuobsd;
struct managed_decisions;

/* Attach, if the settings want it and there is something to attach to. NULL on no memory. */
struct managed_decisions *managed_decisions_new(struct gpuobsd *d);
struct managed_decisions *managed_decisions_free(struct managed_decisions *m);

/* Take in up to max events; *more is set when others wait. The number. */
size_t managed_decisions_turn(struct managed_decisions *m, size_t max, bool *more);

/* Once a second: losses into the ledger, modules that come and go. */
void managed_decisions_second(struct managed_decisions *m);

/* For the API. What it points to lives until the next of the calls above. */
void managed_decisions_describe(const struct managed_decisions *m,
                                struct api_decisions *ret_decisions);
