/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A library with a kernel of its own, as a plug-in has it: the image comes when the
 * library is first used and goes, text and all, when the library is closed.
 */
#include "simcuda/cuda.h"

#include "sim_plugin.h"

static const char image[] = ".version 7.8\n.target sm_70\n.address_size 64\n"
                            "// sum[0] += what\n"
                            ".visible .entry plugin_add(.param .u64 sum, .param .u32 what)\n{\n"
                            ".reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
                            "ld.param.u64 %rd1, [sum];\nld.param.u32 %r1, [what];\n"
                            "red.global.add.u32 [%rd1], %r1;\nret;\n}\n";
static CUmodule module;

/* The last thing before the image is gone. */
__attribute__((destructor)) static void unload(void)
{
        if (module)
                cuModuleUnload(module);
}

int plugin_work(CUdeviceptr sum, unsigned what)
{
        void *parameters[] = {&sum, &what};
        CUfunction function;
        CUresult r;

        r = module ? CUDA_SUCCESS : cuModuleLoadData(&module, image);
        if (r == CUDA_SUCCESS)
                r = cuModuleGetFunction(&function, module, "plugin_add");
        if (r == CUDA_SUCCESS)
                r = cuLaunchKernel(function, 3, 1, 1, 2, 1, 1, 0, NULL, parameters, NULL);
        if (r == CUDA_SUCCESS)
                r = cuCtxSynchronize();
        return (int)r;
}
