// SPDX-License-Identifier: Apache-2.0

// One process, two GPUs.
//   two_gpus threads   a thread on each, with streams and copies between the GPUs
//   two_gpus switch    one thread that goes from GPU to GPU with cudaSetDevice
//   two_gpus second    GPU 1 alone, as a rank of a job does
//   two_gpus managed   both work on the same managed memory in turn
// The kernels launched on GPU 0 are called even, those on GPU 1 odd, so that a record
// can be asked for the right GPU. Prints its pid, "result" lines, the launches made, and
// "skip" where there are no two GPUs.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.cuh"

__device__ void mix(uint32_t *v, int n, uint32_t k)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                v[i] = v[i] * 1664525u + 1013904223u + k;
}

__global__ void even(uint32_t *v, int n, uint32_t k)
{
        mix(v, n, k);
}

__global__ void odd(uint32_t *v, int n, uint32_t k)
{
        mix(v, n, k ^ 0x55);
}

static const int kElements = 20000, kThreads = 256, kRounds = 300;
static const int kBlocks = (kElements + kThreads - 1) / kThreads;
static int launches;

static void launch(int gpu, uint32_t *v, uint32_t k, cudaStream_t stream)
{
        if (gpu)
                odd<<<kBlocks, kThreads, 0, stream>>>(v, kElements, k);
        else
                even<<<kBlocks, kThreads, 0, stream>>>(v, kElements, k);
        CHECK(cudaGetLastError());
        __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
}

static uint32_t *make(int gpu)
{
        uint32_t *v;

        CHECK(cudaSetDevice(gpu));
        CHECK(cudaMalloc(&v, kElements * sizeof(*v)));
        CHECK(cudaMemset(v, 1 + gpu, kElements * sizeof(*v)));
        CHECK(cudaDeviceSynchronize());
        return v;
}

static uint64_t checksum(const uint32_t *v)
{
        std::vector<uint32_t> host(kElements);
        uint64_t h = 14695981039346656037ull;

        CHECK(cudaMemcpy(host.data(), v, kElements * sizeof(*v), cudaMemcpyDefault));
        for (uint32_t x : host)
                h = (h ^ x) * 1099511628211ull;
        return h;
}

static void with_threads()
{
        uint64_t sums[2];
        std::thread threads[2];

        for (int gpu = 0; gpu < 2; gpu++)
                threads[gpu] = std::thread([gpu, &sums] {
                        uint32_t *v = make(gpu);
                        cudaStream_t stream;

                        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
                        for (int k = 0; k < kRounds; k++) {
                                launch(gpu, v, k, k % 2 ? stream : 0);
                                if (k % 2 == 0)
                                        CHECK(cudaDeviceSynchronize());
                                else
                                        CHECK(cudaStreamSynchronize(stream));
                        }
                        sums[gpu] = checksum(v);
                });
        for (int gpu = 0; gpu < 2; gpu++) {
                threads[gpu].join();
                printf("result gpu_%d %016llx\n", gpu, (unsigned long long)sums[gpu]);
        }
}

// Peer access where there is any: GPU 1's kernels work on GPU 0's memory.
static void with_switch()
{
        uint32_t *v[2] = {make(0), make(1)};
        int peer = 0;

        CHECK(cudaDeviceCanAccessPeer(&peer, 1, 0));
        CHECK(cudaSetDevice(1));
        if (peer)
                CHECK(cudaDeviceEnablePeerAccess(0, 0));
        for (int k = 0; k < kRounds; k++) {
                int gpu = k % 3 != 0;
                bool across = gpu && peer && k % 3 == 2;

                CHECK(cudaSetDevice(gpu));
                launch(gpu, v[across ? 0 : gpu], k, 0);
                if (k % 10 == 9)
                        CHECK(cudaMemcpyPeer(v[1], 1, v[0], 0, kElements * sizeof(uint32_t) / 2));
                if (across || k % 10 == 9)
                        CHECK(cudaDeviceSynchronize());
                CHECK(cudaSetDevice(!gpu));
                CHECK(cudaDeviceSynchronize());
        }
        for (int gpu = 0; gpu < 2; gpu++) {
                CHECK(cudaSetDevice(gpu));
                CHECK(cudaDeviceSynchronize());
        }
        printf("result peer %d\nresult first %016llx\nresult second %016llx\n", peer,
               (unsigned long long)checksum(v[0]), (unsigned long long)checksum(v[1]));
}

static void with_second()
{
        uint32_t *v = make(1);

        for (int k = 0; k < kRounds; k++)
                launch(1, v, k, 0);
        printf("result second %016llx\n", (unsigned long long)checksum(v));
}

static void with_managed()
{
        uint32_t *v;

        CHECK(cudaMallocManaged(&v, kElements * sizeof(*v)));
        memset(v, 3, kElements * sizeof(*v));
        for (int k = 0; k < kRounds / 10; k++) {
                CHECK(cudaSetDevice(k % 2));
                launch(k % 2, v, k, 0);
                CHECK(cudaDeviceSynchronize());
                v[k]++;
        }
        printf("result managed %016llx\n", (unsigned long long)checksum(v));
}

int main(int argc, char **argv)
{
        int count = 0;

        CHECK(cudaGetDeviceCount(&count));
        if (count < 2) {
                printf("skip: %d GPU\n", count);
                return 0;
        }
        printf("pid %d\n", getpid());
        if (argc == 2 && !strcmp(argv[1], "threads")) {
                with_threads();
        } else if (argc == 2 && !strcmp(argv[1], "switch")) {
                with_switch();
        } else if (argc == 2 && !strcmp(argv[1], "second")) {
                with_second();
        } else if (argc == 2 && !strcmp(argv[1], "managed")) {
                with_managed();
        } else {
                fprintf(stderr, "usage: two_gpus threads|switch|second|managed\n");
                return 2;
        }
        printf("launches %d\n", launches);
        return 0;
}
