/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Kernels whose machine code has each shape the splicer must get right. All take
 * (const float *in, float *out, int n), are deterministic, and write only out[i],
 * i < n, so that outputs can be compared bit for bit. `regenerate` compiles them.
 */
#include <cstdio>

#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

/* Shared memory, a block barrier, a loop with an exit inside. */
extern "C" __global__ void shared_barrier(const float *in, float *out, int n)
{
        __shared__ float s[256];
        int i = INDEX;
        float sum = 0;

        s[threadIdx.x & 255] = i < n ? in[i] : 0;
        __syncthreads();
        for (int k = 0; k < n % 7 + 3; k++) {
                sum += s[(threadIdx.x + k) & 255] * k;
                if (sum > 1e30f)
                        return;
        }
        if (i < n)
                out[i] = sum;
}

/* Threads of a warp leave at different places, the last ones after a shuffle. */
extern "C" __global__ void divergent_exits(const float *in, float *out, int n)
{
        int i = INDEX;
        float v, w;

        if (i >= n)
                return;
        v = in[i];
        if ((threadIdx.x & 3) == 1) {
                out[i] = v + 1;
                return;
        }
        if (v < 0.1f && (threadIdx.x & 1))
                return;
        w = __shfl_xor_sync(__activemask(), v, 4);
        for (int k = 0; k < (int)(threadIdx.x & 31); k++) {
                w = w * 0.5f + v;
                if (w > 40.f)
                        return;
        }
        out[i] = w;
}

/* An exit that depends on two predicates at once. */
extern "C" __global__ void predicated_exit(const float *in, float *out, int n)
{
        int i = INDEX;

        if (i >= n)
                return;
        asm volatile("{ .reg .pred p, q; .reg .b32 t;\n"
                     "  and.b32 t, %0, 5; setp.eq.u32 p, t, 4;\n"
                     "  setp.lt.f32 q, %1, 0f3e800000;\n"
                     "  and.pred p, p, q; @p exit; }" ::"r"(threadIdx.x),
                     "f"(in[i]));
        out[i] = in[i] * 3;
}

#ifndef FEW /* the older ABI gets by with those above */

__device__ __noinline__ float polynomial(float x, int k)
{
        float r = 1;

        for (int j = 0; j < k; j++)
                r = r * x + j;
        return r;
}

/* A function in the same section. */
extern "C" __global__ void device_function(const float *in, float *out, int n)
{
        int i = INDEX;

        if (i < n)
                out[i] = polynomial(in[i], i & 7) + polynomial(in[i] * 0.5f, i & 3);
}

/* A jump table. */
extern "C" __global__ void jump_table(const float *in, float *out, int n)
{
        int i = INDEX;
        float v;

        if (i >= n)
                return;
        v = in[i];
        switch (i % 9) {
        case 0:
                for (int k = 0; k < n % 5; k++)
                        v = v * v + k;
                break;
        case 1:
                v = rsqrtf(v + 1);
                break;
        case 2:
                for (int k = 0; k < n % 3; k++)
                        v += out[i] * k;
                break;
        case 3:
                v = __expf(v * 0.01f);
                break;
        case 4:
                return;
        case 5:
                v = __int_as_float(__float_as_int(v) ^ 1);
                break;
        case 6:
                v = __logf(v + 2);
                break;
        case 7:
                v = truncf(v) - v;
                break;
        default:
                v = -v;
        }
        out[i] = v;
}

/* Calls code that the driver brings. */
extern "C" __global__ void calls_printf(const float *in, float *out, int n)
{
        int i = INDEX;

        if (i < n)
                out[i] = in[i] + 2;
        if (i == n)
                printf("never %d\n", n);
}

/* A register budget that leaves the probe none. */
extern "C" __global__ void __launch_bounds__(1024, 2) launch_bounds(const float *in, float *out,
                                                                     int n)
{
        int i = INDEX;

        if (i < n)
                out[i] = in[i] * 3;
}

/* All 255 registers. */
extern "C" __global__ void __launch_bounds__(256, 1) many_registers(const float *in, float *out,
                                                                    int n)
{
        int i = INDEX;
        const float *from = in + (i + 250 < n ? i : 0);
        float v[250], sum = 0;

        if (n < 250)
                return;
#pragma unroll
        for (int k = 0; k < 250; k++)
                v[k] = from[k];
        __syncthreads(); /* all of them are alive here */
        if (v[3] > 1e30f)
                return;
#pragma unroll
        for (int k = 0; k < 250; k++)
                sum = sum * v[(k * 7) % 250] + v[249 - k];
        if (i < n)
                out[i] = sum;
}

__device__ int counter_in_module;
__constant__ float constant_in_module[4] = {1, 2, 3, 4};

/* Module scope data, an atomic whose result nobody reads, stores right before the end. */
extern "C" __global__ void module_data(const float *in, float *out, int n)
{
        int i = INDEX;

        atomicAdd(&counter_in_module, 1);
        if (i < n)
                out[i] = in[i] * constant_in_module[i & 3];
}

extern "C" __global__ void empty(const float *in, float *out, int n)
{
}

/* Several kernels of one kind. */
template <int K> __global__ void family(const float *in, float *out, int n)
{
        int i = INDEX;

        if (i < n)
                out[i] = in[i] * K;
}
template __global__ void family<1>(const float *, float *, int);
template __global__ void family<2>(const float *, float *, int);
template __global__ void family<3>(const float *, float *, int);
#endif
