// SPDX-License-Identifier: Apache-2.0

// Kernels that launch kernels (dynamic parallelism), linked from relocatable code. Prints its
// pid, "result" lines that must be the same in every run, and the launches the CPU made.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include "check.cuh"

static const int kElements = 4096, kThreads = 128, kDepth = 4, kLaunches = 20;

// Each grid changes its part, then has two others change a half each.
__global__ void halve(uint32_t *v, int n, int depth)
{
        for (int i = threadIdx.x; i < n; i += blockDim.x)
                v[i] = v[i] * 1664525u + 1013904223u + depth + i;
        __syncthreads();
        if (threadIdx.x == 0 && depth < kDepth)
                for (int half = 0; half < 2; half++)
                        halve<<<1, kThreads, 0, cudaStreamFireAndForget>>>(v + half * n / 2, n / 2,
                                                                           depth + 1);
}

__global__ void check_sum(const uint32_t *v, uint32_t *sum)
{
        for (int i = threadIdx.x; i < kElements; i += blockDim.x)
                atomicAdd(sum, v[i] ^ i);
}

// What follows in the tail stream runs when this grid and all that it launched are done.
__global__ void parent(uint32_t *v, uint32_t *sum)
{
        if (threadIdx.x)
                return;
        halve<<<1, kThreads, 0, cudaStreamFireAndForget>>>(v, kElements, 0);
        check_sum<<<1, kThreads, 0, cudaStreamTailLaunch>>>(v, sum);
}

int main()
{
        std::vector<uint32_t> host(kElements);
        uint64_t h = 14695981039346656037ull;
        uint32_t *v, *sum, total;

        printf("pid %d\n", getpid());
        CHECK(cudaMalloc(&v, kElements * sizeof(*v)));
        CHECK(cudaMalloc(&sum, sizeof(*sum)));
        CHECK(cudaMemset(v, 1, kElements * sizeof(*v)));
        CHECK(cudaMemset(sum, 0, sizeof(*sum)));
        for (int k = 0; k < kLaunches; k++)
                parent<<<1, 32>>>(v, sum);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(host.data(), v, kElements * sizeof(*v), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&total, sum, sizeof(total), cudaMemcpyDeviceToHost));
        for (uint32_t x : host)
                h = (h ^ x) * 1099511628211ull;
        printf("result nested %016llx\nresult sum %08x\nlaunches %d\n", (unsigned long long)h,
               total, kLaunches);
        return 0;
}
