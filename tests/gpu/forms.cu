// SPDX-License-Identifier: Apache-2.0

// Loads and launches kernels in every way the driver API and the runtime have:
//
//   forms DIRECTORY     with forms_kernels.cubin, .fatbin and .ptx
//
// Compiled a second time with --default-stream per-thread, it calls the per-thread
// variants of the same functions. Prints for each form "form NAME LAUNCHES" in the
// order of the launches, "result NAME CHECKSUM" and at last all launches made.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "driver_symbol.cuh"

// cuda.h has macros that give a function its present version's name.
#define NAME_(name)  #name
#define NAME(name)   NAME_(name)
#define DRIVER(name) ((decltype(&name))driver_symbol(NAME(name)))
#define CU(name, ...) check(DRIVER(name)(__VA_ARGS__), NAME(name), __LINE__)
#define RT(call)      check((CUresult)(call), #call, __LINE__)

static void check(CUresult r, const char *what, int line)
{
        if (r == CUDA_SUCCESS)
                return;
        fprintf(stderr, "forms.cu:%d: %s: error %d\n", line, what, (int)r);
        exit(1);
}

static const int kElements = 3000, kThreads = 128, kBlocks = (kElements + kThreads - 1) / kThreads;
static std::string directory;
static CUdeviceptr out;
static int form_launches, all_launches;

static std::vector<char> read_file(const std::string &name)
{
        std::string path = directory + "/" + name;
        FILE *f = fopen(path.c_str(), "rb");
        std::vector<char> bytes;
        char buffer[4096];
        size_t n;

        if (!f) {
                perror(path.c_str());
                exit(1);
        }
        while ((n = fread(buffer, 1, sizeof(buffer), f)) > 0)
                bytes.insert(bytes.end(), buffer, buffer + n);
        fclose(f);
        bytes.push_back(0); // PTX ends with it, others do not mind
        return bytes;
}

// ---- ways to launch ----

struct Arguments {
        CUdeviceptr out;
        int n;
        uint32_t k;
        void *list[3];

        explicit Arguments(uint32_t value) : out(::out), n(kElements), k(value), list{&out, &n, &k}
        {
        }
};

static void plain(CUfunction f, uint32_t k)
{
        Arguments a(k);

        CU(cuLaunchKernel, f, kBlocks, 1, 1, kThreads, 1, 1, 0, nullptr, a.list, nullptr);
        form_launches++;
}

// Parameters as one buffer instead of a list.
static void extra(CUfunction f, uint32_t k)
{
        struct {
                CUdeviceptr out;
                int n;
                uint32_t k;
        } buffer = {out, kElements, k};
        size_t size = sizeof(buffer);
        void *list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                        CU_LAUNCH_PARAM_END};

        CU(cuLaunchKernel, f, kBlocks, 1, 1, kThreads, 1, 1, 0, nullptr, nullptr, list);
        form_launches++;
}

static void extended(CUfunction f, uint32_t k, CUlaunchAttribute *attributes, unsigned count)
{
        Arguments a(k);
        CUlaunchConfig c = {};

        c.gridDimX = kBlocks;
        c.blockDimX = kThreads;
        c.gridDimY = c.gridDimZ = c.blockDimY = c.blockDimZ = 1;
        c.attrs = attributes;
        c.numAttrs = count;
        CU(cuLaunchKernelEx, &c, f, a.list, nullptr);
        form_launches++;
}

static void cooperative(CUfunction f, uint32_t k)
{
        Arguments a(k);

        CU(cuLaunchCooperativeKernel, f, kBlocks, 1, 1, kThreads, 1, 1, 0, nullptr, a.list);
        form_launches++;
}

static void without_parameters(CUmodule m)
{
        CUdeviceptr tally;
        CUfunction f;
        uint32_t value = 0;
        size_t size;

        CU(cuModuleGetFunction, &f, m, "no_parameters");
        CU(cuLaunchKernel, f, 5, 2, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
        CU(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
        form_launches += 2;
        CU(cuModuleGetGlobal, &tally, &size, m, "tally");
        CU(cuMemcpyDtoH, &value, tally, sizeof(value));
        printf("result tally %u\n", value);
}

static void several_dimensions(CUfunction f)
{
        Arguments a(3);

        CU(cuLaunchKernel, f, kBlocks / 6, 2, 3, kThreads, 1, 1, 0, nullptr, a.list, nullptr);
        form_launches++;
}

static void attributes(CUfunction f)
{
        CUlaunchAttribute list[2] = {};

        extended(f, 10, nullptr, 0);
        list[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
        list[0].value.priority = 0;
        extended(f, 11, list, 1);
        list[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        list[1].value.clusterDim.x = 2;
        list[1].value.clusterDim.y = list[1].value.clusterDim.z = 1;
        extended(f, 12, list, 2);
}

// Grids that overlap: the next starts while this one still runs.
static void dependent(CUfunction f)
{
        CUlaunchAttribute a = {};

        a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        a.value.programmaticStreamSerializationAllowed = 1;
        for (uint32_t k = 0; k < 8; k++)
                extended(f, 20 + k, &a, 1);
}

// More than a function may have unless its attributes say so: what is set on a
// function must hold for the one that runs.
static const int kLargeShared = 100 << 10;

static void large_shared(CUfunction f)
{
        Arguments a(4);

        CU(cuLaunchKernel, f, kBlocks, 1, 1, kThreads, 1, 1, kLargeShared, nullptr, a.list, nullptr);
        form_launches++;
}

static CUfunction function(CUmodule m, const char *name)
{
        CUfunction f;

        CU(cuModuleGetFunction, &f, m, name);
        return f;
}

static void use_module(CUmodule m, const char *form)
{
        bool all = !strcmp(form, "module_file");

        plain(function(m, "mix"), 1);
        extra(function(m, "mix"), 2);
        without_parameters(m);
        if (all) {
                several_dimensions(function(m, "spread"));
                attributes(function(m, "mix"));
                dependent(function(m, "leads"));
                cooperative(function(m, "together"), 5);
                CU(cuFuncSetAttribute, function(m, "dynamic_shared"),
                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kLargeShared);
                large_shared(function(m, "dynamic_shared"));
        }
        CU(cuCtxSynchronize, );
        CU(cuModuleUnload, m);
}

// ---- ways to load ----

static void module_file(const char *form)
{
        CUmodule m;

        CU(cuModuleLoad, &m, (directory + "/forms_kernels.cubin").c_str());
        use_module(m, form);
}

static void module_data(const char *form)
{
        CUmodule m;

        CU(cuModuleLoadData, &m, read_file("forms_kernels.cubin").data());
        use_module(m, form);
}

static void module_ptx(const char *form)
{
        char log[512] = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                                  CU_JIT_OPTIMIZATION_LEVEL};
        void *values[] = {log, (void *)sizeof(log), (void *)2};
        CUmodule m;

        CU(cuModuleLoadDataEx, &m, read_file("forms_kernels.ptx").data(), 3, options, values);
        use_module(m, form);
}

// As cuDNN carries one to see whether the driver compiles PTX.
static void module_old_ptx(const char *)
{
        static const char text[] = ".version 5.0\n.target sm_50\n.address_size 64\n"
                                   ".visible .entry old(.param .u64 out, .param .u32 n, .param .u32 k)\n{\n"
                                   ".reg .b64 %rd<2>; .reg .b32 %r<4>; .reg .pred %p;\n"
                                   "mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0; @%p exit;\n"
                                   "ld.param.u64 %rd1, [out]; ld.param.u32 %r2, [k];\n"
                                   "red.global.add.u32 [%rd1], %r2;\nret;\n}\n";
        CUmodule m;

        CU(cuModuleLoadData, &m, text);
        plain(function(m, "old"), 7);
        CU(cuCtxSynchronize, );
        CU(cuModuleUnload, m);
}

static void module_fatbin(const char *form)
{
        CUmodule m;

        CU(cuModuleLoadFatBinary, &m, read_file("forms_kernels.fatbin").data());
        use_module(m, form);
}

static void module_linked(const char *form)
{
        std::vector<char> ptx = read_file("forms_kernels.ptx");
        CUlinkState state;
        CUmodule m;
        size_t size;
        void *cubin;

        CU(cuLinkCreate, 0, nullptr, nullptr, &state);
        CU(cuLinkAddData, state, CU_JIT_INPUT_PTX, ptx.data(), ptx.size(), "forms", 0, nullptr, nullptr);
        CU(cuLinkComplete, state, &cubin, &size);
        CU(cuModuleLoadData, &m, cubin);
        CU(cuLinkDestroy, state);
        use_module(m, form);
}

// A kernel of a library is launched as it is, and as the function of this context.
static void use_library(CUlibrary l)
{
        CUkernel kernel;
        CUfunction f;
        CUdevice device;

        CU(cuCtxGetDevice, &device);
        CU(cuLibraryGetKernel, &kernel, l, "mix");
        plain((CUfunction)kernel, 31);
        CU(cuKernelGetFunction, &f, kernel);
        plain(f, 32);
        CU(cuLibraryGetKernel, &kernel, l, "dynamic_shared");
        CU(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kLargeShared, kernel,
           device);
        large_shared((CUfunction)kernel);
        CU(cuCtxSynchronize, );
        CU(cuLibraryUnload, l);
}

static void library_data(const char *)
{
        CUlibrary l;

        CU(cuLibraryLoadData, &l, read_file("forms_kernels.fatbin").data(), nullptr, nullptr, 0, nullptr,
           nullptr, 0);
        use_library(l);
}

static void library_ptx(const char *)
{
        CUlibrary l;

        CU(cuLibraryLoadData, &l, read_file("forms_kernels.ptx").data(), nullptr, nullptr, 0, nullptr, nullptr,
           0);
        use_library(l);
}

static void library_file(const char *)
{
        CUlibrary l;

        CU(cuLibraryLoadFromFile, &l, (directory + "/forms_kernels.cubin").c_str(), nullptr, nullptr, 0, nullptr,
           nullptr, 0);
        use_library(l);
}

// ---- the runtime's ways ----

__global__ void runtime_mix(uint32_t *v, int n, uint32_t k)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                v[i] = v[i] * 22695477u + k;
}

__global__ void runtime_nothing()
{
}

static void runtime(const char *)
{
        cudaLaunchConfig_t c = {};
        Arguments a(42);

        runtime_mix<<<kBlocks, kThreads>>>((uint32_t *)out, kElements, 40);
        runtime_nothing<<<3, 32>>>();
        RT(cudaGetLastError());
        c.gridDim = dim3(kBlocks);
        c.blockDim = dim3(kThreads);
        RT(cudaLaunchKernelEx(&c, runtime_mix, (uint32_t *)out, kElements, 41u));
        RT(cudaLaunchCooperativeKernel((const void *)runtime_mix, c.gridDim, c.blockDim, a.list, 0, 0));
        RT(cudaLaunchKernel((const void *)runtime_mix, c.gridDim, c.blockDim, a.list, 0, 0));
        form_launches += 5;
}

// ----

static void form(const char *name, void (*run)(const char *))
{
        std::vector<uint32_t> host(kElements);
        uint64_t h = 14695981039346656037ull;

        form_launches = 0;
        CU(cuMemsetD32, out, 1, kElements);
        run(name);
        CU(cuCtxSynchronize, );
        CU(cuMemcpyDtoH, host.data(), out, kElements * sizeof(uint32_t));
        for (uint32_t x : host)
                h = (h ^ x) * 1099511628211ull;
        printf("form %s %d\nresult %s %016llx\n", name, form_launches, name, (unsigned long long)h);
        all_launches += form_launches;
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                void (*run)(const char *);
        } forms[] = {
                {"runtime", runtime},           {"module_file", module_file},
                {"module_data", module_data},   {"module_ptx", module_ptx},
                {"module_old_ptx", module_old_ptx}, {"module_fatbin", module_fatbin},
                {"module_linked", module_linked}, {"library_data", library_data},
                {"library_ptx", library_ptx},   {"library_file", library_file},
        };

        if (argc != 2) {
                fprintf(stderr, "usage: forms DIRECTORY\n");
                return 2;
        }
        directory = argv[1];
        printf("pid %d\n", getpid());
        RT(cudaFree(nullptr)); // the primary context is there and current
        CU(cuMemAlloc, &out, kElements * sizeof(uint32_t));
        for (const auto &f : forms)
                form(f.name, f.run);
        printf("launches %d\n", all_launches);
        return 0;
}
