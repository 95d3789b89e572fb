/* SPDX-License-Identifier: Apache-2.0 */

/* Kernels that reach what belongs to their module, and some that look as if they did. */
#include <cstdio>

__constant__ float weights[16];
__device__ int counter;
__device__ int table[4] = {1, 2, 3, 4};
static __device__ __noinline__ int count(int x)
{
        atomicAdd(&counter, x);
        return counter;
}
static __device__ __noinline__ int same(int x)
{
        return x * 7;
}
typedef int function(int);
__device__ function *const functions[2] = {count, same};

extern "C" {
__global__ void reads_constant(float *out)
{
        out[threadIdx.x] = weights[threadIdx.x & 15] + weights[1];
}
__global__ void counts(int *out)
{
        out[0] = atomicAdd(&counter, 1);
}
__global__ void counts_in_function(int *out)
{
        out[0] = count(out[1]);
}
__global__ void looks_up(int *out)
{
        out[threadIdx.x] = table[out[threadIdx.x] & 3];
}
__global__ void calls_through_pointer(int *out)
{
        out[0] = functions[out[1] & 1](out[0]);
}
__global__ void prints(int *out)
{
        printf("%d\n", out[0]);
}
__global__ void sine(float *out)
{
        out[threadIdx.x] = sinf(out[threadIdx.x]); /* a table of the compiler's */
}
__global__ void plain(float *a, const float *b)
{
        a[threadIdx.x] += b[threadIdx.x];
}
}
