/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cuda.h"

#pragma GCC visibility push(default)

static void nothing(void)
{
}

CUresult fake_result;
handle_t fake_handle = 0x1000;
void (*fake_work)(void) = nothing;

/*
 * Each is different code, and calls others as a library calls its exports: the
 * build keeps them apart (no folding of identical functions).
 */
#define FAKE_DEFINE(name, parameters, effect)                                                      \
        CUresult name parameters                                                                   \
        {                                                                                          \
                effect;                                                                            \
                return fake_result;                                                                \
        }
FAKE_FUNCTIONS(FAKE_DEFINE)

/* A memset only by its name: what counts is that the jump leaves the stack as it was. */
__asm__(".globl cuMemsetD16_v2\n"
        ".type cuMemsetD16_v2, @function\n"
        "cuMemsetD16_v2:\n"
        "        push %rbp\n"
        "        pop %rbp\n"
        "        jmp cuLaunchKernel@PLT\n"
        ".size cuMemsetD16_v2, . - cuMemsetD16_v2\n");

#pragma GCC visibility pop
