// SPDX-License-Identifier: Apache-2.0

// A shared library with kernels of its own, for the dlclose check.

#include <cstdint>

__global__ void plugin_mix(uint32_t *v, int n, uint32_t k)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                v[i] = v[i] * 1664525u + 1013904223u + k;
}

__global__ void plugin_nothing()
{
}

// Two launches. 0, or the runtime's error.
extern "C" int plugin_work(uint32_t *v, int n, uint32_t k)
{
        plugin_mix<<<(n + 127) / 128, 128>>>(v, n, k);
        plugin_nothing<<<1, 32>>>();
        cudaError_t e = cudaGetLastError();
        return e != cudaSuccess ? e : cudaDeviceSynchronize();
}
