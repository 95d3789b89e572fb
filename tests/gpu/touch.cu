// SPDX-License-Identifier: Apache-2.0

// Managed memory touched by the CPU and then by the GPU, again and again, for checks of
// what launches are given.
//
//   touch MIB SHAPE    for each line on its input a pass: the CPU writes all of it, one
//                      kernel reads and writes it. SHAPE: grid, all threads go through it
//                      together; parts, each block has a part of its own; elements, a
//                      thread for each word, the pointer within a struct
//   touch launches N   for each line: N launches of a kernel that does nothing, given
//                      managed memory
//
// Prints "pid N", for each pass "pass GPU_MS CPU_MS" or "launch NS", at the end of its
// input "result SUM". Exits 77 when the GPU has not twice as much memory free.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>

#include "check.cuh"

#define WARM 1000 /* launches before those that are timed */

struct tensor {
        int rank;
        size_t sizes[2];
        unsigned *words;
        unsigned by;
};

__global__ void touch_grid(unsigned *words, size_t n)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += gridDim.x * (size_t)blockDim.x)
                words[i] += 3;
}

__global__ void touch_parts(unsigned *words, size_t n)
{
        size_t part = n / gridDim.x;

        for (size_t i = threadIdx.x; i < part; i += blockDim.x)
                words[blockIdx.x * part + i] += 3;
}

__global__ void touch_elements(tensor t)
{
        size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

        if (i < t.sizes[0])
                t.words[i] += t.by;
}

__global__ void nothing(unsigned *words)
{
}

static double now_ms()
{
        timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void launch(const char *shape, unsigned *words, size_t n)
{
        if (strcmp(shape, "grid") == 0)
                touch_grid<<<132 * 8, 256>>>(words, n);
        else if (strcmp(shape, "parts") == 0)
                touch_parts<<<1024, 256>>>(words, n);
        else
                touch_elements<<<(unsigned)(n / 256), 256>>>(tensor{1, {n, 1}, words, 3});
        CHECK(cudaGetLastError());
}

static void pass(const char *shape, unsigned *words, size_t n, unsigned number)
{
        double began = now_ms(), written;

        for (size_t i = 0; i < n; i++)
                words[i] = (unsigned)i * 7 + number;
        written = now_ms();
        launch(shape, words, n);
        CHECK(cudaDeviceSynchronize());
        printf("pass %.3f %.3f\n", now_ms() - written, written - began);
}

static void launches(unsigned *words, int n)
{
        double began;

        for (int i = 0; i < WARM; i++)
                nothing<<<1, 32>>>(words);
        CHECK(cudaDeviceSynchronize());
        began = now_ms();
        for (int i = 0; i < n; i++)
                nothing<<<1, 32>>>(words);
        printf("launch %.0f\n", (now_ms() - began) / n * 1e6);
        CHECK(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
        bool counts = argc == 3 && strcmp(argv[1], "launches") == 0;
        size_t bytes = (size_t)(argc == 3 && !counts ? atoi(argv[1]) : 2) << 20, unused, all;
        unsigned *words, number = 0, sum = 0;
        char line[64];

        printf("pid %d\n", (int)getpid());
        fflush(stdout);
        if (argc != 3)
                return 2;
        CHECK(cudaMemGetInfo(&unused, &all));
        if (unused < 2 * bytes) {
                printf("SKIP: too little memory is free\n");
                return 77;
        }
        CHECK(cudaMallocManaged(&words, bytes));
        while (fgets(line, sizeof(line), stdin)) {
                if (counts)
                        launches(words, atoi(argv[2]));
                else
                        pass(argv[2], words, bytes / 4, number++);
                fflush(stdout);
        }
        for (size_t i = 0; i < bytes / 4; i += 61)
                sum = sum * 31 + words[i];
        printf("result %u\n", sum);
        return 0;
}
