/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What replacing kernels of running processes rests on and nobody promises: that the
 * driver answers, and does not crash, when it is asked for the library of a CUfunction or
 * the module of a CUkernel; that it names and lists what a library has; that a copy of a
 * module runs beside it. Each question is asked by a child of its own.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cuda_api.h"

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry first() { ret; }\n.visible .entry second() { ret; }\n";

static struct cuda_api api;
static cuda_handle library, kernel, function, module;

static int open_driver(void)
{
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
        cuda_handle context;
        const char *missing;

        if (!init || init(0) != CUDA_OK || cuda_api_load(driver, &api, &missing) < 0 ||
            api.primary_retain(&context, 0) != CUDA_OK || api.context_push(context) != CUDA_OK)
                return 77;
        if (!api.library_load_data || !api.kernel_get_library || !api.function_get_name)
                return 78;
        if (api.library_load_data(&library, ptx, NULL, NULL, 0, NULL, NULL, 0) != CUDA_OK ||
            api.library_get_kernel(&kernel, library, "first") != CUDA_OK ||
            api.kernel_get_function(&function, kernel) != CUDA_OK ||
            api.library_get_module(&module, library) != CUDA_OK)
                return 1;
        return 0;
}

static int library_of_kernel(void)
{
        cuda_handle of = NULL;
        int r = api.kernel_get_library(&of, kernel);

        printf("  library of a CUkernel: %d\n", r);
        return r == CUDA_OK && of == library ? 0 : 1;
}

static int library_of_function(void)
{
        cuda_handle of = NULL;
        int r = api.kernel_get_library(&of, function);

        printf("  library of a CUfunction: %d, %s\n", r, of == library ? "the right one" : "none");
        return r != CUDA_OK || of == library ? 0 : 1; /* an error or the truth */
}

static int module_of_function(void)
{
        cuda_handle of = NULL;
        int r = api.function_get_module(&of, function);

        printf("  module of a CUfunction: %d, %s\n", r, of == module ? "the library's" : "another");
        return r == CUDA_OK && of ? 0 : 1;
}

static int module_of_kernel(void)
{
        cuda_handle of = NULL;
        int r = api.function_get_module(&of, kernel);

        printf("  module of a CUkernel: %d\n", r);
        return 0;
}

static int names(void)
{
        const char *a = NULL, *b = NULL;
        int r = api.kernel_get_name(&a, kernel), s = api.function_get_name(&b, function);

        printf("  names: %d %s, %d %s\n", r, a ? a : "-", s, b ? b : "-");
        return r == CUDA_OK && s == CUDA_OK && !strcmp(a, "first") && !strcmp(b, "first") ? 0 : 1;
}

static int lists(void)
{
        cuda_handle kernels[2] = {0};
        unsigned count = 0;
        int r = api.library_kernel_count(&count, library);

        if (r == CUDA_OK && count == 2)
                r = api.library_kernels(kernels, 2, library);
        printf("  kernels of the library: %d, %u\n", r, count);
        return r == CUDA_OK && count == 2 && (kernels[0] == kernel || kernels[1] == kernel) ? 0 : 1;
}

static int copy_runs(void)
{
        cuda_handle copy = NULL, other = NULL;
        int r = api.library_load_data(&copy, ptx, NULL, NULL, 0, NULL, NULL, 0);

        if (r == CUDA_OK)
                r = api.library_get_kernel(&other, copy, "first");
        if (r == CUDA_OK)
                r = api.launch_kernel(other, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        if (r == CUDA_OK)
                r = api.context_synchronize();
        printf("  a copy runs: %d\n", r);
        if (r == CUDA_OK)
                r = api.library_unload(copy);
        return r == CUDA_OK && other != kernel ? 0 : 1;
}

static const struct {
        const char *name;
        int (*ask)(void);
} questions[] = {
        {"library of a CUkernel", library_of_kernel},
        {"library of a CUfunction", library_of_function},
        {"module of a CUfunction", module_of_function},
        {"module of a CUkernel", module_of_kernel},
        {"names", names},
        {"lists", lists},
        {"a copy runs", copy_runs},
};

static int ask(size_t i)
{
        int status = -1;
        pid_t child;

        fflush(stdout);
        child = fork();
        if (child == 0) {
                int r = open_driver();

                r = r ? r : questions[i].ask();
                fflush(stdout);
                _exit(r);
        }
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) >= 77)
                return WEXITSTATUS(status);
        if (!WIFEXITED(status) || WEXITSTATUS(status))
                printf("FAIL %s: %s %d\n", questions[i].name,
                       WIFSIGNALED(status) ? "signal" : "status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : 1;
}

int main(void)
{
        int failed = 0;

        for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
                int r = ask(i);

                if (r >= 77) {
                        printf("SKIP: %s\n", r == 77 ? "no GPU" : "the driver lacks the functions");
                        return 77;
                }
                failed += r;
        }
        printf("attach_facts: %d failed\n", failed);
        return failed ? 1 : 0;
}
