// SPDX-License-Identifier: Apache-2.0

// A CUDA program as nvcc users write them (static cudart), for the GPU checks.
//
//   app [--launches N] [--threads T] [--streams S]   each thread makes N launches
//       in turn on its S streams, kernels of several shapes, now and then a large
//       memset or copy between launches, which take grid ids of their own
//   app --serial N                                   N launches, each waited for
//   --pause US                                       wait so long behind each launch
//   app --bench N                                    time N empty launches, 5 times
//
// Prints its pid, the number of kernel launches, and a checksum of every output:
// lines that start with "result" must be the same in every run.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.cuh"

__global__ void empty()
{
}

__global__ void vadd(const float *a, const float *b, float *out, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                out[i] = a[i] + b[i];
}

// Shared memory and barriers: a diverged warp at the first barrier would show here.
__global__ void block_sum(const float *a, const float *, float *out, int n)
{
        __shared__ float part[256];
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        part[threadIdx.x] = i < n ? a[i] : 0;
        __syncthreads();
        for (int s = blockDim.x / 2; s > 0; s /= 2) {
                if (threadIdx.x < s)
                        part[threadIdx.x] += part[threadIdx.x + s];
                __syncthreads();
        }
        if (i < n)
                out[i] = part[0] + a[i];
}

// Some blocks leave at once, some lanes leave early, the rest go on.
__global__ void early_exit(const float *a, const float *b, float *out, int n)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (blockIdx.x % 3 == 1 || i >= n)
                return;
        if (a[i] > 50)
                return;
        float x = b[i];
        for (int k = 0; k < 16; k++)
                x = x * 1.0625f + a[i];
        if (threadIdx.x % 5 == 2) {
                out[i] = -x;
                return;
        }
        out[i] = x;
}

// A grid and blocks of three dimensions.
__global__ void three_dimensions(const float *a, const float *b, float *out, int n)
{
        int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        int i = block * blockDim.x * blockDim.y * blockDim.z + thread;

        if (i < n)
                out[i] = a[i] * 2 - b[i];
}

static const int kElements = 1 << 16;

struct Lane { // what one stream of one thread works on
        cudaStream_t stream;
        float *a, *b, *out;
};

static Lane make_lane(unsigned seed)
{
        std::vector<float> a(kElements), b(kElements);
        Lane l;

        for (int i = 0; i < kElements; i++) {
                a[i] = float((i * 2654435761u + seed * 97) % 1000) / 7;
                b[i] = float((i * 40503u + seed * 31) % 1000) / 3;
        }
        CHECK(cudaStreamCreateWithFlags(&l.stream, cudaStreamNonBlocking));
        for (float **p : {&l.a, &l.b, &l.out})
                CHECK(cudaMalloc(p, kElements * sizeof(float)));
        CHECK(cudaMemcpy(l.a, a.data(), kElements * 4, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(l.b, b.data(), kElements * 4, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(l.out, 0, kElements * 4));
        CHECK(cudaDeviceSynchronize());
        return l;
}

static uint64_t checksum(const Lane &l)
{
        std::vector<uint32_t> out(kElements);
        uint64_t h = 1469598103934665603ull;

        CHECK(cudaMemcpy(out.data(), l.out, kElements * 4, cudaMemcpyDeviceToHost));
        for (uint32_t v : out)
                h = (h ^ v) * 1099511628211ull;
        return h;
}

static void launch(const Lane &l, int i)
{
        const int n = kElements;

        switch (i % 5) {
        case 0:
                vadd<<<n / 256, 256, 0, l.stream>>>(l.a, l.b, l.out, n);
                break;
        case 1:
                block_sum<<<n / 256, 256, 0, l.stream>>>(l.a, l.b, l.out, n);
                break;
        case 2:
                early_exit<<<n / 128, 128, 0, l.stream>>>(l.a, l.b, l.out, n);
                break;
        case 3:
                three_dimensions<<<dim3(16, 8, 4), dim3(16, 4, 2), 0, l.stream>>>(l.a, l.b, l.out, n);
                break;
        case 4:
                empty<<<1, 32, 0, l.stream>>>();
                break;
        }
}

static void work(int launches, int streams, bool serial, int pause_us, unsigned seed, uint64_t *sum)
{
        std::vector<Lane> lanes;
        char *big;
        const size_t big_bytes = 64 << 20;

        for (int s = 0; s < streams; s++)
                lanes.push_back(make_lane(seed * 100 + s));
        CHECK(cudaMalloc(&big, 2 * big_bytes));
        for (int i = 0; i < launches; i++) {
                Lane &l = lanes[i % streams];

                launch(l, i);
                if (serial)
                        CHECK(cudaStreamSynchronize(l.stream));
                if (pause_us)
                        usleep(pause_us);
                if (i % 1000 == 500) // each takes a grid id
                        CHECK(cudaMemsetAsync(big, i, big_bytes, l.stream));
                if (i % 1000 == 750)
                        CHECK(cudaMemcpyAsync(big + big_bytes, big, big_bytes, cudaMemcpyDeviceToDevice,
                                              l.stream));
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        *sum = 0;
        for (Lane &l : lanes)
                *sum = *sum * 31 + checksum(l);
        CHECK(cudaFree(big));
}

static double now_ns()
{
        auto t = std::chrono::steady_clock::now().time_since_epoch();
        return double(std::chrono::duration_cast<std::chrono::nanoseconds>(t).count());
}

static void bench(int n)
{
        std::vector<double> issue, total;

        for (int r = 0; r < 6; r++) {
                for (int i = 0; i < 200; i++)
                        empty<<<1, 32>>>();
                CHECK(cudaDeviceSynchronize());
                double t0 = now_ns();
                for (int i = 0; i < n; i++)
                        empty<<<1, 32>>>();
                double t1 = now_ns();
                CHECK(cudaDeviceSynchronize());
                double t2 = now_ns();
                if (r == 0)
                        continue; // warm-up
                issue.push_back((t1 - t0) / n);
                total.push_back((t2 - t0) / n);
        }
        std::sort(issue.begin(), issue.end());
        std::sort(total.begin(), total.end());
        printf("bench_issue_ns %.1f\nbench_total_ns %.1f\n", issue[issue.size() / 2],
               total[total.size() / 2]);
}

int main(int argc, char **argv)
{
        int launches = 1000, threads = 1, streams = 1, pause_us = 0;
        bool serial = false;

        for (int i = 1; i + 1 < argc; i += 2) {
                int value = atoi(argv[i + 1]);

                if (!strcmp(argv[i], "--bench")) {
                        bench(value);
                        return 0;
                } else if (!strcmp(argv[i], "--launches") || !strcmp(argv[i], "--serial")) {
                        launches = value;
                        serial = argv[i][2] == 's';
                } else if (!strcmp(argv[i], "--threads")) {
                        threads = value;
                } else if (!strcmp(argv[i], "--streams")) {
                        streams = value;
                } else if (!strcmp(argv[i], "--pause")) {
                        pause_us = value;
                } else {
                        fprintf(stderr, "usage: app [--launches N | --serial N] [--threads T] [--streams S] [--pause US] | --bench N\n");
                        return 2;
                }
        }
        printf("pid %d\n", getpid());
        fflush(stdout); // whoever is to kill this process waits for it
        std::vector<uint64_t> sums(threads);
        std::vector<std::thread> pool;
        for (int t = 0; t < threads; t++)
                pool.emplace_back(work, launches, streams, serial, pause_us, t + 1, &sums[t]);
        for (auto &t : pool)
                t.join();
        for (int t = 0; t < threads; t++)
                printf("result thread_%d %016llx\n", t, (unsigned long long)sums[t]);
        printf("launches %d\n", launches * threads);
        return 0;
}
