/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What device_cost measures, as it is and with the least that each way to count
 * the blocks of a grid could cost: written here, where the assembler sees all of it
 * and no detour is needed. count: one line of 128 bytes for each multiprocessor.
 */
struct arguments {
        const float *in;
        float *out;
        unsigned *count;
        int n;      /* of the matrices */
        int cycles; /* to spin */
};

enum counting { PLAIN, RED, ATOM, RED_SM, ATOM_SM };

template <counting how> static __device__ void count_block(unsigned *count)
{
        unsigned sm;

        if (how == PLAIN || threadIdx.x)
                return;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        if (how == RED_SM || how == ATOM_SM)
                count += 32 * sm;
        if (how == RED || how == RED_SM)
                atomicAdd(count, 1);
        else if (atomicAdd(count, 1) == ~0u)
                count[1] = 1;
}

template <counting how> static __device__ void store(struct arguments a)
{
        a.out[threadIdx.x] = a.in[threadIdx.x];
        count_block<how>(a.count);
}

template <counting how> static __device__ void spin(struct arguments a)
{
        long long start = clock64();

        while (clock64() - start < a.cycles)
                ;
        count_block<how>(a.count);
}

template <counting how> static __device__ void scale(struct arguments a)
{
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

        a.out[i] = a.in[i] * 2 + 1;
        count_block<how>(a.count);
}

/* Blocks of 256 threads, each with a tile of 16 by 16; in holds both matrices. */
template <counting how> static __device__ void multiply(struct arguments a)
{
        __shared__ float left[16][17], right[16][17];
        int column = threadIdx.x % 16, row = threadIdx.x / 16, tiles = a.n / 16;
        int y = blockIdx.x / 8 * 16 + row, x = blockIdx.x % 8 * 16 + column;
        float sum = 0;

        for (int t = 0; t < tiles; t++) {
                left[row][column] = a.in[y * a.n + t * 16 + column];
                right[row][column] = a.in[(t * 16 + row) * 128 + x];
                __syncthreads();
                for (int k = 0; k < 16; k++)
                        sum += left[row][k] * right[k][column];
                __syncthreads();
        }
        a.out[y * 128 + x] = sum;
        count_block<how>(a.count);
}

#define KERNEL(name, suffix, how)                                                                  \
        extern "C" __global__ void name##suffix(struct arguments a)                                \
        {                                                                                          \
                name<how>(a);                                                                      \
        }
#define KERNELS(suffix, how)                                                                       \
        KERNEL(store, suffix, how)                                                                 \
        KERNEL(spin, suffix, how)                                                                  \
        KERNEL(scale, suffix, how)                                                                 \
        KERNEL(multiply, suffix, how)

KERNELS(_plain, PLAIN)
KERNELS(_red, RED)
KERNELS(_atom, ATOM)
KERNELS(_red_sm, RED_SM)
KERNELS(_atom_sm, ATOM_SM)

/*
 * Shows special register 32, which PTX has no word for: device_cost puts it where
 * this reads the lane's number.
 */
extern "C" __global__ void packed_index(struct arguments a)
{
        unsigned packed;

        asm volatile("mov.u32 %0, %%laneid;" : "=r"(packed));
        ((unsigned *)a.out)[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)] =
                packed;
}
