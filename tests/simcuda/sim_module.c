/* SPDX-License-Identifier: Apache-2.0 */

/* Modules, libraries, functions and kernels. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

/* The application's buffer for the compiler's messages, among the JIT options. */
static void report(const char *message, unsigned count, const int *options, void **values)
{
        char *buffer = NULL;
        size_t bytes = 0;

        for (unsigned i = 0; i < count && options && values; i++) {
                if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
                        buffer = values[i];
                else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
                        bytes = (size_t)values[i];
        }
        if (buffer && bytes)
                snprintf(buffer, bytes, "%s", message);
}

static struct sim_module *module_free(struct sim_module *module)
{
        struct sim_memory removed;
        size_t bytes;
        void *data;

        if (!module)
                return NULL;
        if (module->ptx) {
                data = ptx_module_data(module->ptx, &bytes);
                if (data)
                        sim_memory_remove((uint64_t)data, &removed);
        }
        ptx_module_free(module->ptx);
        for (unsigned i = 0; i < module->function_count; i++)
                SIM_FREE(module->functions[i], FUNCTION);
        free(module->functions);
        return SIM_FREE(module, MODULE);
}

static CUresult add_functions(struct sim_module *module)
{
        size_t count = ptx_module_entry_count(module->ptx);

        module->functions = calloc(count ? count : 1, sizeof(*module->functions));
        if (!module->functions)
                return CUDA_ERROR_OUT_OF_MEMORY;
        for (size_t i = 0; i < count; i++) {
                struct sim_function *f = SIM_NEW(struct sim_function, FUNCTION);

                if (!f)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                module->functions[module->function_count++] = f;
                f->module = module;
                f->entry = ptx_module_entry(module->ptx, i);
                f->info = ptx_entry_info(f->entry);
                f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] =
                        SIM_SHARED_DEFAULT - (int)f->info->shared_bytes;
                f->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
        }
        return CUDA_SUCCESS;
}

/* Kernels may access the module's variables. */
static CUresult add_data(struct sim_module *module)
{
        struct sim_memory memory = {.kind = SIM_MEMORY_MODULE,
                                    .device = module->context ? module->context->device : 0,
                                    .context = module->context};
        size_t bytes;

        memory.start = (uint64_t)ptx_module_data(module->ptx, &bytes);
        memory.end = memory.start + bytes;
        return memory.start ? sim_memory_add(&memory) : CUDA_SUCCESS;
}

static CUresult compile(struct sim_module *module, const void *image, char *log, size_t log_bytes)
{
        char *text = NULL;
        size_t bytes;
        CUresult result = sim_image_ptx(image, &text, &bytes);
        int r;

        if (result)
                return result;
        r = ptx_module_load(text, bytes, SIM_SM, log, log_bytes, &module->ptx);
        free(text);
        if (r == -ENOMEM)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (r < 0)
                return CUDA_ERROR_INVALID_PTX;
        result = add_functions(module);
        return result ? result : add_data(module);
}

static CUresult module_new(struct sim_context *context, const void *image, unsigned count,
                           const int *options, void **values, struct sim_module **ret_module)
{
        struct sim_module *module;
        char log[512] = "";
        CUresult r;

        if (sim_choice_hit(&sim_driver.config.fail_load)) {
                report("this load was chosen to fail", count, options, values);
                return CUDA_ERROR_INVALID_PTX;
        }
        module = SIM_NEW(struct sim_module, MODULE);
        if (!module)
                return CUDA_ERROR_OUT_OF_MEMORY;
        module->context = context;
        r = compile(module, image, log, sizeof(log));
        if (r) {
                report(log, count, options, values);
                module_free(module);
                return r;
        }
        *ret_module = module;
        return CUDA_SUCCESS;
}

static CUresult load(CUmodule *ret_module, const void *image, unsigned count, const int *options,
                     void **values)
{
        struct sim_context *context;
        CUresult r = sim_context_current(&context);

        if (r)
                return r;
        if (!ret_module || !image)
                return CUDA_ERROR_INVALID_VALUE;
        return module_new(context, image, count, options, values, ret_module);
}

/* A file's bytes with a NUL behind them, for the caller to free. */
static CUresult read_file(const char *name, void **ret_bytes)
{
        struct stat st;
        char *bytes = NULL;
        FILE *f = name ? fopen(name, "rbe") : NULL;

        if (!f)
                return CUDA_ERROR_FILE_NOT_FOUND;
        if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode))
                bytes = calloc(1, (size_t)st.st_size + 1);
        if (!bytes || fread(bytes, 1, (size_t)st.st_size, f) != (size_t)st.st_size) {
                free(bytes);
                fclose(f);
                return CUDA_ERROR_FILE_NOT_FOUND;
        }
        fclose(f);
        *ret_bytes = bytes;
        return CUDA_SUCCESS;
}

SIM_API cuModuleLoad(CUmodule *module, const char *file)
{
        void *bytes;
        CUresult r;

        SIM_ENTER();
        r = read_file(file, &bytes);
        if (r)
                return r;
        r = load(module, bytes, 0, NULL, NULL);
        free(bytes);
        return r;
}

SIM_API cuModuleLoadData(CUmodule *module, const void *image)
{
        SIM_ENTER();
        return load(module, image, 0, NULL, NULL);
}

SIM_API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options,
                           void **values)
{
        SIM_ENTER();
        return load(module, image, count, options, values);
}

SIM_API cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
        SIM_ENTER();
        return load(module, image, 0, NULL, NULL);
}

/* Functions in use have to be finished with first. */
static CUresult drain(struct sim_module *module)
{
        if (module->context)
                return sim_context_drain(module->context);
        sim_drain_all();
        return CUDA_SUCCESS;
}

SIM_API cuModuleUnload(CUmodule module)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!SIM_IS(module, MODULE))
                return CUDA_ERROR_INVALID_HANDLE;
        if (module->in_library)
                return CUDA_ERROR_NOT_PERMITTED;
        r = drain(module);
        module_free(module);
        return r;
}

static struct sim_function *find_function(struct sim_module *module, const char *name)
{
        for (unsigned i = 0; i < module->function_count; i++) {
                if (strcmp(module->functions[i]->info->name, name) == 0)
                        return module->functions[i];
        }
        return NULL;
}

static CUresult check_module(const struct sim_module *module)
{
        CUresult r = sim_check_ready();

        if (r)
                return r;
        if (!SIM_IS(module, MODULE))
                return CUDA_ERROR_INVALID_HANDLE;
        return module->context ? atomic_load(&module->context->error) : CUDA_SUCCESS;
}

SIM_API cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
        struct sim_function *found;
        CUresult r;

        SIM_ENTER();
        r = check_module(module);
        if (r)
                return r;
        if (!function || !name)
                return CUDA_ERROR_INVALID_VALUE;
        found = find_function(module, name);
        if (!found)
                return CUDA_ERROR_NOT_FOUND;
        *function = found;
        return CUDA_SUCCESS;
}

SIM_API cuModuleGetFunctionCount(unsigned *count, CUmodule module)
{
        CUresult r;

        SIM_ENTER();
        r = check_module(module);
        if (!r && !count)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *count = module->function_count;
        return r;
}

SIM_API cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module)
{
        CUresult r;

        SIM_ENTER();
        r = check_module(module);
        if (!r && (!functions || count == 0))
                r = CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; !r && i < count && i < module->function_count; i++)
                functions[i] = module->functions[i];
        return r;
}

static CUresult get_global(CUdeviceptr *address, size_t *bytes, const struct sim_module *module,
                           const char *name)
{
        void *found;
        size_t size;

        if (!name)
                return CUDA_ERROR_INVALID_VALUE;
        if (ptx_module_find_global(module->ptx, name, &found, &size) < 0)
                return CUDA_ERROR_NOT_FOUND;
        if (address)
                *address = (CUdeviceptr)(uintptr_t)found;
        if (bytes)
                *bytes = size;
        return CUDA_SUCCESS;
}

SIM_API cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
        CUresult r;

        SIM_ENTER();
        r = check_module(module);
        return r ? r : get_global(address, bytes, module, name);
}

SIM_API cuModuleGetLoadingMode(int *mode)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (!r && !mode)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *mode = 1; /* eager */
        return r;
}

/* ---- libraries: need no context; their module serves every context ---- */

static CUresult add_kernels(struct sim_library *library)
{
        unsigned count = library->module->function_count;

        library->kernels = calloc(count ? count : 1, sizeof(*library->kernels));
        if (!library->kernels)
                return CUDA_ERROR_OUT_OF_MEMORY;
        for (unsigned i = 0; i < count; i++) {
                struct sim_kernel *kernel = SIM_NEW(struct sim_kernel, KERNEL);

                if (!kernel)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                kernel->library = library;
                kernel->function = library->module->functions[i];
                library->kernels[i] = kernel;
        }
        return CUDA_SUCCESS;
}

static void library_free(struct sim_library *library)
{
        unsigned count = library->module ? library->module->function_count : 0;

        for (unsigned i = 0; library->kernels && i < count; i++)
                SIM_FREE(library->kernels[i], KERNEL);
        free(library->kernels);
        module_free(library->module);
        SIM_FREE(library, LIBRARY);
}

static CUresult load_library(CUlibrary *ret_library, const void *image, unsigned count,
                             const int *options, void **values)
{
        struct sim_library *library;
        struct sim_context *context = NULL;
        CUresult r = sim_context_current(&context);

        if (r && r != CUDA_ERROR_INVALID_CONTEXT)
                return r;
        if (!ret_library || !image)
                return CUDA_ERROR_INVALID_VALUE;
        library = SIM_NEW(struct sim_library, LIBRARY);
        if (!library)
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = module_new(context, image, count, options, values, &library->module);
        if (!r) {
                library->module->in_library = true;
                r = add_kernels(library);
        }
        if (r) {
                library_free(library);
                return r;
        }
        *ret_library = library;
        return CUDA_SUCCESS;
}

SIM_API cuLibraryLoadData(CUlibrary *library, const void *image, int *jit_options,
                          void **jit_values, unsigned jit_count, int *options, void **values,
                          unsigned count)
{
        SIM_ENTER();
        return load_library(library, image, jit_count, jit_options, jit_values);
}

SIM_API cuLibraryLoadFromFile(CUlibrary *library, const char *file, int *jit_options,
                              void **jit_values, unsigned jit_count, int *options, void **values,
                              unsigned count)
{
        void *bytes;
        CUresult r;

        SIM_ENTER();
        r = read_file(file, &bytes);
        if (r)
                return r;
        r = load_library(library, bytes, jit_count, jit_options, jit_values);
        free(bytes);
        return r;
}

static CUresult check_library(const struct sim_library *library)
{
        CUresult r = sim_check_ready();

        if (r)
                return r;
        return SIM_IS(library, LIBRARY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API cuLibraryUnload(CUlibrary library)
{
        CUresult r;

        SIM_ENTER();
        r = check_library(library);
        if (r)
                return r;
        r = drain(library->module);
        library_free(library);
        return r;
}

static struct sim_kernel *find_kernel(struct sim_library *library,
                                      const struct sim_function *function)
{
        unsigned i = 0;

        while (library->kernels[i]->function != function)
                i++;
        return library->kernels[i];
}

SIM_API cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
        struct sim_function *found;
        CUresult r;

        SIM_ENTER();
        r = check_library(library);
        if (r)
                return r;
        if (!kernel || !name)
                return CUDA_ERROR_INVALID_VALUE;
        found = find_function(library->module, name);
        if (!found)
                return CUDA_ERROR_NOT_FOUND;
        *kernel = find_kernel(library, found);
        return CUDA_SUCCESS;
}

SIM_API cuLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
        CUresult r;

        SIM_ENTER();
        r = check_library(library);
        if (!r && !count)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *count = library->module->function_count;
        return r;
}

SIM_API cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library)
{
        CUresult r;

        SIM_ENTER();
        r = check_library(library);
        if (!r && !kernels)
                r = CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; !r && i < count && i < library->module->function_count; i++)
                kernels[i] = library->kernels[i];
        return r;
}

SIM_API cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
        CUresult r;

        SIM_ENTER();
        r = check_library(library);
        if (!r && !module)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *module = library->module;
        return r;
}

SIM_API cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
        CUresult r;

        SIM_ENTER();
        r = check_library(library);
        return r ? r : get_global(address, bytes, library->module, name);
}

/* ---- functions ---- */

static CUresult check_kernel(const struct sim_kernel *kernel)
{
        CUresult r = sim_check_ready();

        if (r)
                return r;
        return SIM_IS(kernel, KERNEL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_function(const struct sim_function *function)
{
        CUresult r = sim_check_ready();

        if (r)
                return r;
        return SIM_IS(function, FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
        CUresult r;

        SIM_ENTER();
        r = check_kernel(kernel);
        if (!r && !function)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *function = kernel->function;
        return r;
}

SIM_API cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
        CUresult r;

        SIM_ENTER();
        r = check_kernel(kernel);
        if (!r && !library)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *library = kernel->library;
        return r;
}

SIM_API cuKernelGetName(const char **name, CUkernel kernel)
{
        CUresult r;

        SIM_ENTER();
        r = check_kernel(kernel);
        if (!r && !name)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *name = kernel->function->info->name;
        return r;
}

SIM_API cuFuncGetName(const char **name, CUfunction function)
{
        CUresult r;

        SIM_ENTER();
        r = check_function(function);
        if (!r && !name)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *name = function->info->name;
        return r;
}

SIM_API cuFuncGetModule(CUmodule *module, CUfunction function)
{
        CUresult r;

        SIM_ENTER();
        r = check_function(function);
        if (!r && !module)
                r = CUDA_ERROR_INVALID_VALUE;
        if (!r)
                *module = function->module;
        return r;
}

static CUresult param_info(const struct sim_function *f, size_t index, size_t *offset,
                           size_t *bytes)
{
        if (!offset || index >= f->info->param_count)
                return CUDA_ERROR_INVALID_VALUE;
        *offset = f->info->params[index].offset;
        if (bytes)
                *bytes = f->info->params[index].bytes;
        return CUDA_SUCCESS;
}

SIM_API cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes)
{
        CUresult r;

        SIM_ENTER();
        r = check_kernel(kernel);
        return r ? r : param_info(kernel->function, index, offset, bytes);
}

SIM_API cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
        CUresult r;

        SIM_ENTER();
        r = check_function(function);
        return r ? r : param_info(function, index, offset, bytes);
}

static CUresult get_attribute(const struct sim_function *f, int attribute, int *value)
{
        if (!value || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
                return CUDA_ERROR_INVALID_VALUE;
        switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
                *value = (int)f->info->max_threads;
                break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
                *value = (int)f->info->shared_bytes;
                break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
                *value = (int)f->info->local_bytes;
                break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
                *value = (int)f->info->registers;
                break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
                *value = SIM_SM;
                break;
        default:
                *value = f->attributes[attribute];
                break;
        }
        return CUDA_SUCCESS;
}

static CUresult set_attribute(struct sim_function *f, int attribute, int value)
{
        if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
                if (value < 0 || value + (int)f->info->shared_bytes > SIM_SHARED_MAX)
                        return CUDA_ERROR_INVALID_VALUE;
        } else if (attribute < CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
                   attribute >= CU_FUNC_ATTRIBUTE_MAX) {
                return CUDA_ERROR_INVALID_VALUE; /* read-only, or unknown */
        }
        f->attributes[attribute] = value;
        return CUDA_SUCCESS;
}

SIM_API cuKernelGetAttribute(int *value, int attribute, CUkernel kernel, CUdevice device)
{
        CUresult r;

        SIM_ENTER();
        r = check_kernel(kernel);
        return r ? r : get_attribute(kernel->function, attribute, value);
}

SIM_API cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device)
{
        CUresult r;

        SIM_ENTER();
        r = check_kernel(kernel);
        return r ? r : set_attribute(kernel->function, attribute, value);
}

SIM_API cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device)
{
        SIM_ENTER();
        return check_kernel(kernel);
}

/* Here too a kernel may stand for its function. */
SIM_API cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
        CUresult r;

        SIM_ENTER();
        if (SIM_IS((CUkernel)function, KERNEL))
                function = ((CUkernel)function)->function;
        r = check_function(function);
        return r ? r : get_attribute(function, attribute, value);
}

SIM_API cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
        CUresult r;

        SIM_ENTER();
        if (SIM_IS((CUkernel)function, KERNEL))
                function = ((CUkernel)function)->function;
        r = check_function(function);
        return r ? r : set_attribute(function, attribute, value);
}

SIM_API cuFuncSetCacheConfig(CUfunction function, int config)
{
        SIM_ENTER();
        return check_function(function);
}

/* As many blocks as have room for their registers and places for their warps, on sm_90. */
SIM_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                    size_t shared_bytes)
{
        uint32_t warps = ((uint32_t)threads + 31) / 32, registers, most;
        CUresult r;

        SIM_ENTER();
        if (SIM_IS((CUkernel)function, KERNEL))
                function = ((CUkernel)function)->function;
        r = check_function(function);
        if (r || !blocks || threads <= 0)
                return r ? r : CUDA_ERROR_INVALID_VALUE;
        registers = (function->info->registers + 7) / 8 * 8;
        most = 64 / warps < 32 ? 64 / warps : 32;
        if (registers && 65536 / (registers * 32 * warps) < most)
                most = 65536 / (registers * 32 * warps);
        *blocks = (int)most;
        return CUDA_SUCCESS;
}

/* ---- the linker makes machine code, which this device does not have ---- */

SIM_API cuLinkCreate_v2(unsigned count, int *options, void **values, CUlinkState *state)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        return r ? r : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API cuLinkAddData_v2(CUlinkState state, int type, void *data, size_t bytes, const char *name,
                         unsigned count, int *options, void **values)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        return r ? r : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API cuLinkAddFile_v2(CUlinkState state, int type, const char *file, unsigned count,
                         int *options, void **values)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        return r ? r : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API cuLinkComplete(CUlinkState state, void **cubin, size_t *bytes)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        return r ? r : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API cuLinkDestroy(CUlinkState state)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        return r ? r : CUDA_ERROR_NOT_SUPPORTED;
}
