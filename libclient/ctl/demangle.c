/* SPDX-License-Identifier: Apache-2.0 */
#include "demangle.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

typedef char *demangle_fn(const char *name, char *buffer, size_t *length, int *status);

struct known {
        char *name;
        char *shown;
        UT_hash_handle hh;
};

static demangle_fn *demangler(void)
{
        static demangle_fn *function;
        static bool looked;
        void *library;

        if (!looked) {
                looked = true;
                library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
                if (library)
                        function = (demangle_fn *)dlsym(library, "__cxa_demangle");
        }
        return function;
}

static char *show(const char *name)
{
        demangle_fn *function = strncmp(name, "_Z", 2) ? NULL : demangler();
        char *shown = NULL;
        int status = 0;

        if (function)
                shown = function(name, NULL, NULL, &status);
        return shown ? shown : strdup(name);
}

const char *demangle(const char *name)
{
        static struct known *all;
        struct known *k;

        if (!name)
                return NULL;
        HASH_FIND_STR(all, name, k);
        if (k)
                return k->shown;
        k = calloc(1, sizeof(*k));
        if (!k)
                return name;
        k->name = strdup(name);
        k->shown = show(name);
        if (!k->name || !k->shown) {
                free(k->name);
                free(k->shown);
                free(k);
                return name;
        }
        HASH_ADD_KEYPTR(hh, all, k->name, strlen(k->name), k);
        return k->shown;
}
