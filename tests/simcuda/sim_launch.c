/* SPDX-License-Identifier: Apache-2.0 */

/* Kernel launches: the path that has to be fast. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MAX_GRID_YZ     65535
#define MAX_COOPERATIVE (SIM_SM_COUNT * 8) /* blocks that can be resident */

/* A launch may name a kernel instead of a function. */
static const struct sim_function *resolve_function(CUfunction handle)
{
        if (SIM_IS(handle, FUNCTION))
                return handle;
        if (SIM_IS((CUkernel)handle, KERNEL))
                return ((CUkernel)handle)->function;
        return NULL;
}

static bool shape_ok(const struct sim_function *f, const CUDA_KERNEL_NODE_PARAMS *p)
{
        uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;

        if (!p->gridDimX || !p->gridDimY || !p->gridDimZ || p->gridDimX > INT32_MAX ||
            p->gridDimY > MAX_GRID_YZ || p->gridDimZ > MAX_GRID_YZ)
                return false;
        if (!p->blockDimX || !p->blockDimY || !p->blockDimZ || p->blockDimX > 1024 ||
            p->blockDimY > 1024 || p->blockDimZ > 64)
                return false;
        if (f->info->required[0] &&
            (p->blockDimX != f->info->required[0] || p->blockDimY != f->info->required[1] ||
             p->blockDimZ != f->info->required[2]))
                return false;
        return threads <= f->info->max_threads &&
               p->sharedMemBytes <=
                       (unsigned)f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
}

/* The parameter buffer out of `extra`, or NULL. */
static const void *extra_buffer(void **extra, size_t *ret_bytes)
{
        const void *buffer = NULL;

        *ret_bytes = 0;
        for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
                if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
                        buffer = extra[1];
                else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
                        *ret_bytes = *(const size_t *)extra[1];
                else
                        return NULL;
        }
        return buffer;
}

static CUresult copy_params(const struct ptx_entry_info *info, void **params, void **extra,
                            uint8_t *to)
{
        const void *buffer;
        size_t bytes;

        if (params && extra)
                return CUDA_ERROR_INVALID_VALUE;
        if (params) {
                for (unsigned i = 0; i < info->param_count; i++) {
                        if (!params[i])
                                return CUDA_ERROR_INVALID_VALUE;
                        memcpy(to + info->params[i].offset, params[i], info->params[i].bytes);
                }
                return CUDA_SUCCESS;
        }
        if (!extra)
                return info->param_count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        buffer = extra_buffer(extra, &bytes);
        if ((!buffer && info->param_count) || bytes < info->param_bytes)
                return CUDA_ERROR_INVALID_VALUE;
        if (info->param_bytes)
                memcpy(to, buffer, info->param_bytes);
        return CUDA_SUCCESS;
}

CUresult sim_launch_prepare(const CUDA_KERNEL_NODE_PARAMS *p, bool cooperative,
                            struct sim_command *ret_command)
{
        const struct sim_function *f = resolve_function(p->func);
        struct sim_kernel_work *work = &ret_command->kernel;
        CUresult r;

        if (!f)
                return CUDA_ERROR_INVALID_HANDLE;
        if (!shape_ok(f, p))
                return CUDA_ERROR_INVALID_VALUE;
        if (cooperative && (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ > MAX_COOPERATIVE)
                return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        ret_command->kind = SIM_COMMAND_KERNEL;
        ret_command->wait.stream = NULL;
        ret_command->more_waits = NULL;
        ret_command->more_wait_count = 0;
        work->function = f;
        work->launch = (struct ptx_launch){
                .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                .shared_bytes = p->sharedMemBytes,
                .cooperative = cooperative,
        };
        work->params = work->inline_params;
        if (f->info->param_bytes > SIM_INLINE_PARAMS)
                work->params = malloc(f->info->param_bytes);
        if (!work->params)
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = copy_params(f->info, p->kernelParams, p->extra, work->params);
        if (r)
                sim_command_done(ret_command);
        return r;
}

static CUresult launch(const CUDA_KERNEL_NODE_PARAMS *params, CUstream handle, bool cooperative,
                       bool per_thread)
{
        struct sim_command command;
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (sim_choice_hit(&sim_driver.config.fail_launch))
                return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
        r = sim_launch_prepare(params, cooperative, &command);
        return r ? r : sim_stream_submit(stream, &command, NULL);
}

#define SHAPE_PARAMS(params_, extra_)                                                              \
        (&(const CUDA_KERNEL_NODE_PARAMS){.func = function,                                        \
                                          .gridDimX = grid_x,                                      \
                                          .gridDimY = grid_y,                                      \
                                          .gridDimZ = grid_z,                                      \
                                          .blockDimX = block_x,                                    \
                                          .blockDimY = block_y,                                    \
                                          .blockDimZ = block_z,                                    \
                                          .sharedMemBytes = shared_bytes,                          \
                                          .kernelParams = params_,                                 \
                                          .extra = extra_})

SIM_API cuLaunchKernel(CU_LAUNCH_SHAPE, void **params, void **extra)
{
        SIM_ENTER();
        return launch(SHAPE_PARAMS(params, extra), stream, false, false);
}

SIM_API cuLaunchKernel_ptsz(CU_LAUNCH_SHAPE, void **params, void **extra)
{
        SIM_ENTER();
        return launch(SHAPE_PARAMS(params, extra), stream, false, true);
}

SIM_API cuLaunchCooperativeKernel(CU_LAUNCH_SHAPE, void **params)
{
        SIM_ENTER();
        return launch(SHAPE_PARAMS(params, NULL), stream, true, false);
}

SIM_API cuLaunchCooperativeKernel_ptsz(CU_LAUNCH_SHAPE, void **params)
{
        SIM_ENTER();
        return launch(SHAPE_PARAMS(params, NULL), stream, true, true);
}

static CUresult launch_configured(const CUlaunchConfig *config, CUfunction function, void **params,
                                  void **extra, bool per_thread)
{
        bool cooperative = false;

        if (!config || (config->numAttrs && !config->attrs))
                return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < config->numAttrs; i++) {
                const CUlaunchAttribute *a = &config->attrs[i];

                if (a->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
                        cooperative = a->value.cooperative != 0;
                if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
                    a->value.clusterDim.x * a->value.clusterDim.y * a->value.clusterDim.z > 1)
                        return CUDA_ERROR_NOT_SUPPORTED;
        }
        return launch(&(const CUDA_KERNEL_NODE_PARAMS){.func = function,
                                                       .gridDimX = config->gridDimX,
                                                       .gridDimY = config->gridDimY,
                                                       .gridDimZ = config->gridDimZ,
                                                       .blockDimX = config->blockDimX,
                                                       .blockDimY = config->blockDimY,
                                                       .blockDimZ = config->blockDimZ,
                                                       .sharedMemBytes = config->sharedMemBytes,
                                                       .kernelParams = params,
                                                       .extra = extra},
                      config->hStream, cooperative, per_thread);
}

SIM_API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                         void **extra)
{
        SIM_ENTER();
        return launch_configured(config, function, params, extra, false);
}

SIM_API cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                              void **extra)
{
        SIM_ENTER();
        return launch_configured(config, function, params, extra, true);
}

static CUresult launch_host(CUstream handle, CUhostFn fn, void *data, bool per_thread)
{
        struct sim_command command = {.kind = SIM_COMMAND_HOST, .host = {fn, data}};
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        return fn ? sim_stream_submit(stream, &command, NULL) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
        SIM_ENTER();
        return launch_host(stream, fn, data, false);
}

SIM_API cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn fn, void *data)
{
        SIM_ENTER();
        return launch_host(stream, fn, data, true);
}
