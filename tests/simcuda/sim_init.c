/* SPDX-License-Identifier: Apache-2.0 */

/* Initialisation with injection, devices, errors, entry points by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct sim_driver sim_driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool running;
        pthread_t by;
        bool forked; /* the parent was initialised: its threads are not here */
} init = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void after_fork(void)
{
        init.forked = true;
        atomic_store(&sim_driver.ready, 0);
}

/* As the real driver does, inside the first cuInit; what it returns is not looked at. */
static void inject(void)
{
        const char *path = getenv("CUDA_INJECTION64_PATH");
        int (*initialize)(void);
        void *library;

        if (!path || !*path)
                return;
        library = dlopen(path, RTLD_NOW);
        if (!library)
                return;
        initialize = (int (*)(void))dlsym(library, "InitializeInjection");
        if (initialize)
                initialize();
}

static CUresult first_init(void)
{
        sim_config_load(&sim_driver.config);
        if (sim_sched_start() < 0)
                return CUDA_ERROR_OPERATING_SYSTEM;
        pthread_atfork(NULL, NULL, after_fork);
        atomic_store(&sim_driver.ready, 1);
        inject();
        return CUDA_SUCCESS;
}

/*
 * One thread initialises, others wait for it; the injected library may call the
 * driver, cuInit included, while it is being initialised.
 */
SIM_API cuInit(unsigned flags)
{
        CUresult r = CUDA_SUCCESS;

        SIM_ENTER();
        if (flags)
                return CUDA_ERROR_INVALID_VALUE;
        if (init.forked)
                return CUDA_ERROR_NOT_INITIALIZED;
        pthread_mutex_lock(&init.lock);
        if (init.running && pthread_equal(init.by, pthread_self())) {
                pthread_mutex_unlock(&init.lock);
                return CUDA_SUCCESS;
        }
        while (init.running)
                pthread_cond_wait(&init.changed, &init.lock);
        if (atomic_load(&sim_driver.ready)) {
                pthread_mutex_unlock(&init.lock);
                return CUDA_SUCCESS;
        }
        init.running = true;
        init.by = pthread_self();
        pthread_mutex_unlock(&init.lock);
        r = first_init();
        pthread_mutex_lock(&init.lock);
        init.running = false;
        pthread_cond_broadcast(&init.changed);
        pthread_mutex_unlock(&init.lock);
        return r;
}

CUresult sim_check_ready(void)
{
        return atomic_load_explicit(&sim_driver.ready, memory_order_acquire)
                       ? CUDA_SUCCESS
                       : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult sim_check_device(CUdevice device)
{
        CUresult r = sim_check_ready();

        if (r)
                return r;
        return device >= 0 && (unsigned)device < sim_driver.config.devices
                       ? CUDA_SUCCESS
                       : CUDA_ERROR_INVALID_DEVICE;
}

SIM_API cuDriverGetVersion(int *version)
{
        SIM_ENTER();
        if (!version)
                return CUDA_ERROR_INVALID_VALUE;
        *version = SIM_DRIVER_VERSION;
        return CUDA_SUCCESS;
}

/* ---- devices ---- */

SIM_API cuDeviceGet(CUdevice *device, int ordinal)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(ordinal);
        if (!r && !device)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *device = ordinal;
        return r;
}

SIM_API cuDeviceGetCount(int *count)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (!r && !count)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *count = (int)sim_driver.config.devices;
        return r;
}

SIM_API cuDeviceGetName(char *name, int length, CUdevice device)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(device);
        if (!r && (!name || length <= 0))
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                snprintf(name, (size_t)length, "gpuobs simulated GPU");
        return r;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
        CUresult r = sim_check_device(device);

        if (!r && !uuid)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r) {
                memcpy(uuid->bytes, "gpuobs-simulated", sizeof(uuid->bytes));
                uuid->bytes[15] = (char)('0' + device);
        }
        return r;
}

SIM_API cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
        SIM_ENTER();
        return get_uuid(uuid, device);
}

SIM_API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
        SIM_ENTER();
        return get_uuid(uuid, device);
}

SIM_API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(device);
        if (!r && !bytes)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *bytes = sim_driver.config.memory_bytes;
        return r;
}

static const struct {
        int attribute;
        int value;
} attributes[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SIM_SHARED_DEFAULT},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, SIM_SM_COUNT},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0xff},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, SIM_SM / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, SIM_SM % 10},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SIM_SHARED_MAX},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
};

static int find_attribute(int attribute, CUdevice device)
{
        if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
                return device;
        for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
                if (attributes[i].attribute == attribute)
                        return attributes[i].value;
        }
        return 0;
}

SIM_API cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(device);
        if (!r && (!value || attribute <= 0 || attribute > 200))
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *value = find_attribute(attribute, device);
        return r;
}

SIM_API cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(device);
        if (!r && (!major || !minor))
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r) {
                *major = SIM_SM / 10;
                *minor = SIM_SM % 10;
        }
        return r;
}

SIM_API cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(device);
        if (!r && (!id || length <= 0))
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                snprintf(id, (size_t)length, "0000:FF:%02X.0", (unsigned)device);
        return r;
}

SIM_API cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_device(device);
        if (!r)
                r = sim_check_device(peer);
        if (!r && !can)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *can = device != peer; /* their memory is the host's */
        return r;
}

/* ---- errors ---- */

#define ERROR(name, text)                                                                          \
        {                                                                                          \
                name, #name, text                                                                  \
        }
static const struct {
        CUresult error;
        const char *name;
        const char *text;
} errors[] = {
        ERROR(CUDA_SUCCESS, "no error"),
        ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
        ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
        ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
        ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
        ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
        ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
        ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
        ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
        ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
              "no kernel image is available for execution on the device"),
        ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
        ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
        ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
        ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
        ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
        ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
        ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
        ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
        ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
        ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
        ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
        ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
              "part or all of the requested memory range is already mapped"),
        ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
              "pointer does not correspond to a registered memory region"),
        ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
        ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
        ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
        ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
        ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
        ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              "operation not permitted when stream is capturing"),
        ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              "operation failed due to a previous error during capture"),
        ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not initiated in this stream"),
        ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
              "operation would make the legacy stream depend on a capturing blocking stream"),
        ERROR(CUDA_ERROR_CAPTURED_EVENT,
              "operation not permitted on an event last recorded in a capturing stream"),
        ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

SIM_API cuGetErrorName(CUresult error, const char **text)
{
        SIM_ENTER();
        if (!text)
                return CUDA_ERROR_INVALID_VALUE;
        *text = NULL;
        for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
                if (errors[i].error == error)
                        *text = errors[i].name;
        }
        return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API cuGetErrorString(CUresult error, const char **text)
{
        SIM_ENTER();
        if (!text)
                return CUDA_ERROR_INVALID_VALUE;
        *text = NULL;
        for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
                if (errors[i].error == error)
                        *text = errors[i].text;
        }
        return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- entry points by name ---- */

#define PER_THREAD_FLAG 2

/* Versions of functions that a caller for an older interface must not get. */
static const struct {
        const char *name;
        const char *suffix;
        int since;
} newer[] = {
        {"cuCtxCreate", "_v4", 12050},      {"cuCtxCreate", "_v3", 11040},
        {"cuGetProcAddress", "_v2", 12000}, {"cuEventElapsedTime", "_v2", 12080},
        {"cuMemAdvise", "_v2", 12020},      {"cuMemPrefetchAsync", "_v2", 12020},
        {"cuCtxSynchronize", "_v2", 13000}, {"cuGraphAddKernelNode", "_v2", 12000},
};

static bool old_enough(const char *name, const char *suffix, int version)
{
        for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++) {
                if (strcmp(newer[i].name, name) == 0 && strcmp(newer[i].suffix, suffix) == 0)
                        return version >= newer[i].since;
        }
        return true;
}

static void *own_symbol(const char *name)
{
        static void *self;
        Dl_info info;

        if (!self && dladdr((void *)own_symbol, &info))
                self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        return self ? dlsym(self, name) : NULL;
}

static void *find_version(const char *symbol, const char *suffix, bool per_thread)
{
        char name[160];
        void *found = NULL;

        if (per_thread) {
                snprintf(name, sizeof(name), "%s%s_ptsz", symbol, suffix);
                found = own_symbol(name);
        }
        snprintf(name, sizeof(name), "%s%s", symbol, suffix);
        return found ? found : own_symbol(name);
}

/* status: 0 found, 1 not found, 2 only in a newer version */
static CUresult get_proc(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
        static const char *const suffixes[] = {"_v4", "_v3", "_v2", ""};
        bool too_new = false;

        if (!symbol || !pfn || strncmp(symbol, "cu", 2) != 0)
                return CUDA_ERROR_INVALID_VALUE;
        *pfn = NULL;
        for (size_t i = 0; i < 4 && !*pfn; i++) {
                void *found = find_version(symbol, suffixes[i], flags & PER_THREAD_FLAG);

                if (found && old_enough(symbol, suffixes[i], version))
                        *pfn = found;
                else if (found)
                        too_new = true;
        }
        if (status)
                *status = *pfn ? 0 : too_new ? 2 : 1;
        return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_API cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
        SIM_ENTER();
        return get_proc(symbol, pfn, version, flags, NULL);
}

SIM_API cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags,
                            int *status)
{
        SIM_ENTER();
        return get_proc(symbol, pfn, version, flags, status);
}

/* The private tables of the real driver's runtime library are not simulated. */
SIM_API cuGetExportTable(const void **table, const CUuuid *id)
{
        SIM_ENTER();
        if (!table || !id)
                return CUDA_ERROR_INVALID_VALUE;
        *table = NULL;
        return CUDA_ERROR_INVALID_VALUE;
}
