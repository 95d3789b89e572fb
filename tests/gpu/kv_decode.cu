// SPDX-License-Identifier: Apache-2.0

// A decoder whose key-value caches come from elsewhere, in managed memory: a thread of
// the host writes the cache of one request after the other, as it would from the
// network, layer by layer; for each, the GPU then makes TOKENS tokens, one at a time.
// Each token reads the weights and, in each layer, the request's whole cache, and adds
// a row to it. 32 layers, rows of 4 KiB (8 heads of 128, keys and values, 16 bits).
//
//   kv_decode REQUESTS TOKENS PREFILL    tokens in the cache that is handed over
//
// Prints "pid N"; at the end "filled MS..." of each request, "tokens US..." of each
// token, "total MS", "result SUM" over all that was read. Exits 77 when the GPU has not
// room for it twice.

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.cuh"

#define LAYERS       32
#define ROW_BYTES    4096ull
#define SLOTS        3
#define WEIGHT_BYTES (256ull << 20) // of a layer
#define SOURCE_BYTES (4ull << 20)   // what comes from the network, again and again
#define BLOCK_BYTES  (2ull << 20)

static int requests, tokens, prefill;
static size_t layer_bytes;
static char *caches[SLOTS];
static std::vector<double> fill_ms, token_us;

// Slots that are full, and when that changes.
static std::mutex lock;
static std::condition_variable changed;
static int filled, decoded;

__device__ unsigned long long fold(uint4 v)
{
        return ((unsigned long long)v.x << 32 | v.y) ^ ((unsigned long long)v.z << 32 | v.w);
}

__device__ unsigned long long read_all(const uint4 *p, size_t n)
{
        unsigned long long sum = 0;

        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += gridDim.x * (size_t)blockDim.x)
                sum ^= fold(p[i]);
        return sum;
}

__global__ void layer(const uint4 *weights, size_t weight_count, const uint4 *cache,
                      size_t cache_count, uint4 *row, unsigned token, unsigned long long *sum)
{
        unsigned long long mine = read_all(weights, weight_count) ^ read_all(cache, cache_count);

        for (int offset = 16; offset; offset /= 2)
                mine ^= __shfl_xor_sync(~0u, mine, offset);
        if (threadIdx.x % 32 == 0)
                atomicXor(sum, mine);
        if (blockIdx.x == 0 && threadIdx.x < ROW_BYTES / sizeof(uint4))
                row[threadIdx.x] = make_uint4(token, threadIdx.x, token * 2654435761u, 1);
}

static double now_us()
{
        timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void receive(const char *source, int request)
{
        char *cache = caches[request % SLOTS];
        size_t bytes = prefill * ROW_BYTES, piece;

        for (int l = 0; l < LAYERS; l++)
                for (size_t at = 0; at < bytes; at += piece) {
                        piece = bytes - at < SOURCE_BYTES / 2 ? bytes - at : SOURCE_BYTES / 2;
                        memcpy(cache + l * layer_bytes + at, source + (request + l) % 64 * 64,
                               piece);
                }
}

static void fill()
{
        std::vector<char> source(SOURCE_BYTES);

        srand(1);
        for (auto &c : source)
                c = (char)rand();
        for (int r = 0; r < requests; r++) {
                std::unique_lock<std::mutex> held(lock);
                double began;

                changed.wait(held, [&] { return r - decoded < SLOTS; });
                held.unlock();
                began = now_us();
                receive(source.data(), r);
                fill_ms.push_back((now_us() - began) / 1e3);
                held.lock();
                filled = r + 1;
                changed.notify_all();
        }
}

static void decode(int request, const uint4 *const *weights, unsigned long long *sum)
{
        char *cache = caches[request % SLOTS];

        for (int t = 0; t < tokens; t++) {
                double began = now_us();
                size_t used = (prefill + t) * ROW_BYTES;

                for (int l = 0; l < LAYERS; l++) {
                        char *at = cache + l * layer_bytes;

                        layer<<<528, 512>>>(weights[l], WEIGHT_BYTES / sizeof(uint4), (uint4 *)at,
                                            used / sizeof(uint4), (uint4 *)(at + used), t, sum);
                }
                CHECK(cudaGetLastError());
                CHECK(cudaDeviceSynchronize());
                token_us.push_back(now_us() - began);
        }
}

static bool has_room(size_t bytes)
{
        size_t unused, all;

        CHECK(cudaMemGetInfo(&unused, &all));
        return unused >= 2 * bytes;
}

static void print(const char *what, const std::vector<double> &values)
{
        printf("%s", what);
        for (double v : values)
                printf(" %.1f", v);
        printf("\n");
}

int main(int argc, char **argv)
{
        unsigned long long *sum, result;
        const uint4 *weights[LAYERS];
        double began;

        if (argc < 4)
                return 2;
        requests = atoi(argv[1]);
        tokens = atoi(argv[2]);
        prefill = atoi(argv[3]);
        layer_bytes =
                ((prefill + tokens) * ROW_BYTES + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
        printf("pid %d\n", (int)getpid());
        fflush(stdout);
        if (!has_room(LAYERS * (WEIGHT_BYTES + SLOTS * layer_bytes))) {
                printf("SKIP: too little memory is free\n");
                return 77;
        }
        for (auto &w : weights) {
                CHECK(cudaMalloc((void **)&w, WEIGHT_BYTES));
                CHECK(cudaMemset((void *)w, 0x5a, WEIGHT_BYTES));
        }
        for (auto &c : caches)
                CHECK(cudaMallocManaged(&c, LAYERS * layer_bytes));
        CHECK(cudaMalloc(&sum, sizeof(*sum)));
        CHECK(cudaMemset(sum, 0, sizeof(*sum)));
        CHECK(cudaDeviceSynchronize());

        began = now_us();
        std::thread filler(fill);
        for (int r = 0; r < requests; r++) {
                std::unique_lock<std::mutex> held(lock);

                changed.wait(held, [&] { return filled > r; });
                held.unlock();
                decode(r, weights, sum);
                held.lock();
                decoded = r + 1;
                changed.notify_all();
        }
        filler.join();
        print("filled", fill_ms);
        print("tokens", token_us);
        printf("total %.1f\n", (now_us() - began) / 1e3);
        CHECK(cudaMemcpy(&result, sum, sizeof(result), cudaMemcpyDefault));
        printf("result %llu\n", result);
        return 0;
}
