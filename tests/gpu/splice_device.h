/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What programs that put probes into kernels on a real device share: the driver by
 * its exported names, memory for the probes, and probes from PTX fragments. All of
 * it ends the program with a sentence when something fails, or with exit code 77
 * where there is no usable device. One thread.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/splice.h"
#include "device/device_abi.h"

typedef unsigned long long device_address;

/* What is needed of the driver, by its exported names; every result is a CUresult. */
#define SPLICE_DRIVER(X)                                                                           \
        X(cuInit, (unsigned))                                                                      \
        X(cuDeviceGet, (int *, int))                                                               \
        X(cuDeviceGetName, (char *, int, int))                                                     \
        X(cuDeviceGetAttribute, (int *, int, int))                                                 \
        X(cuDevicePrimaryCtxRetain, (void **, int))                                                \
        X(cuCtxSetCurrent, (void *))                                                               \
        X(cuCtxSynchronize, (void))                                                                \
        X(cuStreamCreate, (void **, unsigned))                                                     \
        X(cuStreamSynchronize, (void *))                                                           \
        X(cuGetErrorString, (int, const char **))                                                  \
        X(cuMemAlloc_v2, (device_address *, size_t))                                               \
        X(cuMemFree_v2, (device_address))                                                          \
        X(cuMemHostAlloc, (void **, size_t, unsigned))                                             \
        X(cuMemHostGetDevicePointer_v2, (device_address *, void *, unsigned))                      \
        X(cuMemcpyHtoD_v2, (device_address, const void *, size_t))                                 \
        X(cuMemcpyDtoH_v2, (void *, device_address, size_t))                                       \
        X(cuMemsetD32_v2, (device_address, unsigned, size_t))                                      \
        X(cuLinkCreate_v2, (unsigned, int *, void **, void **))                                    \
        X(cuLinkAddData_v2, (void *, int, void *, size_t, const char *, unsigned, int *, void **)) \
        X(cuLinkComplete, (void *, void **, size_t *))                                             \
        X(cuLinkDestroy, (void *))                                                                 \
        X(cuModuleLoadData, (void **, const void *))                                               \
        X(cuModuleUnload, (void *))                                                                \
        X(cuModuleGetFunction, (void **, void *, const char *))                                    \
        X(cuFuncGetAttribute, (int *, int, void *))                                                \
        X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                           unsigned, void *, void **, void **))                                    \
        X(cuStreamBeginCapture_v2, (void *, int))                                                  \
        X(cuStreamEndCapture, (void *, void **))                                                   \
        X(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                      \
        X(cuGraphLaunch, (void *, void *))                                                         \
        X(cuGraphExecDestroy, (void *))                                                            \
        X(cuGraphDestroy, (void *))                                                                \
        X(cuEventCreate, (void **, unsigned))                                                      \
        X(cuEventRecord, (void *, void *))                                                         \
        X(cuEventSynchronize, (void *))                                                            \
        X(cuEventElapsedTime, (float *, void *, void *))

#define SPLICE_DECLARE(name, parameters) extern int(*name) parameters;
SPLICE_DRIVER(SPLICE_DECLARE)

/* The memory of the start/end program. */
struct probe_memory {
        struct device_record *ring; /* host memory the device writes */
        device_address ring_address, counters;
};

/* Ends the program. */
_Noreturn void splice_die(const char *what, const char *why);
/* Ends the program unless result is CUDA_SUCCESS. */
void splice_must(int result, const char *what);

/* Load the driver, make the first device's context current; sm_90 only. */
void splice_open_device(void);

/* Zeroed; never freed. */
void splice_allocate(struct probe_memory *m);

/* The bytes of a file and a NUL behind them; free() them. */
char *splice_read_file(const char *path, size_t *ret_size);

/* What a probe was made from and into, for those who want to look. */
struct splice_built {
        char *text; /* PTX, owned */
        size_t text_size;
        void *cubin; /* owned */
        size_t cubin_size;
};
void splice_built_done(struct splice_built *b);

/* Edits a probe's machine code before it is taken apart; 0 or a negative number. */
typedef int splice_edit(void *cubin, size_t size);

/*
 * A probe from a PTX fragment whose tokens are filled in as the agent does it; name
 * says in messages which. edit may be NULL. ret_built may be NULL, else
 * splice_built_done() it. probe_code_free() the result.
 */
struct probe_code *splice_build_probe(const struct probe_memory *m, const char *name,
                                      const char *fragment, splice_edit *edit,
                                      struct splice_built *ret_built);
