// SPDX-License-Identifier: Apache-2.0

// A tenant of a shared GPU, for checks of scheduling policies. Its kernels are a fixed
// amount of work, not of time: what waits for a clock gets on while others have the
// GPU, and says nothing of shares.
//
//   tenant calibrate US WAVES            prints "iterations N" for kernels of US, made
//                                        of WAVES waves of blocks over the whole GPU
//   tenant busy N WAVES SECONDS          such kernels all the time, 32 in flight
//   tenant bursts N WAVES SECONDS KERNELS PAUSE_US
//                                        so many at once, waited for, then a pause of
//                                        half to one and a half of PAUSE_US
//
// Prints "pid N", then "ready" when it begins, and at the end "done" and the
// CLOCK_MONOTONIC ns of each kernel: of busy when it was seen to have ended; of
// bursts when it was launched and when it had ended, in turn.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>
#include <vector>

#include "check.cuh"

#define IN_FLIGHT     32
#define PER_PROCESSOR 8 // blocks of 256 threads: all that fit
#define WARM_UP       50

static int wave; // blocks that run side by side
static std::vector<unsigned long long> times;

// Each step needs the one before; asm, so that no compiler finds the end of it by thought.
__global__ void work(unsigned iterations, unsigned *never)
{
        unsigned x = threadIdx.x;

        for (unsigned i = 0; i < iterations; i++)
                asm volatile("mad.lo.u32 %0, %0, 1664525, 1013904223;" : "+r"(x));
        if (never)
                *never = x;
}

static void launch(unsigned iterations, int waves)
{
        work<<<wave * waves, 256>>>(iterations, nullptr);
        CHECK(cudaGetLastError());
}

static unsigned long long now_ns()
{
        timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static double time_us(unsigned iterations, int waves)
{
        const int repeats = 20;
        cudaEvent_t from, to;
        float ms;

        CHECK(cudaEventCreate(&from));
        CHECK(cudaEventCreate(&to));
        CHECK(cudaEventRecord(from));
        for (int i = 0; i < repeats; i++)
                launch(iterations, waves);
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        return ms * 1000 / repeats;
}

static void calibrate(double us, int waves)
{
        unsigned low = 1000, high = 11000;
        double at_low, at_high;

        time_us(100000, waves); // until the clock is up
        at_low = time_us(low, waves);
        at_high = time_us(high, waves);
        printf("iterations %u\n",
               (unsigned)(low + (us - at_low) * (high - low) / (at_high - at_low)));
}

static void busy(unsigned iterations, int waves, double seconds)
{
        cudaEvent_t done[IN_FLIGHT];
        unsigned long long until;

        for (auto &e : done)
                CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        until = now_ns() + (unsigned long long)(seconds * 1e9);
        for (unsigned long long n = 0; now_ns() < until; n++) {
                cudaEvent_t e = done[n % IN_FLIGHT];

                if (n >= IN_FLIGHT) {
                        CHECK(cudaEventSynchronize(e));
                        times.push_back(now_ns());
                }
                launch(iterations, waves);
                CHECK(cudaEventRecord(e));
        }
        CHECK(cudaDeviceSynchronize());
}

static void bursts(unsigned iterations, int waves, double seconds, int kernels, int pause_us)
{
        std::vector<cudaEvent_t> done(kernels);
        unsigned long long until;

        for (auto &e : done)
                CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
        srand(1);
        until = now_ns() + (unsigned long long)(seconds * 1e9);
        while (now_ns() < until) {
                size_t first = times.size();

                for (int i = 0; i < kernels; i++) {
                        times.push_back(now_ns());
                        times.push_back(0);
                        launch(iterations, waves);
                        CHECK(cudaEventRecord(done[i]));
                }
                for (int i = 0; i < kernels; i++) {
                        CHECK(cudaEventSynchronize(done[i]));
                        times[first + 2 * i + 1] = now_ns();
                }
                usleep(pause_us / 2 + rand() % pause_us);
        }
}

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "";
        unsigned iterations = argc > 2 ? atoi(argv[2]) : 0;
        int waves = argc > 3 ? atoi(argv[3]) : 1;
        double seconds = argc > 4 ? atof(argv[4]) : 0;
        cudaDeviceProp device;

        printf("pid %d\n", (int)getpid());
        fflush(stdout);
        CHECK(cudaGetDeviceProperties(&device, 0));
        wave = device.multiProcessorCount * PER_PROCESSOR;
        if (!strcmp(what, "calibrate") && argc == 4) {
                calibrate(atof(argv[2]), waves);
                return 0;
        }
        for (int i = 0; i < WARM_UP; i++)
                launch(iterations, waves);
        CHECK(cudaDeviceSynchronize());
        printf("ready\n");
        fflush(stdout);
        if (!strcmp(what, "busy") && argc == 5)
                busy(iterations, waves, seconds);
        else if (!strcmp(what, "bursts") && argc == 7)
                bursts(iterations, waves, seconds, atoi(argv[5]), atoi(argv[6]));
        else
                return 2;
        printf("done");
        for (auto t : times)
                printf(" %llu", t);
        printf("\n");
        return 0;
}
