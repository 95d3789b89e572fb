/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The baseline of the benchmarks: a library for CUDA_INJECTION64_PATH that turns
 * on CUPTI's activity records for kernels and throws them away, as the cheapest
 * user of CUPTI would. GPUOBS_CUPTI: path of libcupti; GPUOBS_CUPTI_API: also
 * records of runtime and driver API calls.
 *
 * Declarations are our own, after NVIDIA's CUPTI documentation (activity API).
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ACTIVITY_DRIVER            4
#define ACTIVITY_RUNTIME           5
#define ACTIVITY_CONCURRENT_KERNEL 10
#define BUFFER_BYTES               (8u << 20)

typedef int (*register_callbacks_fn)(void (*)(uint8_t **, size_t *, size_t *),
                                     void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
typedef int (*enable_fn)(int kind);
typedef int (*next_record_fn)(uint8_t *buffer, size_t valid, void **record);
typedef int (*flush_all_fn)(uint32_t flag);

static next_record_fn next_record;
static flush_all_fn flush_all;
static unsigned long kernels, others;

static void buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
        *size = BUFFER_BYTES;
        *buffer = aligned_alloc(8, BUFFER_BYTES);
        *max_records = 0;
}

static void buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                             size_t valid)
{
        void *record = NULL;

        (void)context, (void)stream, (void)size;
        while (next_record(buffer, valid, &record) == 0) {
                if (*(int *)record == ACTIVITY_CONCURRENT_KERNEL)
                        kernels++;
                else
                        others++;
        }
        free(buffer);
}

static void report(void)
{
        flush_all(1);
        fprintf(stderr, "cupti: %lu kernel records, %lu others\n", kernels, others);
}

int InitializeInjection(void);

__attribute__((visibility("default"))) int InitializeInjection(void)
{
        const char *path = getenv("GPUOBS_CUPTI");
        void *cupti = dlopen(path && path[0] ? path : "libcupti.so.13", RTLD_NOW);
        register_callbacks_fn register_callbacks;
        enable_fn enable;
        int r;

        if (!cupti) {
                fprintf(stderr, "cupti: %s\n", dlerror());
                return 1;
        }
        register_callbacks = (register_callbacks_fn)dlsym(cupti, "cuptiActivityRegisterCallbacks");
        enable = (enable_fn)dlsym(cupti, "cuptiActivityEnable");
        next_record = (next_record_fn)dlsym(cupti, "cuptiActivityGetNextRecord");
        flush_all = (flush_all_fn)dlsym(cupti, "cuptiActivityFlushAll");
        if (!register_callbacks || !enable || !next_record || !flush_all)
                return 1;
        r = register_callbacks(buffer_requested, buffer_completed);
        r = r ? r : enable(ACTIVITY_CONCURRENT_KERNEL);
        if (r == 0 && getenv("GPUOBS_CUPTI_API"))
                r = enable(ACTIVITY_DRIVER) | enable(ACTIVITY_RUNTIME);
        if (r)
                fprintf(stderr, "cupti: not enabled, error %d\n", r);
        atexit(report);
        return 1;
}
