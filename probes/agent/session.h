/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the agent needs before it can rewrite the first image: the daemon's
 * answer, a device, its primary context, the maps in place, the probes built.
 * Done once per process, at the first image, because the driver can do none of
 * it earlier; a failure is final and becomes the reason of every image.
 */
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api.h"
#include "grid_layout.h"
#include "probe_set.h"
#include "rewrite.h"
#include "wire.h"

#define SESSION_REASON_BYTES 240

struct session {
        const struct cuda_api *api;
        struct wire *wire;

        int device;
        int device_count;
        uint32_t sm;
        bool late;
        cuda_handle context; /* the device's primary one, retained for good */
        struct agent_welcome welcome;
        const struct grid_layout *layout; /* NULL: unknown, or not as the driver has it */
        struct probe_set *set;            /* the programs */
        struct probe_rules rules;         /* kernels to be left alone */
};

/*
 * Shake hands, place, build. late: the process has been working for a while, so that its
 * GPU may be busy for long. 0; -EACCES and the like, reason says why. If the
 * daemon is not there any more, the wire is closed.
 */
int session_open(const struct cuda_api *api, struct wire *wire, bool late,
                 struct session *ret_session, char reason[SESSION_REASON_BYTES]);

/* Nothing in the process uses the maps any more: take the ring out of it. */
void session_close(struct session *s);

/*
 * The device's primary context was destroyed by a reset and lives again as
 * `context`: what was made in it must be made anew before a kernel runs in it.
 * NULL, or a sentence that says why that failed.
 */
const char *session_revive(struct session *s, cuda_handle context);

/*
 * May an image be rewritten that is loaded now, in this thread's current
 * context? NULL, or a constant phrase that says why not.
 */
const char *session_context_refusal(const struct session *s);

/* What images are rewritten with now. Lives until programs come or go. */
struct rewrite_probes session_probes(const struct session *s);
