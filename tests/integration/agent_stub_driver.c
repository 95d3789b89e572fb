/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent_stub_driver.h"

#define API __attribute__((visibility("default")))

typedef void *handle;
typedef unsigned long long address;

API struct stub_state stub = {
        .device_count = 1, .sm = {80, 80, 80, 80, 80, 80, 80, 80}, .has_vmm = 1};

static __thread handle stack[8];
static __thread int depth;
static char primary[8], created;
static int next_handle = 0x1000;
static int in_load;
static int initialised;
static handle grid_function;

API int cuInit(unsigned flags);
API int cuDriverGetVersion(int *v);
API int cuDeviceGet(int *d, int i);
API int cuDeviceGetCount(int *n);
API int cuDeviceGetAttribute(int *v, int a, int d);
API int cuDeviceGetUuid(void *uuid, int d);
API int cuDeviceCanAccessPeer(int *can, int a, int b);
API int cuDevicePrimaryCtxRetain(handle *c, int d);
API int cuDevicePrimaryCtxRelease_v2(int d);
API int cuDevicePrimaryCtxReset_v2(int d);
API int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active);
API int cuCtxGetCurrent(handle *c);
API int cuCtxGetDevice(int *d);
API int cuCtxPushCurrent_v2(handle c);
API int cuCtxPopCurrent_v2(handle *c);
API int cuModuleLoadData(handle *m, const void *image);
API int cuModuleLoadDataEx(handle *m, const void *image, unsigned n, int *o, void **v);
API int cuModuleLoadFatBinary(handle *m, const void *image);
API int cuModuleLoad(handle *m, const char *path);
API int cuLibraryLoadData(handle *l, const void *image, int *jo, void **jv, unsigned jn, int *lo,
                          void **lv, unsigned ln);
API int cuLibraryLoadFromFile(handle *l, const char *path, int *jo, void **jv, unsigned jn, int *lo,
                              void **lv, unsigned ln);
API int cuModuleGetFunction(handle *f, handle m, const char *name);
API int cuModuleUnload(handle m);
API int cuMemHostRegister_v2(void *p, size_t n, unsigned flags);
API int cuMemHostGetDevicePointer_v2(address *a, void *p, unsigned flags);
API int cuStreamCreate(handle *s, unsigned flags);
API int cuStreamDestroy_v2(handle s);
API int cuStreamSynchronize(handle s);
API int cuMemsetD8Async(address a, unsigned char v, size_t n, handle s);
API int cuMemAlloc_v2(address *a, size_t n);
API int cuMemFree_v2(address a);
API int cuMemCreate(unsigned long long *h, size_t n, const void *what, unsigned long long flags);
API int cuMemRelease(unsigned long long h);
API int cuMemGetAllocationGranularity(size_t *n, const void *what, int option);
API int cuMemAddressReserve(address *a, size_t n, size_t align, address want,
                            unsigned long long flags);
API int cuMemAddressFree(address a, size_t n);
API int cuMemMap(address a, size_t n, size_t offset, unsigned long long h,
                 unsigned long long flags);
API int cuMemUnmap(address a, size_t n);
API int cuMemSetAccess(address a, size_t n, const void *desc, size_t count);
API int cuLinkCreate_v2(unsigned n, int *o, void **v, handle *s);
API int cuLinkAddData_v2(handle s, int type, void *data, size_t n, const char *name, unsigned on,
                         int *o, void **v);
API int cuLinkComplete(handle s, void **cubin, size_t *n);
API int cuLinkDestroy(handle s);
API int cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned shared, handle s, void **parameters, void **extra);

static handle new_handle(void)
{
        return (handle)(uintptr_t)(next_handle += 16);
}

int cuInit(unsigned flags)
{
        const char *path = getenv("CUDA_INJECTION64_PATH");
        void *library = path && !initialised ? dlopen(path, RTLD_NOW) : NULL;
        int (*initialize)(void) = NULL;

        initialised = 1;
        if (library)
                initialize = (int (*)(void))dlsym(library, "InitializeInjection");
        if (initialize)
                initialize();
        return 0;
}

int cuDriverGetVersion(int *v)
{
        *v = 13000;
        return 0;
}

int cuDeviceGet(int *d, int i)
{
        *d = i;
        return i < stub.device_count ? 0 : 101;
}

int cuDeviceGetCount(int *n)
{
        *n = stub.device_count;
        return 0;
}

int cuDeviceGetAttribute(int *v, int a, int d)
{
        *v = a == 75 ? stub.sm[d] / 10 : a == 76 ? stub.sm[d] % 10 : a == 102 ? stub.has_vmm : 0;
        return 0;
}

int cuDeviceGetUuid(void *uuid, int d)
{
        memset(uuid, 0x40 + d, 16);
        return 0;
}

int cuDeviceCanAccessPeer(int *can, int a, int b)
{
        *can = stub.peers;
        return 0;
}

int cuDevicePrimaryCtxRetain(handle *c, int d)
{
        *c = &primary[d];
        return 0;
}

int cuDevicePrimaryCtxRelease_v2(int d)
{
        return 0;
}

int cuDevicePrimaryCtxReset_v2(int d)
{
        stub.resets++;
        return 0;
}

int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active)
{
        *f = 0;
        *active = 1;
        return 0;
}

int cuCtxGetCurrent(handle *c)
{
        *c = depth                     ? stack[depth - 1]
             : stub.no_current         ? NULL
             : stub.current_is_created ? (handle)&created
                                       : (handle)&primary[stub.current_device];
        return 0;
}

int cuCtxGetDevice(int *d)
{
        *d = stub.current_device;
        return 0;
}

int cuCtxPushCurrent_v2(handle c)
{
        stack[depth++] = c;
        return 0;
}

int cuCtxPopCurrent_v2(handle *c)
{
        *c = stack[--depth];
        return 0;
}

static int take(handle *h, const void *image)
{
        static const unsigned char binary[] = {0x7f, 0x50, 0xb1};
        handle nested;

        if (in_load) {
                stub.nested_loads++;
                *h = new_handle();
                return 0;
        }
        /* The agent's own kernels: what grids are told, and the clock's, by its thread at any time.
         */
        if (image && *(const char *)image == '.' &&
            (strstr(image, "gpuobs_grid") || strstr(image, "gpuobs_clock"))) {
                *h = new_handle();
                return 0;
        }
        stub.loads++;
        if (stub.nested_load) {
                in_load = 1;
                cuModuleLoadData(&nested, ".version 8.0\n.entry nested { ret; }\n");
                in_load = 0;
        }
        stub.image_address = image;
        stub.image_bytes = 0;
        stub.image_is_cubin = image && *(const unsigned char *)image == 0x7f;
        /* PTX starts with none of the bytes that cubins, containers and wrappers start with. */
        if (image && !memchr(binary, *(const char *)image, sizeof(binary))) {
                stub.image_bytes = strlen(image);
                if (stub.image_bytes >= STUB_IMAGE_MAX)
                        return 1;
                memcpy(stub.image, image, stub.image_bytes + 1);
        }
        if (stub.refuse_all)
                return stub.refuse_all;
        if (stub.refuse_rewritten && strstr(stub.image, "PROBE"))
                return stub.refuse_rewritten;
        *h = new_handle();
        return 0;
}

int cuModuleLoadData(handle *m, const void *image)
{
        return take(m, image);
}

int cuModuleLoadDataEx(handle *m, const void *image, unsigned n, int *o, void **v)
{
        stub.last_jit_count = n;
        for (unsigned i = 0; i < n; i++)
                v[i] = (void *)((uintptr_t)v[i] + 1); /* outputs */
        return take(m, image);
}

int cuModuleLoadFatBinary(handle *m, const void *image)
{
        return take(m, image);
}

int cuModuleLoad(handle *m, const char *path)
{
        return take(m, ".version 8.0\n.entry from_file { ret; }\n");
}

int cuLibraryLoadData(handle *l, const void *image, int *jo, void **jv, unsigned jn, int *lo,
                      void **lv, unsigned ln)
{
        stub.last_jit_count = jn;
        stub.last_library_count = ln;
        memset(stub.last_library_options, 0xff, sizeof(stub.last_library_options));
        for (unsigned i = 0; i < ln && i < 8; i++)
                stub.last_library_options[i] = lo[i];
        return take(l, image);
}

int cuLibraryLoadFromFile(handle *l, const char *path, int *jo, void **jv, unsigned jn, int *lo,
                          void **lv, unsigned ln)
{
        return take(l, ".version 8.0\n.entry from_file { ret; }\n");
}

int cuModuleGetFunction(handle *f, handle m, const char *name)
{
        *f = (handle)((uintptr_t)m + 1);
        if (strcmp(name, "gpuobs_grid") == 0)
                grid_function = *f;
        return 0;
}

int cuModuleUnload(handle m)
{
        return 0;
}

int cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
        stub.registered++;
        return flags == 3 ? 0 : 1;
}

int cuMemHostGetDevicePointer_v2(address *a, void *p, unsigned flags)
{
        *a = (uintptr_t)p + (stub.shift_host ? 4096 : 0);
        return 0;
}

int cuStreamCreate(handle *s, unsigned flags)
{
        *s = new_handle();
        return flags == 1 ? 0 : 1;
}

int cuStreamDestroy_v2(handle s)
{
        return 0;
}

int cuStreamSynchronize(handle s)
{
        return 0;
}

int cuMemsetD8Async(address a, unsigned char v, size_t n, handle s)
{
        stub.memset_bytes += (int)n;
        return v == 0 && s ? 0 : 1;
}

int cuMemAlloc_v2(address *a, size_t n)
{
        stub.allocated++;
        *a = 0x7000000000;
        return 0;
}

int cuMemFree_v2(address a)
{
        return 0;
}

int cuMemCreate(unsigned long long *h, size_t n, const void *what, unsigned long long flags)
{
        *h = 5;
        return n % (2u << 20) ? 1 : 0;
}

int cuMemRelease(unsigned long long h)
{
        return 0;
}

int cuMemGetAllocationGranularity(size_t *n, const void *what, int option)
{
        *n = 2u << 20;
        return 0;
}

int cuMemAddressReserve(address *a, size_t n, size_t align, address want, unsigned long long flags)
{
        *a = 0x7100000000;
        return 0;
}

int cuMemAddressFree(address a, size_t n)
{
        return 0;
}

int cuMemMap(address a, size_t n, size_t offset, unsigned long long h, unsigned long long flags)
{
        stub.mapped++;
        return 0;
}

int cuMemUnmap(address a, size_t n)
{
        return 0;
}

int cuMemSetAccess(address a, size_t n, const void *desc, size_t count)
{
        stub.access_count = (int)count;
        return 0;
}

int cuLinkCreate_v2(unsigned n, int *o, void **v, handle *s)
{
        *s = new_handle();
        return stub.refuse_link;
}

static char link_input[] = "/tmp/gpuobs-link-XXXXXX";
static char linked_code[STUB_IMAGE_MAX];

/* NVIDIA's assembler in the place of the driver's. */
static int assemble(size_t *n)
{
        char output[64], command[256];
        FILE *f;

        snprintf(output, sizeof(output), "%s.cubin", link_input);
        snprintf(command, sizeof(command), "ptxas -arch=sm_90 %s -o %s", link_input, output);
        if (system(command) != 0)
                return 218;
        f = fopen(output, "rbe");
        *n = f ? fread(linked_code, 1, sizeof(linked_code), f) : 0;
        if (f)
                fclose(f);
        unlink(output);
        unlink(link_input);
        return *n ? 0 : 218;
}

int cuLinkAddData_v2(handle s, int type, void *data, size_t n, const char *name, unsigned on,
                     int *o, void **v)
{
        int fd;

        if (type != 1 || ((char *)data)[n - 1] != '\0')
                return 1;
        if (!stub.use_ptxas)
                return 0;
        memcpy(link_input + sizeof(link_input) - 7, "XXXXXX", 6);
        fd = mkstemp(link_input);
        if (fd < 0 || write(fd, data, n - 1) != (ssize_t)n - 1)
                return 1;
        close(fd);
        return 0;
}

/* Without the assembler, what comes out is no cubin; the test only looks at who gets it. */
int cuLinkComplete(handle s, void **cubin, size_t *n)
{
        stub.linked++;
        *cubin = linked_code;
        if (stub.use_ptxas)
                return assemble(n);
        memcpy(linked_code, "\x7f\x45\x4c\x46", 4);
        *n = 64;
        return 0;
}

int cuLinkDestroy(handle s)
{
        return 0;
}

/* Writes what a grid of the agent's two streams, taken in turn, would be told on sm_90. */
static void run_grid(volatile uint64_t *slot, handle s)
{
        static uint64_t grids;
        uint64_t descriptor = (uintptr_t)s / 16 * 0x4000 + grids / 2 % 8 * 0x800;

        slot[0] = ++grids;
        slot[1] = descriptor << 32 | 1; /* context */
        slot[2] = 1;
}

static void run_clock(volatile uint64_t *word)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC_RAW, &t);
        *word = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + 123456789;
}

/* The agent launches kernels of its own only. */
int cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, handle s, void **parameters, void **extra)
{
        volatile uint64_t *where = *(volatile uint64_t **)parameters[0];

        stub.launches++;
        if (f != grid_function)
                run_clock(where);
        else if (!stub.gpu_silent)
                run_grid(where, s);
        return 0;
}
