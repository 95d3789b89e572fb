// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

// A function of the driver, or the end of the program with a sentence.
static void *driver_symbol(const char *name)
{
        static void *library = dlopen("libcuda.so.1", RTLD_NOW);
        void *symbol = library ? dlsym(library, name) : nullptr;

        if (!symbol) {
                fprintf(stderr, "the driver has no %s\n", name);
                exit(1);
        }
        return symbol;
}
