// SPDX-License-Identifier: Apache-2.0

// Keeps the whole GPU busy with kernels of equal work, for checks of who has the
// GPU when.
//
//   spin SECONDS [CYCLES]   kernels of CYCLES clock cycles (default 2000000) on
//                           every multiprocessor, eight in flight
//
// Prints "pid N", then "ready" when it begins, and at the end "done" followed by
// the CLOCK_MONOTONIC ns at which each kernel was seen to have ended.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <unistd.h>
#include <vector>

#include "check.cuh"

#define IN_FLIGHT 8

__global__ void spin(long long cycles)
{
        long long start = clock64();

        while (clock64() - start < cycles)
                ;
}

static unsigned long long now_ns()
{
        timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000ull + t.tv_nsec;
}

int main(int argc, char **argv)
{
        double seconds = argc > 1 ? atof(argv[1]) : 5;
        long long cycles = argc > 2 ? atoll(argv[2]) : 2000000;
        std::vector<unsigned long long> ends;
        cudaEvent_t done[IN_FLIGHT];
        cudaDeviceProp device;
        unsigned long long until;

        printf("pid %d\n", (int)getpid());
        fflush(stdout);
        CHECK(cudaGetDeviceProperties(&device, 0));
        for (auto &e : done)
                CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        printf("ready\n");
        fflush(stdout);
        until = now_ns() + (unsigned long long)(seconds * 1e9);
        for (unsigned long long n = 0; now_ns() < until; n++) {
                cudaEvent_t e = done[n % IN_FLIGHT];

                if (n >= IN_FLIGHT) {
                        CHECK(cudaEventSynchronize(e));
                        ends.push_back(now_ns());
                }
                spin<<<device.multiProcessorCount * 8, 256>>>(cycles);
                CHECK(cudaGetLastError());
                CHECK(cudaEventRecord(e));
        }
        CHECK(cudaDeviceSynchronize());
        printf("done");
        for (auto end : ends)
                printf(" %llu", end);
        printf("\n");
        return 0;
}
