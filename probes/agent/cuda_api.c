/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "cuda_api.h"

struct symbol {
        const char *name;
        size_t offset;
        bool required;
};

#define REQUIRED(field, name, parameters) {name, offsetof(struct cuda_api, field), true},
#define OPTIONAL(field, name, parameters) {name, offsetof(struct cuda_api, field), false},
static const struct symbol symbols[] = {CUDA_REQUIRED(REQUIRED) CUDA_OPTIONAL(OPTIONAL)};

int cuda_api_load(void *library, struct cuda_api *ret_api, const char **ret_missing)
{
        struct cuda_api api = {0};

        for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
                void *address = dlsym(library, symbols[i].name);

                if (!address && symbols[i].required) {
                        if (ret_missing)
                                *ret_missing = symbols[i].name;
                        return -ENOENT;
                }
                memcpy((char *)&api + symbols[i].offset, &address, sizeof(address));
        }
        *ret_api = api;
        return 0;
}

const char *cuda_error_name(const struct cuda_api *api, int result)
{
        const char *name = NULL;

        if (api->get_error_name && api->get_error_name(result, &name) == CUDA_OK && name)
                return name;
        return "unknown error";
}

bool cuda_has_virtual_memory(const struct cuda_api *api, int device)
{
        int supported = 0;

        if (!api->memory_create || !api->memory_release || !api->memory_granularity ||
            !api->address_reserve || !api->address_free || !api->memory_map || !api->memory_unmap ||
            !api->memory_set_access)
                return false;
        if (api->device_get_attribute(&supported, CUDA_ATTRIBUTE_VIRTUAL_MEMORY, device) != CUDA_OK)
                return false;
        return supported != 0;
}

cuda_handle cuda_current_context(const struct cuda_api *api)
{
        cuda_handle context = NULL;

        return api->context_get_current(&context) == CUDA_OK ? context : NULL;
}

cuda_handle cuda_primary_context(const struct cuda_api *api, int device)
{
        cuda_handle context = NULL;
        int active = 0;
        unsigned flags;

        if (!api->primary_get_state || !api->primary_release ||
            api->primary_get_state(device, &flags, &active) != CUDA_OK || !active ||
            api->primary_retain(&context, device) != CUDA_OK)
                return NULL;
        api->primary_release(device);
        return context;
}
