/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The part of the CUDA driver API the agent calls, declared here because the
 * toolkit's header is not needed to build. Handles are opaque; results are the
 * driver's CUresult numbers.
 *
 * The pointers come from the libcuda that is already in the process. For the
 * functions the agent hooks they are replaced by the hooks' way to the original,
 * so that a call made through this table never comes back into the agent.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *cuda_handle; /* CUcontext, CUmodule, CUlibrary, CUfunction, CUstream, CUlinkState */
typedef unsigned long long cuda_address; /* CUdeviceptr */

enum {
        CUDA_OK = 0,
        CUDA_INVALID_VALUE = 1,
        CUDA_ALREADY_REGISTERED = 712,
        CUDA_NOT_SUPPORTED = 801,
};

enum cuda_device_attribute {
        CUDA_ATTRIBUTE_MAJOR = 75,
        CUDA_ATTRIBUTE_MINOR = 76,
        CUDA_ATTRIBUTE_VIRTUAL_MEMORY = 102,
};

#define CUDA_HOST_REGISTER_PORTABLE  1u
#define CUDA_HOST_REGISTER_DEVICEMAP 2u
#define CUDA_STREAM_NON_BLOCKING     1u
#define CUDA_CAPTURE_RELAXED         2

enum cuda_link_input {
        CUDA_LINK_CUBIN = 0,
        CUDA_LINK_PTX = 1,
};

#define CUDA_LIBRARY_BINARY_IS_PRESERVED 1 /* CUlibraryOption */

struct cuda_memory_location {
        int type; /* 1: a device */
        int id;
};

struct cuda_allocation {
        int type; /* 1: pinned */
        int handle_types;
        struct cuda_memory_location location;
        void *win32;
        uint8_t flags[8];
};
_Static_assert(sizeof(struct cuda_allocation) == 32, "CUmemAllocationProp");

struct cuda_access {
        struct cuda_memory_location location;
        int flags; /* 3: read and write */
};
_Static_assert(sizeof(struct cuda_access) == 12, "CUmemAccessDesc");

struct cuda_uuid {
        uint8_t bytes[16];
};

/* X(field, exported name, return type of all is int, parameters): those the agent cannot do
 * without. */
#define CUDA_REQUIRED(X)                                                                           \
        X(driver_get_version, "cuDriverGetVersion", (int *))                                       \
        X(device_get, "cuDeviceGet", (int *, int))                                                 \
        X(device_get_count, "cuDeviceGetCount", (int *))                                           \
        X(device_get_attribute, "cuDeviceGetAttribute", (int *, int, int))                         \
        X(primary_retain, "cuDevicePrimaryCtxRetain", (cuda_handle *, int))                        \
        X(context_get_current, "cuCtxGetCurrent", (cuda_handle *))                                 \
        X(context_get_device, "cuCtxGetDevice", (int *))                                           \
        X(context_push, "cuCtxPushCurrent_v2", (cuda_handle))                                      \
        X(context_pop, "cuCtxPopCurrent_v2", (cuda_handle *))                                      \
        X(module_load_data, "cuModuleLoadData", (cuda_handle *, const void *))                     \
        X(module_get_function, "cuModuleGetFunction", (cuda_handle *, cuda_handle, const char *))  \
        X(module_unload, "cuModuleUnload", (cuda_handle))                                          \
        X(host_register, "cuMemHostRegister_v2", (void *, size_t, unsigned))                       \
        X(host_device_pointer, "cuMemHostGetDevicePointer_v2", (cuda_address *, void *, unsigned)) \
        X(stream_create, "cuStreamCreate", (cuda_handle *, unsigned))                              \
        X(stream_destroy, "cuStreamDestroy_v2", (cuda_handle))                                     \
        X(stream_synchronize, "cuStreamSynchronize", (cuda_handle))                                \
        X(memset_d8_async, "cuMemsetD8Async", (cuda_address, unsigned char, size_t, cuda_handle))  \
        X(launch_kernel, "cuLaunchKernel",                                                         \
          (cuda_handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,      \
           cuda_handle, void **, void **))

/* Those whose absence only takes one way of doing something away; NULL when absent. */
#define CUDA_OPTIONAL(X)                                                                           \
        X(get_error_name, "cuGetErrorName", (int, const char **))                                  \
        X(device_get_uuid, "cuDeviceGetUuid", (struct cuda_uuid *, int))                           \
        X(device_can_access_peer, "cuDeviceCanAccessPeer", (int *, int, int))                      \
        X(primary_get_state, "cuDevicePrimaryCtxGetState", (int, unsigned *, int *))               \
        X(primary_release, "cuDevicePrimaryCtxRelease_v2", (int))                                  \
        X(memory_alloc, "cuMemAlloc_v2", (cuda_address *, size_t))                                 \
        X(copy_from_device_async, "cuMemcpyDtoHAsync_v2",                                          \
          (void *, cuda_address, size_t, cuda_handle))                                             \
        X(copy_to_device_async, "cuMemcpyHtoDAsync_v2",                                            \
          (cuda_address, const void *, size_t, cuda_handle))                                       \
        X(memory_free, "cuMemFree_v2", (cuda_address))                                             \
        X(host_unregister, "cuMemHostUnregister", (void *))                                        \
        X(memory_create, "cuMemCreate",                                                            \
          (unsigned long long *, size_t, const struct cuda_allocation *, unsigned long long))      \
        X(memory_release, "cuMemRelease", (unsigned long long))                                    \
        X(memory_granularity, "cuMemGetAllocationGranularity",                                     \
          (size_t *, const struct cuda_allocation *, int))                                         \
        X(address_reserve, "cuMemAddressReserve",                                                  \
          (cuda_address *, size_t, size_t, cuda_address, unsigned long long))                      \
        X(address_free, "cuMemAddressFree", (cuda_address, size_t))                                \
        X(memory_map, "cuMemMap",                                                                  \
          (cuda_address, size_t, size_t, unsigned long long, unsigned long long))                  \
        X(memory_unmap, "cuMemUnmap", (cuda_address, size_t))                                      \
        X(memory_set_access, "cuMemSetAccess",                                                     \
          (cuda_address, size_t, const struct cuda_access *, size_t))                              \
        X(context_synchronize, "cuCtxSynchronize", (void))                                         \
        X(library_load_data, "cuLibraryLoadData",                                                  \
          (cuda_handle *, const void *, int *, void **, unsigned, int *, void **, unsigned))       \
        X(library_unload, "cuLibraryUnload", (cuda_handle))                                        \
        X(library_get_kernel, "cuLibraryGetKernel", (cuda_handle *, cuda_handle, const char *))    \
        X(library_get_module, "cuLibraryGetModule", (cuda_handle *, cuda_handle))                  \
        X(library_kernel_count, "cuLibraryGetKernelCount", (unsigned *, cuda_handle))              \
        X(library_kernels, "cuLibraryEnumerateKernels", (cuda_handle *, unsigned, cuda_handle))    \
        X(graph_get_nodes, "cuGraphGetNodes", (cuda_handle, cuda_handle *, size_t *))              \
        X(graph_node_get_type, "cuGraphNodeGetType", (cuda_handle, int *))                         \
        X(graph_kernel_get_params, "cuGraphKernelNodeGetParams_v2", (cuda_handle, void *))         \
        X(module_function_count, "cuModuleGetFunctionCount", (unsigned *, cuda_handle))            \
        X(module_functions, "cuModuleEnumerateFunctions", (cuda_handle *, unsigned, cuda_handle))  \
        X(module_load_data_ex, "cuModuleLoadDataEx",                                               \
          (cuda_handle *, const void *, unsigned, int *, void **))                                 \
        X(kernel_get_function, "cuKernelGetFunction", (cuda_handle *, cuda_handle))                \
        X(kernel_get_library, "cuKernelGetLibrary", (cuda_handle *, cuda_handle))                  \
        X(kernel_get_name, "cuKernelGetName", (const char **, cuda_handle))                        \
        X(kernel_get_attribute, "cuKernelGetAttribute", (int *, int, cuda_handle, int))            \
        X(kernel_set_attribute, "cuKernelSetAttribute", (int, int, cuda_handle, int))              \
        X(kernel_set_cache, "cuKernelSetCacheConfig", (cuda_handle, int, int))                     \
        X(function_get_module, "cuFuncGetModule", (cuda_handle *, cuda_handle))                    \
        X(function_get_name, "cuFuncGetName", (const char **, cuda_handle))                        \
        X(function_get_attribute, "cuFuncGetAttribute", (int *, int, cuda_handle))                 \
        X(function_set_attribute, "cuFuncSetAttribute", (cuda_handle, int, int))                   \
        X(function_set_cache, "cuFuncSetCacheConfig", (cuda_handle, int))                          \
        X(link_create, "cuLinkCreate_v2", (unsigned, int *, void **, cuda_handle *))               \
        X(link_add_data, "cuLinkAddData_v2",                                                       \
          (cuda_handle, int, void *, size_t, const char *, unsigned, int *, void **))              \
        X(link_complete, "cuLinkComplete", (cuda_handle, void **, size_t *))                       \
        X(link_destroy, "cuLinkDestroy", (cuda_handle))                                            \
        X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *))                              \
        X(stream_is_capturing, "cuStreamIsCapturing", (cuda_handle, int *))                        \
        X(stream_priority_range, "cuCtxGetStreamPriorityRange", (int *, int *))                    \
        X(function_param_info, "cuFuncGetParamInfo",                                               \
          (cuda_handle, size_t, size_t *, size_t *)) /* since CUDA 12.4 */                         \
        X(kernel_param_info, "cuKernelGetParamInfo", (cuda_handle, size_t, size_t *, size_t *))

struct cuda_api {
#define CUDA_FIELD(field, name, parameters) int(*field) parameters;
        CUDA_REQUIRED(CUDA_FIELD)
        CUDA_OPTIONAL(CUDA_FIELD)
#undef CUDA_FIELD
};

/*
 * Fill the table from a dlopen handle of libcuda. 0; -ENOENT a function the
 * agent needs is missing, *ret_missing (may be NULL) names it.
 */
int cuda_api_load(void *library, struct cuda_api *ret_api, const char **ret_missing);

/* The driver's name for a result ("CUDA_ERROR_..."), or "unknown error". Never NULL. */
const char *cuda_error_name(const struct cuda_api *api, int result);

/* True when memory can be placed with the virtual memory functions. */
bool cuda_has_virtual_memory(const struct cuda_api *api, int device);

/* The calling thread's context; NULL: it has none. */
cuda_handle cuda_current_context(const struct cuda_api *api);

/* A device's primary context if it has one now, else NULL: asking makes none and keeps none. */
cuda_handle cuda_primary_context(const struct cuda_api *api, int device);
