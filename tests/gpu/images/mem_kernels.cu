// SPDX-License-Identifier: Apache-2.0

// Kernels whose accesses of memory mem_model.c knows by heart: tests/gpu/pack makes a
// cubin and PTX of this file. Where a compiler could leave accesses out or join them,
// they are volatile.

typedef unsigned int u32;

extern "C" __global__ void vector_add(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                out[i] = in[i] + in[i + n];
}

extern "C" __global__ void strided(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                out[i] = in[i * 32 % n] * 3;
}

extern "C" __global__ void gather(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                out[i] = in[(i * 2654435761u >> 7) % n] + i;
}

extern "C" __global__ void wide(const uint4 *in, uint4 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n / 4) {
                uint4 v = in[i];

                v.x += v.w;
                v.y ^= v.z;
                out[i] = v;
        }
}

// Lanes go different ways, and some have left before.
extern "C" __global__ void divergent(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x, v = 0;

        if (i >= n || i % 7 == 3)
                return;
        if (i & 1)
                v = *(const volatile u32 *)&in[i];
        else
                for (u32 k = 0; k < i % 4; k++)
                        v += *(const volatile u32 *)&in[i + k * n / 4];
        out[i] = v;
}

// Lanes leave some at a time, out of loops whose rounds are the same for all of them.
extern "C" __global__ void leaves(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x, v;

        if (i >= n)
                return;
        v = *(const volatile u32 *)&in[i];
#pragma unroll 1
        for (u32 k = 0; k < 8; k++) {
#pragma unroll 1
                for (u32 j = 0; j <= (n + k) % 5; j++)
                        v = v * 5 + j * n + (v >> 7);
                *(volatile u32 *)&out[i] = v;
                if (i % 8 == k)
                        return;
        }
}

extern "C" __global__ void reduce(const u32 *in, u32 *out, u32 n)
{
        __shared__ volatile u32 tile[256];
        u32 t = threadIdx.x, i = blockIdx.x * 256 + t;

        tile[t] = in[i % n];
        __syncthreads();
        for (u32 k = 128; k; k /= 2) {
                if (t < k)
                        tile[t] = tile[t] + tile[t + k];
                __syncthreads();
        }
        if (t == 0)
                out[blockIdx.x] = tile[0];
}

extern "C" __global__ void atomics(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n) {
                atomicAdd(&out[i % 64], in[i]);
                atomicMax((unsigned long long *)&out[128 + 2 * (i % 32)], (unsigned long long)i);
        }
}

extern "C" __global__ void generic(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x, v;

        if (i >= n)
                return;
        asm volatile("ld.u32 %0, [%1+4];" : "=r"(v) : "l"(&in[i]));
        asm volatile("st.u32 [%0], %1;" : : "l"(&out[i]), "r"(v) : "memory");
}

extern "C" __global__ void local(const u32 *in, u32 *out, u32 n)
{
        volatile u32 own[16];
        u32 i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i >= n)
                return;
        for (u32 k = 0; k < 16; k++)
                own[(k + i) % 16] = i * k;
        out[i] = own[in[i] % 16] + own[i % 5];
}

// Parts of a warp draw numbers of counters of their own and take what they have drawn. The
// compiler lets one lane ask for all, and keeps in a uniform register which they are meanwhile.
extern "C" __global__ void tickets(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x, part = n / 4;

        if (i >= n)
                return;
        if (in[i] & 128) {
                if (in[i] & 768)
                        atomicAdd(&out[64 + atomicAdd(&out[0], 1) % part], 1);
        } else if (in[i] & 1024) {
                atomicAdd(&out[64 + part + atomicAdd(&out[1], 1) % part], 1);
        } else {
                atomicAdd(&out[64 + 2 * part + atomicAdd(&out[2], 1) % part], 1);
        }
}

// A loop in which the compiler lets parts of a warp take turns.
static __device__ u32 add_by_turns(u32 *place, u32 add)
{
        u32 now = *(volatile u32 *)place, was;

        while ((was = atomicCAS(place, now, now + add)) != now)
                now = was;
        return now;
}

// The same, and before and between it parts of the warp have been let out in the middle of loops.
extern "C" __global__ void tickets_and_turns(const u32 *in, u32 *out, u32 n)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x, part = n / 4, v;
        u32 *own = &out[n + i / 4];

        if (i >= n)
                return;
        v = in[i];
#pragma unroll 1
        for (u32 round = 0; round < 2 + (v >> 7 & 7); round++, v >>= 2) {
                if (v & 1) {
                        add_by_turns(own, 1);
                        atomicAdd(&out[64 + atomicAdd(&out[0], 1) % part], 1);
                        add_by_turns(own, 3);
                        atomicAdd(&out[64 + atomicAdd(&out[1], 1) % part], 2);
                } else {
                        add_by_turns(own, 5);
                        atomicAdd(&out[64 + part + atomicAdd(&out[2], 1) % part], 1);
                        add_by_turns(own, 7);
                        atomicAdd(&out[64 + part + atomicAdd(&out[3], 1) % part], 2);
                }
        }
}
