// SPDX-License-Identifier: Apache-2.0

// One sample of each thing that CUDA programs do with kernels, beside what app, forms and
// lifecycle have:
//
//   samples            all samples once
//   samples --rounds   all samples for each line of standard input, then "done"
//
// Prints its pid, for each sample "form NAME LAUNCHES" in the order of the launches and
// lines that start with "result", which must be the same in every round of every run; and
// what the runtime says of kernels, in "occupancy" and "registers" lines, which may differ
// where something that was put into a kernel needs registers.

#include <cooperative_groups.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "../unit/data/splice/kernels.cu"
#include "driver_symbol.cuh"

namespace cg = cooperative_groups;

#define CHECK(call) check((int)(call), #call, __LINE__)
#define DRIVER(name, ...)                                                                          \
        check((int)((decltype(&name))driver_symbol(#name))(__VA_ARGS__), #name, __LINE__)
#define RUN(kernel, grid, block, shared, ...)                                                      \
        do {                                                                                       \
                kernel<<<grid, block, shared>>>(__VA_ARGS__);                                      \
                launched(#kernel, __LINE__);                                                       \
        } while (0)

static const int kElements = 1 << 14, kThreads = 256, kBlocks = kElements / kThreads;
static const char *sample;
static int sample_launches, all_launches;
static float *in, *out;
static uint32_t *words;

static void check(int error, const char *what, int line)
{
        if (!error)
                return;
        fprintf(stderr, "samples.cu:%d: %s: %s: error %d\n", line, sample ? sample : "start", what,
                error);
        exit(1);
}

static void launched(const char *kernel, int line)
{
        check((int)cudaGetLastError(), kernel, line);
        sample_launches++;
}

static uint64_t digest(const void *bytes, size_t size)
{
        uint64_t h = 14695981039346656037ull;

        for (size_t i = 0; i < size; i++)
                h = (h ^ ((const uint8_t *)bytes)[i]) * 1099511628211ull;
        return h;
}

static void result(const char *name, uint64_t value)
{
        printf("result %s.%s %016llx\n", sample, name, (unsigned long long)value);
}

static uint64_t device_digest(const void *device, size_t size)
{
        std::vector<uint8_t> host(size);

        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(host.data(), device, size, cudaMemcpyDeviceToHost));
        return digest(host.data(), size);
}

static void result_words(const char *name)
{
        result(name, device_digest(words, kElements * sizeof(*words)));
}

static void clear_words()
{
        CHECK(cudaMemset(words, 0, kElements * sizeof(*words)));
}

static __device__ uint32_t mixed(uint32_t x)
{
        return (x ^ x >> 15) * 2246822519u + 3266489917u;
}

// ---- shapes of machine code ----

// Whole warps are gone when the others come to the barrier.
__global__ void leaves_before_barrier(const float *from, float *to, int n)
{
        __shared__ float tile[kThreads];
        int i = INDEX;

        tile[threadIdx.x] = 0;
        if (threadIdx.x / 32 % 3 == 1 || i >= n)
                return;
        tile[threadIdx.x] = from[i];
        __syncthreads();
        to[i] = tile[threadIdx.x / 32 * 32 + (threadIdx.x + 5) % 32] * 2;
}

static __device__ __noinline__ float ends_thread(float x)
{
        if (x > 60)
                asm volatile("exit;");
        return x + 1;
}

__global__ void function_exits(const float *from, float *to, int n)
{
        int i = INDEX;

        if (i < n)
                to[i] = ends_thread(from[i]) * 3;
}

static __device__ __noinline__ uint32_t recursion(uint32_t x, int depth)
{
        uint32_t own[3] = {x, mixed(x), mixed(x + 1)};

        if (depth == 0)
                return own[x % 3];
        return recursion(own[(x + 1) % 3], depth - 1) ^ own[depth % 3];
}

__global__ void recursive(const float *from, float *to, int n)
{
        int i = INDEX;

        if (i < n)
                to[i] = (float)(recursion((uint32_t)from[i], i % 5) & 0xffff);
}

typedef uint32_t step_function(uint32_t);
static __device__ __noinline__ uint32_t step_one(uint32_t x)
{
        return mixed(x);
}
static __device__ __noinline__ uint32_t step_two(uint32_t x)
{
        return x * 5 + 1;
}
static __device__ step_function *const steps[] = {step_one, step_two};

__global__ void through_pointer(const float *from, float *to, int n)
{
        int i = INDEX;

        if (i < n)
                to[i] = (float)(steps[(uint32_t)from[i] & 1](i) & 0xffff);
}

// More values than registers are alive at once.
__global__ void __launch_bounds__(kThreads, 1) spills(const float *from, float *to, int n)
{
        float v[320], sum = 0;
        int i = INDEX;

#pragma unroll
        for (int k = 0; k < 320; k++)
                v[k] = from[(i + k * 7) % n];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 320; k++)
                sum = sum * v[k * 11 % 320] + v[319 - k] * 0.5f;
        if (i < n)
                to[i] = sum;
}

static void shapes()
{
        static const struct {
                const char *name;
                void (*kernel)(const float *, float *, int);
        } kernels[] = {
#define SHAPE(name) {#name, name}
                SHAPE(shared_barrier),  SHAPE(divergent_exits), SHAPE(predicated_exit),
                SHAPE(device_function), SHAPE(jump_table),      SHAPE(calls_printf),
                SHAPE(launch_bounds),   SHAPE(many_registers),  SHAPE(module_data),
                SHAPE(empty),           SHAPE(family<2>),       SHAPE(leaves_before_barrier),
                SHAPE(function_exits),  SHAPE(recursive),       SHAPE(through_pointer),
                SHAPE(spills),
        };

        for (const auto &k : kernels) {
                CHECK(cudaMemset(out, 0, kElements * sizeof(*out)));
                // A last block that is cut off, then one block.
                for (int n : {kElements - 100, 180})
                        RUN(k.kernel, (n + kThreads - 1) / kThreads, kThreads, 0, in, out, n);
                result(k.name, device_digest(out, kElements * sizeof(*out)));
        }
}

// ---- what belongs to a module ----

__constant__ uint32_t key[64];

__global__ void encode(uint32_t *to)
{
        int i = INDEX;

        to[i] += key[(i * 7 + to[i]) % 64] ^ mixed(i);
}

static void constants()
{
        uint32_t host[64];
        void *address;

        for (int i = 0; i < 64; i++)
                host[i] = i * 2654435761u;
        clear_words();
        CHECK(cudaMemcpyToSymbol(key, host, sizeof(host)));
        RUN(encode, kBlocks, kThreads, 0, words);
        result_words("first");
        CHECK(cudaMemcpyToSymbolAsync(key, host, 32 * sizeof(*host), 32 * sizeof(*host),
                                      cudaMemcpyHostToDevice));
        RUN(encode, kBlocks, kThreads, 0, words);
        result_words("half");
        CHECK(cudaGetSymbolAddress(&address, key));
        CHECK(cudaMemset(address, 0x5a, sizeof(host) / 4));
        RUN(encode, kBlocks, kThreads, 0, words);
        result_words("by_address");
}

static __device__ uint32_t totals[16] = {1, 2, 3};
static __managed__ uint32_t managed_total = 7;

__global__ void add_up(uint32_t k)
{
        atomicAdd(&totals[threadIdx.x % 16], k + blockIdx.x);
        if (threadIdx.x == 0)
                atomicAdd(&managed_total, 1);
}

static void globals()
{
        uint32_t host[16] = {1, 2, 3};
        void *address;
        size_t size;

        CHECK(cudaMemcpyToSymbol(totals, host, sizeof(host)));
        managed_total = 7;
        RUN(add_up, kBlocks, kThreads, 0, 1);
        CHECK(cudaMemcpyFromSymbol(host, totals, sizeof(host)));
        result("first", digest(host, sizeof(host)));
        CHECK(cudaGetSymbolAddress(&address, totals));
        CHECK(cudaGetSymbolSize(&size, totals));
        CHECK(cudaMemset(address, 0, size / 2));
        RUN(add_up, kBlocks, kThreads, 0, 9);
        result("second", device_digest(address, size));
        result("managed", managed_total);
}

// The function behind a kernel, its module and library, and what is in them.
static void driver_objects()
{
        uint32_t k = 3, *p = words;
        void *add_arguments[] = {&k}, *encode_arguments[] = {&p}, *totals_address, *address;
        CUdeviceptr found;
        cudaFunction_t f, e;
        cudaKernel_t kernel;
        CUmodule m;
        CUlibrary l;
        unsigned count;
        size_t size;
        const char *name = "";

        CHECK(cudaGetSymbolAddress(&totals_address, totals));
        CHECK(cudaMemset(totals_address, 0, sizeof(totals)));
        CHECK(cudaGetFuncBySymbol(&f, (const void *)add_up));
        DRIVER(cuFuncGetModule, &m, (CUfunction)f);
        DRIVER(cuFuncGetName, &name, (CUfunction)f);
        result("name", digest(name, strlen(name)));
        DRIVER(cuModuleGetFunctionCount, &count, m);
        result("functions", count);
        CHECK(cudaGetKernel(&kernel, (const void *)add_up));
        DRIVER(cuKernelGetLibrary, &l, (CUkernel)kernel);
        DRIVER(cuLibraryGetKernelCount, &count, l);
        result("kernels", count);
        std::vector<CUkernel> kernels(count);
        DRIVER(cuLibraryEnumerateKernels, kernels.data(), count, l);
        result("enumerated", kernels.size());
        DRIVER(cuLibraryGetGlobal, &found, &size, l, "counter_in_module");
        CHECK(cudaGetSymbolAddress(&address, counter_in_module));
        result("same_global", found == (CUdeviceptr)address && size == sizeof(int));
        DRIVER(cuLaunchKernel, (CUfunction)f, 4, 1, 1, 64, 1, 1, 0, nullptr, add_arguments,
               nullptr);
        sample_launches++;
        result("totals", device_digest(totals_address, sizeof(totals)));
        clear_words();
        CHECK(cudaGetFuncBySymbol(&e, (const void *)encode));
        DRIVER(cuLaunchKernel, (CUfunction)e, kBlocks, 1, 1, kThreads, 1, 1, 0, nullptr,
               encode_arguments, nullptr);
        sample_launches++;
        result_words("encoded");
}

// ---- textures and surfaces ----

__global__ void sample_texture(cudaTextureObject_t texture, cudaSurfaceObject_t surface, int width)
{
        int x = threadIdx.x + blockIdx.x * blockDim.x, y = blockIdx.y;
        float v;

        if (x >= width)
                return;
        v = tex2D<float>(texture, x + 0.3f, y + 0.7f);
        surf2Dwrite(v * 2, surface, x * (int)sizeof(float), y);
}

__global__ void read_surface(cudaSurfaceObject_t surface, float *to, int width)
{
        int x = threadIdx.x + blockIdx.x * blockDim.x, y = blockIdx.y;

        if (x < width)
                to[y * width + x] = surf2Dread<float>(surface, x * (int)sizeof(float), y) + x;
}

static cudaArray_t make_array(unsigned flags)
{
        cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
        cudaArray_t a;

        CHECK(cudaMallocArray(&a, &format, 128, 128, flags));
        return a;
}

static void textures()
{
        cudaArray_t image = make_array(0), target = make_array(cudaArraySurfaceLoadStore);
        cudaResourceDesc resource = {};
        cudaTextureDesc how = {};
        cudaTextureObject_t texture;
        cudaSurfaceObject_t surface;
        dim3 grid(2, 128);

        CHECK(cudaMemcpy2DToArray(image, 0, 0, in, 128 * sizeof(float), 128 * sizeof(float), 128,
                                  cudaMemcpyDeviceToDevice));
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = image;
        how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
        how.filterMode = cudaFilterModeLinear;
        CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
        resource.res.array.array = target;
        CHECK(cudaCreateSurfaceObject(&surface, &resource));
        RUN(sample_texture, grid, 64, 0, texture, surface, 128);
        RUN(read_surface, grid, 64, 0, surface, out, 128);
        result("filtered", device_digest(out, kElements * sizeof(*out)));
        CHECK(cudaDestroyTextureObject(texture));
        CHECK(cudaDestroySurfaceObject(surface));
        CHECK(cudaFreeArray(image));
        CHECK(cudaFreeArray(target));
}

// ---- blocks that work together ----

__global__ void reverse_large(uint32_t *data)
{
        extern __shared__ uint32_t large[];
        uint32_t *mine = data + blockIdx.x * blockDim.x;

        for (int k = 0; k < 96; k++)
                large[k * kThreads + threadIdx.x] = mixed(mine[threadIdx.x] + k);
        __syncthreads();
        uint32_t sum = 0;
        for (int k = 0; k < 96; k++)
                sum += large[k * kThreads + (kThreads - 1 - threadIdx.x + k) % kThreads];
        mine[threadIdx.x] = sum;
}

static const int kLarge = 96 * kThreads * (int)sizeof(uint32_t);

static void large_shared()
{
        clear_words();
        CHECK(cudaFuncSetAttribute(reverse_large, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kLarge));
        RUN(reverse_large, kBlocks, kThreads, kLarge, words);
        result_words("reversed");
}

// Elements change places between barriers of the whole grid.
static __device__ void rounds(uint32_t *data, uint32_t *other, int n)
{
        for (int round = 0; round < 10; round++) {
                for (int i = INDEX; i < n; i += gridDim.x * blockDim.x)
                        other[(i * 5 + round) % n] = mixed(data[i] + i);
                cg::this_grid().sync();
                uint32_t *swap = data;
                data = other;
                other = swap;
        }
}

__global__ void grid_rounds(uint32_t *data, uint32_t *other, int n)
{
        rounds(data, other, n);
}

#define BLOCKS_PROMISED 8

// As many registers as it may have for so many blocks on a multiprocessor.
__global__ void __launch_bounds__(kThreads, BLOCKS_PROMISED)
        bounded_rounds(uint32_t *data, uint32_t *other, int n)
{
        rounds(data, other, n);
}

static int most_blocks(const void *kernel, int threads, size_t shared)
{
        int blocks;

        CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared));
        return blocks;
}

static void all_at_once(const void *kernel, int blocks, const char *name)
{
        int n = kElements, processors;
        uint32_t *other;

        CHECK(cudaMalloc(&other, kElements * sizeof(*other)));
        clear_words();
        CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
        void *arguments[] = {&words, &other, &n};
        CHECK(cudaLaunchCooperativeKernel(kernel, blocks * processors, kThreads, arguments, 0,
                                          nullptr));
        sample_launches++;
        result_words(name);
        CHECK(cudaFree(other));
}

// As many blocks as the runtime says fit, and as many as the kernel was compiled for: they must.
static void cooperative()
{
        all_at_once((const void *)grid_rounds, most_blocks((const void *)grid_rounds, kThreads, 0),
                    "rounds");
        all_at_once((const void *)bounded_rounds, BLOCKS_PROMISED, "bounded_rounds");
}

static __device__ void exchange(uint32_t *data)
{
        __shared__ uint32_t tile[kThreads];
        cg::cluster_group cluster = cg::this_cluster();
        unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
        int i = INDEX;

        tile[threadIdx.x] = mixed(data[i] + i);
        cluster.sync();
        data[i] = cluster.map_shared_rank(tile, next)[kThreads - 1 - threadIdx.x] +
                  cluster.num_blocks();
        cluster.sync(); // nobody leaves while others read its memory
}

__global__ void __cluster_dims__(2, 1, 1) exchange_two(uint32_t *data)
{
        exchange(data);
}

__global__ void exchange_any(uint32_t *data)
{
        exchange(data);
}

static void clusters()
{
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t c = {};
        int fit;

        clear_words();
        RUN(exchange_two, kBlocks, kThreads, 0, words);
        result_words("compiled");
        c.gridDim = dim3(kBlocks);
        c.blockDim = dim3(kThreads);
        c.attrs = &attribute;
        c.numAttrs = 1;
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        for (unsigned size : {4u, 8u}) {
                attribute.val.clusterDim.x = size;
                CHECK(cudaLaunchKernelEx(&c, exchange_any, words));
                sample_launches++;
                result_words(size == 4 ? "four" : "eight");
        }
        CHECK(cudaOccupancyMaxActiveClusters(&fit, exchange_any, &c));
        printf("occupancy exchange_any.clusters %d\n", fit);
}

// ---- PTX in line ----

// A carry through two words, bytes picked, a vote; barriers that only some warps wait at, and
// a copy to shared memory that goes on meanwhile.
__global__ void inline_ptx(const float *from, uint32_t *to)
{
        __shared__ uint32_t tile[kThreads], copied[kThreads];
        uint32_t low, high, x = mixed(INDEX), vote;

        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                     :
                     : "r"((uint32_t)__cvta_generic_to_shared(&copied[threadIdx.x])),
                       "l"(from + INDEX)
                     : "memory");
        asm("{ add.cc.u32 %0, %2, 0x89abcdef; addc.u32 %1, %2, 7; }"
            : "=&r"(low), "=r"(high)
            : "r"(x));
        asm("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(low) : "r"(high), "r"(x));
        asm("prmt.b32 %0, %0, %1, 0x2705;" : "+r"(low) : "r"(x));
        asm volatile(
                "{ .reg .pred p; setp.gt.u32 p, %1, 0x7fffffff; vote.sync.ballot.b32 %0, p, -1; }"
                : "=r"(vote)
                : "r"(x));
        if (threadIdx.x < kThreads / 2) { // these warps make, the others take
                tile[threadIdx.x] = low ^ vote;
                asm volatile("bar.arrive 1, %0;" : : "n"(kThreads) : "memory");
        } else {
                asm volatile("bar.sync 1, %0;" : : "n"(kThreads) : "memory");
                tile[threadIdx.x] = tile[threadIdx.x - kThreads / 2] + high;
        }
        asm volatile("cp.async.wait_all;" : : : "memory");
        __syncthreads();
        to[INDEX] = tile[threadIdx.x] ^ copied[(threadIdx.x + 1) % kThreads];
}

static void ptx()
{
        clear_words();
        RUN(inline_ptx, kBlocks, kThreads, 0, in, words);
        result_words("mixed");
}

__global__ void prints(const float *from, int k)
{
        if (INDEX == k)
                printf("result printf.line %d %.3f %s\n", k, from[k], "from the device");
}

static void print()
{
        for (int k = 5; k < 600; k += 250) {
                RUN(prints, 3, kThreads, 0, in, k);
                CHECK(cudaDeviceSynchronize());
        }
}

// ---- what the runtime says of kernels ----

static void say(const char *name, const void *kernel, size_t dynamic)
{
        cudaFuncAttributes a;
        int grid, block;

        CHECK(cudaFuncGetAttributes(&a, kernel));
        result((std::string(name) + "_shared").c_str(), a.sharedSizeBytes);
        result((std::string(name) + "_constant").c_str(), a.constSizeBytes);
        result((std::string(name) + "_dynamic").c_str(), a.maxDynamicSharedSizeBytes);
        printf("registers %s %d, %zu bytes of local memory\n", name, a.numRegs, a.localSizeBytes);
        printf("occupancy %s.threads %d\n", name, a.maxThreadsPerBlock);
        CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, kernel, dynamic));
        printf("occupancy %s.grid %d\noccupancy %s.block %d\n", name, grid, name, block);
        printf("occupancy %s.blocks %d\n", name, most_blocks(kernel, 128, dynamic));
}

static void attributes()
{
        CHECK(cudaFuncSetAttribute(reverse_large, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kLarge));
        say("reverse_large", (const void *)reverse_large, kLarge);
        say("empty", (const void *)empty, 0);
        say("spills", (const void *)spills, 0);
        say("many_registers", (const void *)many_registers, 0);
        say("launch_bounds", (const void *)launch_bounds, 0);
        say("grid_rounds", (const void *)grid_rounds, 0);
        say("exchange_any", (const void *)exchange_any, 0);
        say("inline_ptx", (const void *)inline_ptx, 0);
        say("shared_barrier", (const void *)shared_barrier, 0);
}

// ----

static void run_all()
{
        static const struct {
                const char *name;
                void (*run)();
        } samples[] = {
                {"shapes", shapes},
                {"constants", constants},
                {"globals", globals},
                {"driver", driver_objects},
                {"textures", textures},
                {"large_shared", large_shared},
                {"cooperative", cooperative},
                {"clusters", clusters},
                {"ptx", ptx},
                {"printf", print},
                {"attributes", attributes},
        };

        for (const auto &s : samples) {
                sample = s.name;
                sample_launches = 0;
                s.run();
                CHECK(cudaDeviceSynchronize());
                printf("form %s %d\n", s.name, sample_launches);
                all_launches += sample_launches;
        }
}

int main(int argc, char **argv)
{
        std::vector<float> host(kElements);
        char line[64];

        if (argc > 2 || (argc == 2 && strcmp(argv[1], "--rounds"))) {
                fprintf(stderr, "usage: samples [--rounds]\n");
                return 2;
        }
        for (int i = 0; i < kElements; i++)
                host[i] = (float)(i * 2654435761u % 997) / 13;
        CHECK(cudaMalloc(&in, kElements * sizeof(*in)));
        CHECK(cudaMalloc(&out, kElements * sizeof(*out)));
        CHECK(cudaMalloc(&words, kElements * sizeof(*words)));
        CHECK(cudaMemcpy(in, host.data(), kElements * sizeof(*in), cudaMemcpyHostToDevice));
        printf("pid %d\n", getpid());
        fflush(stdout);
        if (argc == 1)
                run_all();
        while (argc == 2 && fgets(line, sizeof(line), stdin)) {
                run_all();
                printf("done\n");
                fflush(stdout);
        }
        printf("launches %d\n", all_launches);
        return 0;
}
