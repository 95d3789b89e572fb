// SPDX-License-Identifier: Apache-2.0

// Unusual lives of contexts, for the agent: each must end as it does without it.
//   lifecycle reset      work, cudaDeviceReset(), work again, twice
//   lifecycle contexts   work in the primary context and in two created ones, by two threads
//   lifecycle fork       a child that execs this program again while the parent works
//   lifecycle graph      a graph of kernels, replayed; then launches outside it
// Prints "result" lines that must not depend on the agent, and the launches made.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.cuh"

__global__ void step(uint32_t *v, int n, uint32_t k)
{
        int i = blockIdx.x * blockDim.x + threadIdx.x;

        if (i < n)
                v[i] = v[i] * 1664525u + 1013904223u + k;
}

static const int kElements = 10000;
static int launches;

static uint64_t work(int rounds)
{
        std::vector<uint32_t> host(kElements);
        uint32_t *v;
        uint64_t h = 14695981039346656037ull;

        CHECK(cudaMalloc(&v, kElements * 4));
        CHECK(cudaMemset(v, 1, kElements * 4));
        for (int k = 0; k < rounds; k++)
                step<<<(kElements + 255) / 256, 256>>>(v, kElements, k);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(host.data(), v, kElements * 4, cudaMemcpyDeviceToHost));
        CHECK(cudaFree(v));
        for (uint32_t x : host)
                h = (h ^ x) * 1099511628211ull;
        __atomic_fetch_add(&launches, rounds, __ATOMIC_RELAXED);
        return h;
}

static void reset()
{
        for (int i = 0; i < 3; i++) {
                printf("result life_%d %016llx\n", i, (unsigned long long)work(100));
                CHECK(cudaDeviceReset());
        }
}

typedef int (*create_fn)(void **context, unsigned flags, int device); // as of CUDA 11.3
typedef int (*set_fn)(void *context);

template <class F> static F entry_point(const char *name)
{
        void *f = nullptr;
        cudaDriverEntryPointQueryResult q;

        CHECK(cudaGetDriverEntryPointByVersion(name, &f, 11030, cudaEnableDefault, &q));
        return (F)f;
}

static void contexts()
{
        create_fn create = entry_point<create_fn>("cuCtxCreate");
        set_fn set = entry_point<set_fn>("cuCtxSetCurrent");
        uint64_t sums[3];
        void *context[2];

        sums[0] = work(100);
        for (void *&c : context)
                if (create(&c, 0, 0) != 0) {
                        fprintf(stderr, "cuCtxCreate failed\n");
                        exit(1);
                }
        std::vector<std::thread> threads;
        for (int i = 0; i < 2; i++)
                threads.emplace_back([&, i] {
                        set(context[i]);
                        sums[1 + i] = work(100 + i);
                });
        for (auto &t : threads)
                t.join();
        for (int i = 0; i < 3; i++)
                printf("result context_%d %016llx\n", i, (unsigned long long)sums[i]);
}

static void fork_and_exec(char *self)
{
        printf("result before %016llx\n", (unsigned long long)work(50));
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
                execl(self, self, "reset", (char *)nullptr);
                _exit(127);
        }
        printf("result after %016llx\n", (unsigned long long)work(50));
        int status;
        waitpid(child, &status, 0);
        printf("result child %d\n", status);
}

static void graph()
{
        cudaGraph_t g;
        cudaGraphExec_t exec;
        cudaStream_t s;
        uint32_t *v;
        uint32_t first[4];

        CHECK(cudaMalloc(&v, kElements * 4));
        CHECK(cudaMemset(v, 2, kElements * 4));
        CHECK(cudaStreamCreate(&s));
        CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
        for (int k = 0; k < 5; k++)
                step<<<(kElements + 255) / 256, 256, 0, s>>>(v, kElements, k);
        CHECK(cudaStreamEndCapture(s, &g));
        CHECK(cudaGraphInstantiate(&exec, g, 0));
        for (int r = 0; r < 20; r++)
                CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaStreamSynchronize(s));
        CHECK(cudaMemcpy(first, v, sizeof(first), cudaMemcpyDeviceToHost));
        printf("result graph %08x %08x\n", first[0], first[3]);
        printf("result outside %016llx\n", (unsigned long long)work(100));
        launches += 5 * 20; // each replay runs each node
}

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "";

        printf("pid %d\n", getpid());
        if (!strcmp(what, "reset"))
                reset();
        else if (!strcmp(what, "contexts"))
                contexts();
        else if (!strcmp(what, "fork"))
                fork_and_exec(argv[0]);
        else if (!strcmp(what, "graph"))
                graph();
        else
                return 2;
        printf("launches %d\n", launches);
        return 0;
}
