/* SPDX-License-Identifier: Apache-2.0 */

/* Where the driver gives out what can be launched: each handle is noted (handles.h). */
#include <string.h>

#include "agent.h"
#include "handles.h"
#include "hooked.h"
#include "replace_image.h"

typedef int get_fn(cuda_handle *, cuda_handle, const char *);
typedef int enumerate_fn(cuda_handle *, unsigned, cuda_handle);
typedef int count_fn(unsigned *, cuda_handle);

static get_fn *module_get_function;
static get_fn *library_get_kernel;
static int (*kernel_get_function)(cuda_handle *, cuda_handle);
static enumerate_fn *module_enumerate_functions;
static enumerate_fn *library_enumerate_kernels;

static void given(cuda_handle handle, enum handle_kind kind)
{
        handles_note(handle, kind);
        replace_given(handle, kind == HANDLE_KERNEL);
}

static int note(int result, const cuda_handle *handle, enum handle_kind kind)
{
        if (result == CUDA_OK && handle)
                given(*handle, kind);
        return result;
}

static int on_module_get_function(cuda_handle *function, cuda_handle module, const char *name)
{
        return note(module_get_function(function, module, name), function, HANDLE_FUNCTION);
}

static int on_library_get_kernel(cuda_handle *kernel, cuda_handle library, const char *name)
{
        return note(library_get_kernel(kernel, library, name), kernel, HANDLE_KERNEL);
}

static int on_kernel_get_function(cuda_handle *function, cuda_handle kernel)
{
        return note(kernel_get_function(function, kernel), function, HANDLE_FUNCTION);
}

/* The caller may have room for more than there are: only so many were written. */
static void note_list(const cuda_handle *list, unsigned room, cuda_handle parent, count_fn *count,
                      enum handle_kind kind)
{
        unsigned written = 0;

        if (!list || !count || count(&written, parent) != CUDA_OK)
                return;
        for (unsigned i = 0; i < written && i < room; i++)
                given(list[i], kind);
}

static int on_module_enumerate_functions(cuda_handle *functions, unsigned room, cuda_handle module)
{
        int r = module_enumerate_functions(functions, room, module);

        if (r == CUDA_OK)
                note_list(functions, room, module, agent_api()->module_function_count,
                          HANDLE_FUNCTION);
        return r;
}

static int on_library_enumerate_kernels(cuda_handle *kernels, unsigned room, cuda_handle library)
{
        int r = library_enumerate_kernels(kernels, room, library);

        if (r == CUDA_OK)
                note_list(kernels, room, library, agent_api()->library_kernel_count, HANDLE_KERNEL);
        return r;
}

size_t handles_hooks(struct hook *hooks)
{
        const struct hook all[] = {
                HOOK("cuModuleGetFunction", on_module_get_function, module_get_function),
                HOOK("cuLibraryGetKernel", on_library_get_kernel, library_get_kernel),
                HOOK("cuKernelGetFunction", on_kernel_get_function, kernel_get_function),
                HOOK("cuModuleEnumerateFunctions", on_module_enumerate_functions,
                     module_enumerate_functions),
                HOOK("cuLibraryEnumerateKernels", on_library_enumerate_kernels,
                     library_enumerate_kernels),
        };

        memcpy(hooks, all, sizeof(all));
        return sizeof(all) / sizeof(all[0]);
}
