// SPDX-License-Identifier: Apache-2.0

// Kernels that the forms check loads in every way the driver has: tests/gpu/pack
// makes a cubin, a fatbin and PTX of this file.

#include <cooperative_groups.h>
#include <cstdint>

extern "C" __device__ uint32_t tally = 0;

extern "C" __global__ void mix(uint32_t *out, int n, uint32_t k)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                out[i] = out[i] * 1664525u + 1013904223u + k;
}

extern "C" __global__ void spread(uint32_t *out, int n, uint32_t k)
{
        int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        int i = block * blockDim.x + threadIdx.x;

        if (i < n)
                out[i] += k * (i + 1);
}

extern "C" __global__ void no_parameters()
{
        atomicAdd(&tally, 1 + blockIdx.x);
}

// Every block reads what all others have written before.
extern "C" __global__ void together(uint32_t *out, int n, uint32_t k)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                out[i] += k + i;
        cooperative_groups::this_grid().sync();
        uint32_t other = out[(i + n / 2) % n];
        cooperative_groups::this_grid().sync();
        if (i < n)
                out[i] ^= other;
}

// The first lets the next grid start before it ends; the second waits for its results.
extern "C" __global__ void leads(uint32_t *out, int n, uint32_t k)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

#if __CUDA_ARCH__ >= 900
        asm volatile("griddepcontrol.wait;");
        asm volatile("griddepcontrol.launch_dependents;");
#endif
        if (i < n)
                out[i] = out[i] * 69069u + k;
}

extern "C" __global__ void dynamic_shared(uint32_t *out, int n, uint32_t k)
{
        extern __shared__ uint32_t part[];
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        part[threadIdx.x * 64] = i < n ? out[i] + k : 0;
        __syncthreads();
        if (i < n)
                out[i] = part[(blockDim.x - 1 - threadIdx.x) * 64];
}
