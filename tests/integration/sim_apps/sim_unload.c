/* SPDX-License-Identifier: Apache-2.0 */

/*
 * sim_unload LIBRARY ROUNDS: open sim_plugin, have it launch, close it, many times.
 * Prints how many launches there were and the resident memory in KiB after a tenth
 * of the rounds and at the end. Fails when a kernel did not do what it should.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "simcuda/cuda.h"

#include "sim_plugin.h"

#define THREADS 6 /* of one launch */

static void check(int r, const char *what)
{
        if (r == CUDA_SUCCESS)
                return;
        fprintf(stderr, "%s: %d\n", what, r);
        exit(1);
}
#define CALL(expression) check((int)(expression), #expression)

static long resident_kib(void)
{
        char line[256];
        long kib = 0;
        FILE *f = fopen("/proc/self/status", "re");

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "VmRSS: %ld", &kib) == 1)
                        break;
        if (f)
                fclose(f);
        return kib;
}

static void use(const char *path, CUdeviceptr sum, unsigned what)
{
        void *library = dlopen(path, RTLD_NOW);
        __typeof__(plugin_work) *work = library ? dlsym(library, "plugin_work") : NULL;

        if (!work) {
                fprintf(stderr, "%s\n", dlerror());
                exit(1);
        }
        CALL(work(sum, what));
        dlclose(library);
        if (dlopen(path, RTLD_NOW | RTLD_NOLOAD)) {
                fprintf(stderr, "%s is still there\n", path);
                exit(1);
        }
}

int main(int argc, char **argv)
{
        uint32_t got = 0, want = 0;
        CUcontext context;
        CUdeviceptr sum;
        long early = 0;
        int rounds;

        if (argc != 3) {
                fprintf(stderr, "usage: sim_unload LIBRARY ROUNDS\n");
                return 2;
        }
        rounds = atoi(argv[2]);
        CALL(cuInit(0));
        CALL(cuDevicePrimaryCtxRetain(&context, 0));
        CALL(cuCtxSetCurrent(context));
        CALL(cuMemAlloc_v2(&sum, sizeof(got)));
        CALL(cuMemcpyHtoD_v2(sum, &got, sizeof(got)));
        for (int k = 0; k < rounds; k++) {
                use(argv[1], sum, (unsigned)k);
                want += THREADS * (unsigned)k;
                if (k == rounds / 10)
                        early = resident_kib();
        }
        CALL(cuMemcpyDtoH_v2(&got, sum, sizeof(got)));
        if (got != want) {
                fprintf(stderr, "the kernels added up to %" PRIu32 ", not %" PRIu32 "\n", got,
                        want);
                return 1;
        }
        printf("launches %d\nresident_early %ld\nresident_late %ld\n", rounds, early,
               resident_kib());
        return 0;
}
