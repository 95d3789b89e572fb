/* SPDX-License-Identifier: Apache-2.0 */

/* What nvcc's PTX can look like, for the tests that put probes into it. */
#include <cstdio>

extern "C" __global__ void nothing(void)
{
}

extern "C" __global__ void early(const int *in, int *out, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i >= n)
                return;
        if (in[i] < 0)
                return;
        out[i] = in[i] * 2;
}

__device__ __noinline__ int twice(int x)
{
        return x > 1000 ? x : 2 * x + 1;
}

__device__ __noinline__ void give_up(int x)
{
        if (x == 77)
                asm volatile("exit;");
}

extern "C" __global__ void calls(int *out, int n)
{
        int sum = 0;

        for (int i = 0; i < n; i++)
                sum += twice(i ^ (int)threadIdx.x);
        out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void chooses(int *out, int what)
{
        int x = (int)threadIdx.x;

        switch (what) {
        case 0: x = x * 3; break;
        case 1: x = x ^ 0x55; break;
        case 2: x = __popc(x); break;
        case 3: x = __clz(x); break;
        case 4: x = x / 7; break;
        case 5: x = x % 13; break;
        case 6: asm volatile("exit;"); break;
        default: __trap();
        }
        out[threadIdx.x] = x;
}

extern "C" __global__ void __launch_bounds__(256, 2) reduces(const float *in, float *out)
{
        __shared__ float part[256];
        extern __shared__ float more[];

        part[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
        more[threadIdx.x] = 1;
        __syncthreads();
        for (int step = 128; step; step /= 2) {
                if (threadIdx.x < step)
                        part[threadIdx.x] += part[threadIdx.x + step] * more[threadIdx.x];
                __syncthreads();
        }
        if (threadIdx.x == 0)
                out[blockIdx.x] = part[0];
}

extern "C" __global__ void shuffles(int *out)
{
        int x = (int)threadIdx.x;

        for (int step = 16; step; step /= 2)
                x += __shfl_xor_sync(0xffffffff, x, step);
        if (__ballot_sync(0xffffffff, x & 1))
                out[blockIdx.x] = x;
}

extern "C" __global__ void speaks(int x)
{
        give_up(x);
        if (threadIdx.x == 0)
                printf("block %d says %d\n", blockIdx.x, x);
}

template <typename T> __global__ void scales(T *data, T factor, int n)
{
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
                data[i] *= factor;
}
template __global__ void scales<double>(double *, double, int);
template __global__ void scales<float>(float *, float, int);
