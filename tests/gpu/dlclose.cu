// SPDX-License-Identifier: Apache-2.0

// A program that opens a library with kernels, uses it and closes it, many times:
//   dlclose LIBRARY ROUNDS
// Prints its pid, a "result" line, the launches made, and its resident memory in KiB
// after a tenth of the rounds and at the end.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>
#include <vector>

#include "check.cuh"

typedef int (*work_fn)(uint32_t *v, int n, uint32_t k);

static const int kElements = 4096;

static long resident_kib()
{
        char line[256];
        long kib = 0;
        FILE *f = fopen("/proc/self/status", "r");

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "VmRSS: %ld", &kib) == 1)
                        break;
        if (f)
                fclose(f);
        return kib;
}

static void use(const char *path, uint32_t *v, uint32_t k)
{
        void *library = dlopen(path, RTLD_NOW);
        work_fn work = library ? (work_fn)dlsym(library, "plugin_work") : nullptr;
        int r;

        if (!work) {
                fprintf(stderr, "%s\n", dlerror());
                exit(1);
        }
        r = work(v, kElements, k);
        if (r) {
                fprintf(stderr, "round %u: error %d\n", k, r);
                exit(1);
        }
        dlclose(library);
}

int main(int argc, char **argv)
{
        std::vector<uint32_t> host(kElements);
        uint64_t h = 14695981039346656037ull;
        long early = 0;
        uint32_t *v;
        int rounds;

        if (argc != 3) {
                fprintf(stderr, "usage: dlclose LIBRARY ROUNDS\n");
                return 2;
        }
        rounds = atoi(argv[2]);
        printf("pid %d\n", getpid());
        CHECK(cudaMalloc(&v, kElements * sizeof(*v)));
        CHECK(cudaMemset(v, 1, kElements * sizeof(*v)));
        for (int k = 0; k < rounds; k++) {
                use(argv[1], v, k);
                if (k == rounds / 10)
                        early = resident_kib();
        }
        CHECK(cudaMemcpy(host.data(), v, kElements * sizeof(*v), cudaMemcpyDeviceToHost));
        for (uint32_t x : host)
                h = (h ^ x) * 1099511628211ull;
        printf("result all %016llx\nlaunches %d\nresident_kib %ld %ld\n", (unsigned long long)h, 2 * rounds,
               early, resident_kib());
        return 0;
}
