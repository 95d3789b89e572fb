// SPDX-License-Identifier: Apache-2.0

// Kernels of many shapes, to be compiled to PTX alone (tests/gpu/pack does so for
// compute_80 and compute_90) and to machine code: loops, early ends, calls of device
// functions, shared memory, votes, printf; with ENDS_THREADS also a function that
// ends its thread.
//
// Prints "result" lines, the same for every way of compiling, and the launches made.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "check.cuh"

__global__ void nothing()
{
}

__global__ void loops(uint32_t *v, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        for (; i < n; i += gridDim.x * blockDim.x) {
                uint32_t x = v[i];

                for (int k = 0; k < 1 + i % 37; k++)
                        x = x * 1664525u + 1013904223u;
                v[i] = x;
        }
}

__global__ void ends_early(uint32_t *v, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (blockIdx.x % 3 == 1 || i >= n)
                return;
        if (v[i] & 1)
                return;
        if (threadIdx.x % 5 == 2) {
                v[i] ^= 0x5555;
                return;
        }
        v[i] += 3;
}

__device__ __noinline__ uint32_t collatz(uint32_t x)
{
        uint32_t steps = 0;

        for (x = x % 1000 + 1; x != 1; steps++)
                x = x & 1 ? 3 * x + 1 : x / 2;
        return steps;
}

__global__ void calls(uint32_t *v, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                v[i] = v[i] * 31 + collatz(v[i]) + (v[i] % 7 ? collatz(i) : 0);
}

#ifdef ENDS_THREADS
// A function of the image ends threads: their ends cannot be seen from the kernel.
__device__ __noinline__ void give_up(uint32_t x)
{
        if (x % 11 == 3)
                asm volatile("exit;");
}

__global__ void gives_up(uint32_t *v, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i >= n)
                return;
        give_up(v[i]);
        v[i] += 17;
}
#endif

__global__ void shared_sum(uint32_t *v, int n)
{
        __shared__ uint32_t part[128];
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        part[threadIdx.x] = i < n ? v[i] : 0;
        __syncthreads();
        for (int step = 64; step; step /= 2) {
                if (threadIdx.x < step)
                        part[threadIdx.x] += part[threadIdx.x + step];
                __syncthreads();
        }
        if (i < n)
                v[i] += part[0];
}

__global__ void votes(uint32_t *v, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        uint32_t x = i < n ? v[i] : 7, b = __ballot_sync(0xffffffff, x & 4);

        x += __shfl_xor_sync(0xffffffff, x, 5) ^ b;
        if (i < n)
                v[i] = x;
}

__global__ void chooses(uint32_t *v, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i >= n)
                return;
        switch (v[i] % 9) {
        case 0: v[i] = __popc(v[i]); return;
        case 1: v[i] = __clz(v[i]); break;
        case 2: v[i] *= 5; break;
        case 3: v[i] /= 3; return;
        case 4: v[i] = __brev(v[i]); break;
        case 5: v[i] ^= v[i] >> 7; break;
        case 6: v[i] -= 12; return;
        case 7: v[i] %= 1000; break;
        default: v[i] = ~v[i];
        }
        v[i] += 1;
}

__global__ void speaks(const uint32_t *v)
{
        if (threadIdx.x == 0)
                printf("result said_%d %08x\n", (int)blockIdx.x, v[blockIdx.x]);
}

int main()
{
        const int n = 5000, threads = 128, blocks = (n + threads - 1) / threads, rounds = 20;
        int launches = 7 * rounds + 1;
        std::vector<uint32_t> host(n);
        uint64_t h = 14695981039346656037ull;
        uint32_t *v;

        printf("pid %d\n", getpid());
        CHECK(cudaMalloc(&v, n * sizeof(*v)));
        CHECK(cudaMemset(v, 0x21, n * sizeof(*v)));
        for (int k = 0; k < rounds; k++) {
                nothing<<<3, 32>>>();
                loops<<<7, threads>>>(v, n);
                ends_early<<<blocks, threads>>>(v, n);
                calls<<<blocks, threads>>>(v, n);
#ifdef ENDS_THREADS
                gives_up<<<blocks, threads>>>(v, n);
                launches++;
#endif
                shared_sum<<<blocks, threads>>>(v, n);
                votes<<<blocks, threads>>>(v, n);
                chooses<<<blocks, threads>>>(v, n);
        }
        fflush(stdout); // what the GPU says comes behind it
        speaks<<<1, 32>>>(v);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(host.data(), v, n * sizeof(*v), cudaMemcpyDeviceToHost));
        for (uint32_t x : host)
                h = (h ^ x) * 1099511628211ull;
        printf("result all %016llx\nlaunches %d\n", (unsigned long long)h, launches);
        return 0;
}
