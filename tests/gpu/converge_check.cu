// SPDX-License-Identifier: Apache-2.0

// What programs in machine code rely on: lanes that a warp's part sends different ways
// come together again before another part of the warp, elsewhere in the kernel, has its
// turn. Loops of arithmetic, loops of loads, and branches in branches, in two arms that
// use the same convergence barriers; the compiler puts no YIELD into any of them.
//
// Prints how many lanes found others behind such a region than in front of it; exit code
// 1 when there are any.
#include "check.cuh"

#include <cstdio>
#include <vector>

typedef unsigned int u32;

enum { WORDS = 1 << 20, BLOCKS = 1024, THREADS = 256, ROUNDS = 4, RUNS = 20 };

struct arithmetic {
        static __device__ u32 work(u32 x, const u32 *)
        {
                u32 n = x & 31;

                for (u32 i = 0; i < n; i++)
                        x = x * 5 + (x >> 7);
                return x;
        }
};

struct loads {
        static __device__ u32 work(u32 x, const u32 *words)
        {
#pragma unroll 1
                for (u32 i = 0; i < (x & 15) + 3; i++)
                        x = words[x % WORDS];
                return x;
        }
};

struct branches {
        static __device__ u32 work(u32 x, const u32 *words)
        {
                if (x & 64) {
                        x = words[x % WORDS];
                        if (x & 3)
                                return words[(x >> 3) % WORDS];
                        return x * 77;
                }
                x ^= words[(x >> 5) % WORDS];
                return x * 9 + (x >> 3);
        }
};

template <typename Kind> static __device__ u32 region(u32 x, const u32 *words, u32 *apart)
{
        u32 before = __activemask();

        x = Kind::work(x, words);
        if (__activemask() != before)
                atomicAdd(apart, 1);
        return x;
}

template <typename Kind>
__global__ void arms(u32 *apart, u32 *out, const u32 *words, u32 seed)
{
        u32 i = blockIdx.x * blockDim.x + threadIdx.x;
        u32 x = words[(i * 2654435761u + seed) % WORDS];

        for (u32 round = 0; round < ROUNDS; round++) {
                if (x >> (round + 3) & 1) {
                        x = region<Kind>(x, words, apart);
                        out[i] = x + 1;
                        x += region<Kind>(x * 3, words, apart);
                } else {
                        out[i] = 77;
                        x += region<Kind>(x * 7, words, apart);
                        out[i] = x * 3;
                        x ^= region<Kind>(x * 5, words, apart);
                }
        }
        out[i] += x;
}

template <typename Kind> static u32 run(const char *name, u32 *apart, u32 *out, const u32 *words)
{
        u32 n;

        CHECK(cudaMemset(apart, 0, sizeof(*apart)));
        for (u32 i = 0; i < RUNS; i++)
                arms<Kind><<<BLOCKS, THREADS>>>(apart, out, words, i);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(&n, apart, sizeof(n), cudaMemcpyDeviceToHost));
        printf("%s: %u of %u lanes behind a region had not all that were in front of it\n", name, n,
               BLOCKS * THREADS * ROUNDS * 2 * RUNS);
        return n;
}

int main()
{
        std::vector<u32> random(WORDS);
        u32 *apart, *out, *words, n = 0, x = 1;

        for (u32 &word : random) {
                x = x * 1664525u + 1013904223u;
                word = x ^ x >> 13;
        }
        CHECK(cudaMalloc(&apart, sizeof(*apart)));
        CHECK(cudaMalloc(&out, 4ULL * BLOCKS * THREADS));
        CHECK(cudaMalloc(&words, 4ULL * WORDS));
        CHECK(cudaMemcpy(words, random.data(), 4ULL * WORDS, cudaMemcpyHostToDevice));
        n += run<arithmetic>("arithmetic", apart, out, words);
        n += run<loads>("loads", apart, out, words);
        n += run<branches>("branches", apart, out, words);
        return n != 0;
}
