/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Prototypes of the CUDA driver API functions that fake_cuda.c exports, for the
 * tests of the probes: it computes nothing, returns what it is told to, and
 * hands out recognisable handles. (tests/simcuda is the one that computes.)
 */
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
typedef uint64_t handle_t; /* CUcontext, CUstream, ...: pointers */

struct fake_launch_config { /* CUlaunchConfig */
        unsigned int grid[3];
        unsigned int block[3];
        unsigned int shared_bytes;
        handle_t stream;
        void *attrs;
        unsigned int attr_count;
};

struct fake_copy_2d { /* CUDA_MEMCPY2D */
        size_t src_x, src_y;
        int src_type;
        const void *src_host;
        CUdeviceptr src_device;
        handle_t src_array;
        size_t src_pitch;
        size_t dst_x, dst_y;
        int dst_type;
        void *dst_host;
        CUdeviceptr dst_device;
        handle_t dst_array;
        size_t dst_pitch;
        size_t width, height;
};

struct fake_copy_3d { /* CUDA_MEMCPY3D */
        size_t src_x, src_y, src_z, src_lod;
        int src_type;
        const void *src_host;
        CUdeviceptr src_device;
        handle_t src_array;
        void *reserved0;
        size_t src_pitch, src_height;
        size_t dst_x, dst_y, dst_z, dst_lod;
        int dst_type;
        void *dst_host;
        CUdeviceptr dst_device;
        handle_t dst_array;
        void *reserved1;
        size_t dst_pitch, dst_height;
        size_t width, height, depth;
};

#define FAKE_LAUNCH_ARGS                                                                           \
        handle_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,  \
                unsigned shared, handle_t stream, void **params

/* Every function: FAKE(name, (parameters), effect before it returns fake_result). */
#define FAKE_FUNCTIONS(FAKE)                                                                       \
        FAKE(cuLaunchKernel, (FAKE_LAUNCH_ARGS, void **extra), fake_work())                        \
        FAKE(cuLaunchKernel_ptsz, (FAKE_LAUNCH_ARGS, void **extra), fake_work())                   \
        FAKE(cuLaunchKernelEx,                                                                     \
             (const struct fake_launch_config *config, handle_t f, void **params, void **extra),   \
             fake_work())                                                                          \
        FAKE(cuLaunchKernelEx_ptsz,                                                                \
             (const struct fake_launch_config *config, handle_t f, void **params, void **extra),   \
             fake_work())                                                                          \
        FAKE(cuLaunchCooperativeKernel, (FAKE_LAUNCH_ARGS),                                        \
             cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, NULL))              \
        FAKE(cuGraphLaunch, (handle_t exec, handle_t stream), fake_work())                         \
        FAKE(cuGraphLaunch_ptsz, (handle_t exec, handle_t stream), fake_work())                    \
        FAKE(cuCtxCreate_v2, (handle_t * out, unsigned flags, int device), *out = fake_handle)     \
        FAKE(cuCtxCreate_v4, (handle_t * out, void *params, unsigned flags, int device),           \
             *out = fake_handle)                                                                   \
        FAKE(cuDevicePrimaryCtxRetain, (handle_t * out, int device), *out = fake_handle)           \
        FAKE(cuCtxDestroy_v2, (handle_t context), fake_work())                                     \
        FAKE(cuCtxSetCurrent, (handle_t context), fake_work())                                     \
        FAKE(cuCtxPushCurrent_v2, (handle_t context), fake_work())                                 \
        FAKE(cuCtxPopCurrent_v2, (handle_t * out), *out = 1)                                       \
        FAKE(cuModuleLoad, (handle_t * out, const char *name), *out = fake_handle)                 \
        FAKE(cuModuleLoadData, (handle_t * out, const void *image), *out = fake_handle)            \
        FAKE(cuModuleUnload, (handle_t module), fake_work())                                       \
        FAKE(cuModuleGetFunction, (handle_t * out, handle_t module, const char *name),             \
             *out = fake_handle)                                                                   \
        FAKE(cuLibraryLoadData,                                                                    \
             (handle_t * out, const void *code, void *a, void *b, unsigned n, void *c, void *d,    \
              unsigned m),                                                                         \
             *out = fake_handle)                                                                   \
        FAKE(cuLibraryGetKernel, (handle_t * out, handle_t library, const char *name),             \
             *out = fake_handle)                                                                   \
        FAKE(cuKernelGetFunction, (handle_t * out, handle_t kernel), *out = fake_handle)           \
        FAKE(cuStreamCreate, (handle_t * out, unsigned flags), *out = fake_handle)                 \
        FAKE(cuStreamDestroy_v2, (handle_t stream), fake_work())                                   \
        FAKE(cuGraphInstantiateWithFlags, (handle_t * out, handle_t graph, uint64_t flags),        \
             *out = fake_handle)                                                                   \
        FAKE(cuGraphExecDestroy, (handle_t exec), fake_work())                                     \
        FAKE(cuCtxSynchronize, (void), fake_work())                                                \
        FAKE(cuStreamSynchronize, (handle_t stream), fake_work())                                  \
        FAKE(cuStreamSynchronize_ptsz, (handle_t stream), fake_work())                             \
        FAKE(cuEventSynchronize, (handle_t event), fake_work())                                    \
        FAKE(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t n), fake_work())                  \
        FAKE(cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t n), fake_work())             \
        FAKE(cuMemcpyPeerAsync,                                                                    \
             (CUdeviceptr dst, handle_t dst_context, CUdeviceptr src, handle_t src_context,        \
              size_t n, handle_t stream),                                                          \
             fake_work())                                                                          \
        FAKE(cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t n), fake_work())           \
        FAKE(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t n, handle_t stream),  \
             fake_work())                                                                          \
        FAKE(cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t n), fake_work())                 \
        FAKE(cuMemcpyDtoDAsync_v2_ptsz,                                                            \
             (CUdeviceptr dst, CUdeviceptr src, size_t n, handle_t stream), fake_work())           \
        FAKE(cuMemcpy2DUnaligned_v2, (const struct fake_copy_2d *copy), fake_work())               \
        FAKE(cuMemcpy2D_v2, (const struct fake_copy_2d *copy), cuMemcpy2DUnaligned_v2(copy))       \
        FAKE(cuMemcpy3DAsync_v2, (const struct fake_copy_3d *copy, handle_t stream), fake_work())  \
        FAKE(cuMemsetD8_v2, (CUdeviceptr dst, unsigned char v, size_t n), fake_work())             \
        FAKE(cuMemsetD32Async, (CUdeviceptr dst, unsigned v, size_t n, handle_t stream),           \
             fake_work())                                                                          \
        FAKE(cuMemsetD2D16_v2,                                                                     \
             (CUdeviceptr dst, size_t pitch, unsigned short v, size_t width, size_t height),       \
             fake_work())                                                                          \
        FAKE(cuMemAlloc_v2, (CUdeviceptr * out, size_t n), *out = fake_handle)                     \
        FAKE(cuMemAllocManaged, (CUdeviceptr * out, size_t n, unsigned flags), *out = fake_handle) \
        FAKE(cuMemAllocHost_v2, (void **out, size_t n), *out = (void *)fake_handle)                \
        FAKE(cuMemAllocAsync, (CUdeviceptr * out, size_t n, handle_t stream), *out = fake_handle)  \
        FAKE(cuMemFree_v2, (CUdeviceptr address), fake_work())                                     \
        FAKE(cuMemFreeAsync, (CUdeviceptr address, handle_t stream), fake_work())                  \
        FAKE(cuMemFreeHost, (void *address), fake_work())                                          \
        FAKE(cuMemMap,                                                                             \
             (CUdeviceptr address, size_t n, size_t offset, uint64_t memory, uint64_t flags),      \
             fake_work())                                                                          \
        FAKE(cuMemUnmap, (CUdeviceptr address, size_t n), fake_work())                             \
        FAKE(cuMemAdvise, (CUdeviceptr address, size_t n, int advice, int device), fake_work())    \
        FAKE(cuMemPrefetchAsync_v2,                                                                \
             (CUdeviceptr address, size_t n, uint64_t location, unsigned flags, handle_t stream),  \
             fake_work())

#define FAKE_DECLARE(name, parameters, effect) CUresult name parameters;
FAKE_FUNCTIONS(FAKE_DECLARE)

/* What the functions return and hand out; variables of the library. */
extern CUresult fake_result;
extern handle_t fake_handle;
extern void (*fake_work)(void);

/* cuLaunchKernel, reached by a jump from a function that is probed too. */
CUresult cuMemsetD16_v2(FAKE_LAUNCH_ARGS, void **extra);
