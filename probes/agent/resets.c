/* SPDX-License-Identifier: Apache-2.0 */

/*
 * cudaDeviceReset() destroys a primary context under everybody who holds it, and
 * with it the registration of the shared ring. The driver keeps libraries,
 * rewritten as they are, and runs their kernels in the next primary context: by
 * then the ring must be registered again.
 */
#include <string.h>

#include "agent.h"
#include "hooked.h"

static int (*primary_reset)(int);
static int (*primary_reset_v2)(int);
static int (*primary_retain)(cuda_handle *, int);

static int on_primary_reset(int device)
{
        agent_before_reset(device);
        return primary_reset(device);
}

static int on_primary_reset_v2(int device)
{
        agent_before_reset(device);
        return primary_reset_v2(device);
}

static int on_primary_retain(cuda_handle *context, int device)
{
        int r = primary_retain(context, device);

        if (r == CUDA_OK && context)
                agent_retained(device, *context);
        return r;
}

size_t resets_hooks(struct hook *hooks)
{
        const struct hook all[] = {
                HOOK("cuDevicePrimaryCtxReset", on_primary_reset, primary_reset),
                HOOK("cuDevicePrimaryCtxReset_v2", on_primary_reset_v2, primary_reset_v2),
                HOOK("cuDevicePrimaryCtxRetain", on_primary_retain, primary_retain),
        };

        memcpy(hooks, all, sizeof(all));
        return sizeof(all) / sizeof(all[0]);
}
