/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a symbol exists in several versions, the 64-bit one (_v2 and later) is
 * listed; the oldest have not been reachable through the headers since CUDA 4.
 * Symbols ending in _ptsz and _ptds are what programs call that were compiled
 * for per-thread default streams. A function that a library does not have is
 * passed over, so versions of different drivers stand side by side.
 *
 * Not listed: batched copies and prefetches (their sizes are in arrays), and of
 * the virtual memory management what does not say which addresses have memory.
 */
#include "probe/cuda_functions.h"

#include "cpu/cpu_abi.h"
#include "util/macro.h"

#define OUT(position) (CPU_ARG_OUT | (position))
/* parent: the argument it comes from, and the one that is its name */
#define NAMED(parent, name)     ((parent) | (name) << 4)
#define TIMES(argument, factor) ((argument) | (factor) << 4)
#define SHIFT(bytes_log2)       (bytes_log2)

#define LAUNCH(symbol, program_)                                                                   \
        {.name = symbol, .program = program_},                                                     \
        {                                                                                          \
                .name = symbol "_ptsz", .program = program_, .cookie = {.value = 1 }               \
        }

#define CALL(symbol, action_, what_, flags_, ...)                                                  \
        {                                                                                          \
                .name = symbol, .program = CUDA_PROGRAM_CALL, .cookie = {                          \
                        {.action = action_, .what = what_, .flags = flags_, __VA_ARGS__},          \
                }                                                                                  \
        }
#define OPERATION(symbol, what, flags, ...)                                                        \
        CALL(symbol, CPU_CALL_OPERATION, what, flags, __VA_ARGS__)
#define OPERATION_SZ(symbol, what, flags, ...)                                                     \
        OPERATION(symbol, what, flags, __VA_ARGS__),                                               \
                OPERATION(symbol "_ptsz", what, (flags) | CPU_CALL_PER_THREAD, __VA_ARGS__)
#define OPERATION_DS(symbol, what, flags, ...)                                                     \
        OPERATION(symbol, what, flags, __VA_ARGS__),                                               \
                OPERATION(symbol "_ptds", what, (flags) | CPU_CALL_PER_THREAD, __VA_ARGS__)
#define CREATE(symbol, what, ...)                                                                  \
        CALL(symbol, CPU_CALL_CREATE, what, 0, .handle = OUT(1), __VA_ARGS__)
#define DESTROY(symbol, what)      CALL(symbol, CPU_CALL_DESTROY, what, 0, .handle = 1)
#define CONTEXT(symbol, verb, ...) CALL(symbol, CPU_CALL_CONTEXT_##verb, 0, 0, __VA_ARGS__)
#define INSTANTIATE(symbol)                                                                        \
        CALL(symbol, CPU_CALL_INSTANTIATE, CPU_HANDLE_GRAPH_EXEC, 0, .handle = OUT(1), .parent = 2)

/* clang-format off */
const struct cuda_function cuda_functions[] = {
        LAUNCH("cuLaunchKernel", CUDA_PROGRAM_LAUNCH_KERNEL),
        LAUNCH("cuLaunchCooperativeKernel", CUDA_PROGRAM_LAUNCH_KERNEL),
        LAUNCH("cuLaunchKernelEx", CUDA_PROGRAM_LAUNCH_KERNEL_EX),
        LAUNCH("cuGraphLaunch", CUDA_PROGRAM_LAUNCH_GRAPH),

        /* contexts */
        CONTEXT("cuCtxCreate_v2", CREATE, .handle = OUT(1), .parent = 3),
        CONTEXT("cuCtxCreate_v3", CREATE, .handle = OUT(1), .parent = 5),
        CONTEXT("cuCtxCreate_v4", CREATE, .handle = OUT(1), .parent = 4),
        CONTEXT("cuDevicePrimaryCtxRetain", RETAIN, .handle = OUT(1), .parent = 2),
        CONTEXT("cuCtxFromGreenCtx", RETAIN, .handle = OUT(1)),
        CONTEXT("cuCtxDestroy_v2", DESTROY, .handle = 1),
        CONTEXT("cuCtxSetCurrent", SET, .handle = 1),
        CONTEXT("cuCtxPushCurrent_v2", PUSH, .handle = 1),
        CONTEXT("cuCtxPopCurrent_v2", POP, .handle = 0),

        /* code */
        CREATE("cuModuleLoad", CPU_HANDLE_MODULE, .parent = NAMED(0, 2)),
        CREATE("cuModuleLoadData", CPU_HANDLE_MODULE),
        CREATE("cuModuleLoadDataEx", CPU_HANDLE_MODULE),
        CREATE("cuModuleLoadFatBinary", CPU_HANDLE_MODULE),
        CREATE("cuLibraryGetModule", CPU_HANDLE_MODULE, .parent = 2),
        CREATE("cuLibraryLoadData", CPU_HANDLE_LIBRARY),
        CREATE("cuLibraryLoadFromFile", CPU_HANDLE_LIBRARY, .parent = NAMED(0, 2)),
        CREATE("cuModuleGetFunction", CPU_HANDLE_FUNCTION, .parent = NAMED(2, 3)),
        CREATE("cuKernelGetFunction", CPU_HANDLE_FUNCTION, .parent = 2),
        CREATE("cuLibraryGetKernel", CPU_HANDLE_KERNEL, .parent = NAMED(2, 3)),
        DESTROY("cuModuleUnload", CPU_HANDLE_MODULE),
        DESTROY("cuLibraryUnload", CPU_HANDLE_LIBRARY),

        /* streams and graphs */
        CREATE("cuStreamCreate", CPU_HANDLE_STREAM),
        CREATE("cuStreamCreateWithPriority", CPU_HANDLE_STREAM),
        CREATE("cuGreenCtxStreamCreate", CPU_HANDLE_STREAM),
        DESTROY("cuStreamDestroy_v2", CPU_HANDLE_STREAM),
        INSTANTIATE("cuGraphInstantiate"),
        INSTANTIATE("cuGraphInstantiate_v2"),
        INSTANTIATE("cuGraphInstantiateWithFlags"),
        INSTANTIATE("cuGraphInstantiateWithParams"),
        INSTANTIATE("cuGraphInstantiateWithParams_ptsz"),
        DESTROY("cuGraphExecDestroy", CPU_HANDLE_GRAPH_EXEC),

        /* waiting */
        OPERATION("cuCtxSynchronize", CPU_OP_SYNC_CONTEXT, 0, .handle = 0),
        OPERATION("cuCtxSynchronize_v2", CPU_OP_SYNC_CONTEXT, 0, .handle = 1),
        OPERATION_SZ("cuStreamSynchronize", CPU_OP_SYNC_STREAM, 0, .stream = 1),
        OPERATION("cuEventSynchronize", CPU_OP_SYNC_EVENT, 0, .handle = 1),

        /* launches in a stream that is captured go into a graph and do not run */
        OPERATION_SZ("cuStreamBeginCapture_v2", CPU_OP_CAPTURE_BEGIN, 0, .stream = 1),
        OPERATION_SZ("cuStreamBeginCaptureToGraph", CPU_OP_CAPTURE_BEGIN, 0, .stream = 1),
        OPERATION_SZ("cuStreamEndCapture", CPU_OP_CAPTURE_END, 0, .stream = 1, .handle = OUT(2)),

        /* copies */
        OPERATION_DS("cuMemcpy", CPU_OP_MEMCPY_OTHER, 0, .bytes = 3, .address = 1),
        OPERATION_SZ("cuMemcpyAsync", CPU_OP_MEMCPY_OTHER, 0, .bytes = 3, .address = 1,
                     .stream = 4),
        OPERATION_DS("cuMemcpyPeer", CPU_OP_MEMCPY_PEER, 0, .bytes = 5, .address = 1),
        OPERATION_SZ("cuMemcpyPeerAsync", CPU_OP_MEMCPY_PEER, 0, .bytes = 5, .address = 1,
                     .stream = 6),
        OPERATION_DS("cuMemcpyHtoD_v2", CPU_OP_MEMCPY_HTOD, 0, .bytes = 3, .address = 1),
        OPERATION_SZ("cuMemcpyHtoDAsync_v2", CPU_OP_MEMCPY_HTOD, 0, .bytes = 3, .address = 1,
                     .stream = 4),
        OPERATION_DS("cuMemcpyDtoH_v2", CPU_OP_MEMCPY_DTOH, 0, .bytes = 3, .address = 2),
        OPERATION_SZ("cuMemcpyDtoHAsync_v2", CPU_OP_MEMCPY_DTOH, 0, .bytes = 3, .address = 2,
                     .stream = 4),
        OPERATION_DS("cuMemcpyDtoD_v2", CPU_OP_MEMCPY_DTOD, 0, .bytes = 3, .address = 1),
        OPERATION_SZ("cuMemcpyDtoDAsync_v2", CPU_OP_MEMCPY_DTOD, 0, .bytes = 3, .address = 1,
                     .stream = 4),
        OPERATION_DS("cuMemcpyDtoA_v2", CPU_OP_MEMCPY_DTOD, 0, .bytes = 4, .address = 3),
        OPERATION_DS("cuMemcpyAtoD_v2", CPU_OP_MEMCPY_DTOD, 0, .bytes = 4, .address = 1),
        OPERATION_DS("cuMemcpyHtoA_v2", CPU_OP_MEMCPY_HTOD, 0, .bytes = 4),
        OPERATION_SZ("cuMemcpyHtoAAsync_v2", CPU_OP_MEMCPY_HTOD, 0, .bytes = 4, .stream = 5),
        OPERATION_DS("cuMemcpyAtoH_v2", CPU_OP_MEMCPY_DTOH, 0, .bytes = 4),
        OPERATION_SZ("cuMemcpyAtoHAsync_v2", CPU_OP_MEMCPY_DTOH, 0, .bytes = 4, .stream = 5),
        OPERATION_DS("cuMemcpyAtoA_v2", CPU_OP_MEMCPY_DTOD, 0, .bytes = 5),
        OPERATION_DS("cuMemcpy2D_v2", CPU_OP_MEMCPY_OTHER, CPU_CALL_COPY_2D, .stream = 0),
        OPERATION_DS("cuMemcpy2DUnaligned_v2", CPU_OP_MEMCPY_OTHER, CPU_CALL_COPY_2D, .stream = 0),
        OPERATION_SZ("cuMemcpy2DAsync_v2", CPU_OP_MEMCPY_OTHER, CPU_CALL_COPY_2D, .stream = 2),
        OPERATION_DS("cuMemcpy3D_v2", CPU_OP_MEMCPY_OTHER, CPU_CALL_COPY_3D, .stream = 0),
        OPERATION_SZ("cuMemcpy3DAsync_v2", CPU_OP_MEMCPY_OTHER, CPU_CALL_COPY_3D, .stream = 2),
        OPERATION_DS("cuMemcpy3DPeer", CPU_OP_MEMCPY_PEER, CPU_CALL_COPY_3D, .stream = 0),
        OPERATION_SZ("cuMemcpy3DPeerAsync", CPU_OP_MEMCPY_PEER, CPU_CALL_COPY_3D, .stream = 2),

        /* sets */
        OPERATION_DS("cuMemsetD8_v2", CPU_OP_MEMSET, SHIFT(0), .address = 1, .bytes = 3),
        OPERATION_DS("cuMemsetD16_v2", CPU_OP_MEMSET, SHIFT(1), .address = 1, .bytes = 3),
        OPERATION_DS("cuMemsetD32_v2", CPU_OP_MEMSET, SHIFT(2), .address = 1, .bytes = 3),
        OPERATION_SZ("cuMemsetD8Async", CPU_OP_MEMSET, SHIFT(0), .address = 1, .bytes = 3,
                     .stream = 4),
        OPERATION_SZ("cuMemsetD16Async", CPU_OP_MEMSET, SHIFT(1), .address = 1, .bytes = 3,
                     .stream = 4),
        OPERATION_SZ("cuMemsetD32Async", CPU_OP_MEMSET, SHIFT(2), .address = 1, .bytes = 3,
                     .stream = 4),
        OPERATION_DS("cuMemsetD2D8_v2", CPU_OP_MEMSET, SHIFT(0), .address = 1,
                     .bytes = TIMES(4, 5)),
        OPERATION_DS("cuMemsetD2D16_v2", CPU_OP_MEMSET, SHIFT(1), .address = 1,
                     .bytes = TIMES(4, 5)),
        OPERATION_DS("cuMemsetD2D32_v2", CPU_OP_MEMSET, SHIFT(2), .address = 1,
                     .bytes = TIMES(4, 5)),
        OPERATION_SZ("cuMemsetD2D8Async", CPU_OP_MEMSET, SHIFT(0), .address = 1,
                     .bytes = TIMES(4, 5), .stream = 6),
        OPERATION_SZ("cuMemsetD2D16Async", CPU_OP_MEMSET, SHIFT(1), .address = 1,
                     .bytes = TIMES(4, 5), .stream = 6),
        OPERATION_SZ("cuMemsetD2D32Async", CPU_OP_MEMSET, SHIFT(2), .address = 1,
                     .bytes = TIMES(4, 5), .stream = 6),

        /* memory */
        OPERATION("cuMemAlloc_v2", CPU_OP_ALLOC, 0, .address = OUT(1), .bytes = 2),
        OPERATION("cuMemAllocPitch_v2", CPU_OP_ALLOC, 0, .address = OUT(1), .bytes = TIMES(3, 4)),
        OPERATION("cuMemAllocManaged", CPU_OP_ALLOC_MANAGED, 0, .address = OUT(1), .bytes = 2),
        OPERATION("cuMemAllocHost_v2", CPU_OP_ALLOC_HOST, 0, .address = OUT(1), .bytes = 2),
        OPERATION("cuMemHostAlloc", CPU_OP_ALLOC_HOST, 0, .address = OUT(1), .bytes = 2),
        OPERATION_SZ("cuMemAllocAsync", CPU_OP_ALLOC_ASYNC, 0, .address = OUT(1), .bytes = 2,
                     .stream = 3),
        OPERATION_SZ("cuMemAllocFromPoolAsync", CPU_OP_ALLOC_ASYNC, 0, .address = OUT(1),
                     .bytes = 2, .stream = 4),
        OPERATION("cuMemFree_v2", CPU_OP_FREE, 0, .address = 1),
        OPERATION_SZ("cuMemFreeAsync", CPU_OP_FREE, 0, .address = 1, .stream = 2),
        OPERATION("cuMemFreeHost", CPU_OP_FREE, 0, .address = 1),
        OPERATION("cuMemMap", CPU_OP_MAP, 0, .address = 1, .bytes = 2),
        OPERATION("cuMemUnmap", CPU_OP_UNMAP, 0, .address = 1, .bytes = 2),
        OPERATION("cuMemAdvise", CPU_OP_MEM_ADVISE, 0, .address = 1, .bytes = 2),
        OPERATION("cuMemAdvise_v2", CPU_OP_MEM_ADVISE, 0, .address = 1, .bytes = 2),
        OPERATION_SZ("cuMemPrefetchAsync", CPU_OP_MEM_PREFETCH, 0, .address = 1, .bytes = 2,
                     .stream = 4),
        OPERATION_SZ("cuMemPrefetchAsync_v2", CPU_OP_MEM_PREFETCH, 0, .address = 1, .bytes = 2,
                     .stream = 5),
};
/* clang-format on */

const size_t cuda_function_count = ARRAY_SIZE(cuda_functions);
