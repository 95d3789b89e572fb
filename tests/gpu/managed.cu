// SPDX-License-Identifier: Apache-2.0

// Walks over managed memory with the CPU and the GPU in turn, for checks of policies.
//
//   managed MIB PASSES   each pass: the CPU writes all of it, the GPU reads and
//                        writes it in kernels of 32 MiB each, one after the other
//
// Prints "pid N", "address N", for each pass "pass MS" (the GPU's part), at the end
// "result SUM". After a SIGUSR1 the next pass brings all of it to the GPU first. Exits 77 when the
// GPU has not twice as much memory free.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <unistd.h>

#include "check.cuh"

#define CHUNK (32ull << 20)

__global__ void add(unsigned long long *words, size_t n)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += gridDim.x * (size_t)blockDim.x)
                words[i] += i;
}

static volatile sig_atomic_t wanted;

static void on_signal(int)
{
        wanted = 1;
}

static void bring(const void *memory, size_t bytes)
{
        cudaMemLocation to = {};

        to.type = cudaMemLocationTypeDevice;
        wanted = 0;
        CHECK(cudaMemPrefetchAsync(memory, bytes, to, 0, 0));
        CHECK(cudaDeviceSynchronize());
}

static double now_ms()
{
        timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
        size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 512) << 20, unused, all;
        int passes = argc > 2 ? atoi(argv[2]) : 5;
        unsigned long long *words, sum = 0;

        printf("pid %d\n", (int)getpid());
        fflush(stdout);
        CHECK(cudaMemGetInfo(&unused, &all));
        if (unused < 2 * bytes) {
                printf("SKIP: too little memory is free\n");
                return 77;
        }
        CHECK(cudaMallocManaged(&words, bytes));
        signal(SIGUSR1, on_signal);
        printf("address %llu\n", (unsigned long long)(size_t)words);
        fflush(stdout);
        for (int pass = 0; pass < passes; pass++) {
                double began;

                for (size_t i = 0; i < bytes / 8; i++)
                        words[i] = i + pass;
                if (wanted)
                        bring(words, bytes);
                began = now_ms();
                for (size_t at = 0; at < bytes; at += CHUNK) {
                        add<<<256, 256>>>(words + at / 8, CHUNK / 8);
                        CHECK(cudaDeviceSynchronize());
                }
                printf("pass %.3f\n", now_ms() - began);
                fflush(stdout);
        }
        for (size_t i = 0; i < bytes / 8; i += 509)
                sum += words[i];
        printf("result %llu\n", sum);
        return 0;
}
