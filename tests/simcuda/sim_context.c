/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Contexts. A destroyed context stays in the list, marked, because threads may
 * still have it current and handles may still point to it.
 */
#include <stdlib.h>

#include "sim.h"

#define STACK_DEPTH 32

static __thread struct {
        struct sim_context *contexts[STACK_DEPTH];
        unsigned depth;
} stack;

static struct sim_context *top(void)
{
        return stack.depth ? stack.contexts[stack.depth - 1] : NULL;
}

CUresult sim_context_current(struct sim_context **ret_context)
{
        struct sim_context *context;
        CUresult r = sim_check_ready();

        if (r)
                return r;
        context = top();
        if (!context)
                return CUDA_ERROR_INVALID_CONTEXT;
        if (!SIM_IS(context, CONTEXT))
                return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        *ret_context = context;
        return atomic_load(&context->error);
}

static CUresult context_new(CUdevice device, unsigned flags, bool is_primary,
                            struct sim_context **ret_context)
{
        struct sim_context *context = calloc(1, sizeof(*context));
        CUresult r;

        if (!context)
                return CUDA_ERROR_OUT_OF_MEMORY;
        context->magic = SIM_MAGIC_CONTEXT;
        context->device = device;
        context->id = atomic_fetch_add(&sim_driver.next_context_id, 1) + 1;
        context->flags = flags;
        context->is_primary = is_primary;
        pthread_mutex_init(&context->lock, NULL);
        r = sim_stream_new(context, 0, 0, true, &context->legacy);
        if (r) {
                free(context);
                return r;
        }
        context->next = sim_driver.contexts;
        sim_driver.contexts = context;
        *ret_context = context;
        return CUDA_SUCCESS;
}

static CUresult context_destroy(struct sim_context *context)
{
        CUresult r = sim_context_drain(context);

        context->magic = 0;
        return r;
}

static CUresult push(struct sim_context *context)
{
        if (stack.depth == STACK_DEPTH)
                return CUDA_ERROR_OUT_OF_MEMORY;
        stack.contexts[stack.depth++] = context;
        return CUDA_SUCCESS;
}

void sim_drain_all(void)
{
        struct sim_context *first;

        pthread_mutex_lock(&sim_driver.lock);
        first = sim_driver.contexts; /* entries are only added in front, and stay */
        pthread_mutex_unlock(&sim_driver.lock);
        for (struct sim_context *c = first; c; c = c->next) {
                if (SIM_IS(c, CONTEXT))
                        sim_context_drain(c);
        }
}

/* ---- primary contexts ---- */

static CUresult retain(CUcontext *ret_context, CUdevice device)
{
        struct sim_context **primary;
        CUresult r = sim_check_device(device);

        if (r)
                return r;
        if (!ret_context)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim_driver.lock);
        primary = &sim_driver.primary[device];
        if (!*primary)
                r = context_new(device, 0, true, primary);
        if (!r) {
                (*primary)->retained++;
                *ret_context = *primary;
        }
        pthread_mutex_unlock(&sim_driver.lock);
        return r;
}

SIM_API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
        SIM_ENTER();
        return retain(context, device);
}

/* all: cuDevicePrimaryCtxReset, whoever still holds it. */
static CUresult release_primary(CUdevice device, bool all)
{
        struct sim_context *context;
        bool last = false;
        CUresult r = sim_check_device(device);

        if (r)
                return r;
        pthread_mutex_lock(&sim_driver.lock);
        context = sim_driver.primary[device];
        if (context && (all || --context->retained == 0)) {
                sim_driver.primary[device] = NULL;
                last = true;
        }
        pthread_mutex_unlock(&sim_driver.lock);
        if (!context)
                return all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
        return last ? context_destroy(context) : CUDA_SUCCESS;
}

SIM_API cuDevicePrimaryCtxRelease(CUdevice device)
{
        SIM_ENTER();
        return release_primary(device, false);
}

SIM_API cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
        SIM_ENTER();
        return release_primary(device, false);
}

SIM_API cuDevicePrimaryCtxReset_v2(CUdevice device)
{
        SIM_ENTER();
        return release_primary(device, true);
}

SIM_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(device);
        if (!r && sim_driver.primary[device])
                sim_driver.primary[device]->flags = flags;
        return r;
}

SIM_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(device);
        if (r)
                return r;
        if (!flags || !active)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim_driver.lock);
        context = sim_driver.primary[device];
        *active = context != NULL;
        *flags = context ? context->flags : 0;
        pthread_mutex_unlock(&sim_driver.lock);
        return CUDA_SUCCESS;
}

/* ---- created contexts ---- */

static CUresult create(CUcontext *ret_context, unsigned flags, CUdevice device)
{
        struct sim_context *context;
        CUresult r = sim_check_device(device);

        if (r)
                return r;
        if (!ret_context)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim_driver.lock);
        r = context_new(device, flags, false, &context);
        pthread_mutex_unlock(&sim_driver.lock);
        if (!r)
                r = push(context);
        if (!r)
                *ret_context = context;
        return r;
}

SIM_API cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
        SIM_ENTER();
        return create(context, flags, device);
}

SIM_API cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags,
                       CUdevice device)
{
        SIM_ENTER();
        return count ? CUDA_ERROR_NOT_SUPPORTED : create(context, flags, device);
}

SIM_API cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device)
{
        SIM_ENTER();
        return params ? CUDA_ERROR_NOT_SUPPORTED : create(context, flags, device);
}

SIM_API cuCtxDestroy_v2(CUcontext context)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!SIM_IS(context, CONTEXT) || context->is_primary)
                return CUDA_ERROR_INVALID_CONTEXT;
        if (top() == context)
                stack.depth--;
        return context_destroy(context);
}

/* ---- the current context ---- */

SIM_API cuCtxPushCurrent_v2(CUcontext context)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (!r && !SIM_IS(context, CONTEXT))
                r = CUDA_ERROR_INVALID_CONTEXT;
        return r ? r : push(context);
}

SIM_API cuCtxPopCurrent_v2(CUcontext *context)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (!r && stack.depth == 0)
                r = CUDA_ERROR_INVALID_CONTEXT;
        if (r)
                return r;
        if (context)
                *context = top();
        stack.depth--;
        return CUDA_SUCCESS;
}

SIM_API cuCtxSetCurrent(CUcontext context)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (!r && context && !SIM_IS(context, CONTEXT))
                r = CUDA_ERROR_INVALID_CONTEXT;
        if (r)
                return r;
        if (stack.depth)
                stack.depth--;
        return context ? push(context) : CUDA_SUCCESS;
}

SIM_API cuCtxGetCurrent(CUcontext *context)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (!r && !context)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *context = top();
        return r;
}

SIM_API cuCtxGetDevice(CUdevice *device)
{
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        if (!r && !device)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *device = context->device;
        return r;
}

SIM_API cuCtxGetFlags(unsigned *flags)
{
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        if (!r && !flags)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *flags = context->flags;
        return r;
}

SIM_API cuCtxGetId(CUcontext context, unsigned long long *id)
{
        CUresult r = CUDA_SUCCESS;

        SIM_ENTER();
        if (!context)
                r = sim_context_current(&context);
        if (!r && !SIM_IS(context, CONTEXT))
                r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (!r && !id)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *id = context->id;
        return r;
}

SIM_API cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
        CUresult r = CUDA_SUCCESS;

        SIM_ENTER();
        if (!context)
                r = sim_context_current(&context);
        if (!r && !version)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *version = 3020;
        return r;
}

static CUresult synchronize(struct sim_context *context)
{
        bool capturing = false;

        pthread_mutex_lock(&context->lock);
        for (struct sim_stream *s = context->streams; s; s = s->next)
                capturing |= s->capture != NULL;
        pthread_mutex_unlock(&context->lock);
        return capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : sim_context_drain(context);
}

SIM_API cuCtxSynchronize(void)
{
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        return r ? r : synchronize(context);
}

SIM_API cuCtxSynchronize_v2(CUcontext context)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (!r && !context)
                r = sim_context_current(&context);
        if (!r && !SIM_IS(context, CONTEXT))
                r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return r ? r : synchronize(context);
}

SIM_API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        if (r)
                return r;
        if (least)
                *least = 0;
        if (greatest)
                *greatest = -5;
        return CUDA_SUCCESS;
}

/* Limits of things that do not exist here: told, not changed. */
SIM_API cuCtxGetLimit(size_t *value, int limit)
{
        static const size_t limits[] = {1024, 7340032, 8388608};
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        if (r)
                return r;
        if (!value || limit < 0 || limit >= 3)
                return CUDA_ERROR_INVALID_VALUE;
        *value = limits[limit];
        return CUDA_SUCCESS;
}

SIM_API cuCtxSetLimit(int limit, size_t value)
{
        struct sim_context *context;
        CUresult r;

        SIM_ENTER();
        r = sim_context_current(&context);
        if (r)
                return r;
        return limit < 0 || limit >= 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
