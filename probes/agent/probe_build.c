/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fragment.h"
#include "grid_layout.h"
#include "image_memory.h"
#include "probe_build.h"
#include "splice.h"
#include "text.h"

#define JIT_ERROR_LOG_BUFFER       5
#define JIT_ERROR_LOG_BUFFER_BYTES 6

int probe_linker_available(const struct cuda_api *api)
{
        return api->link_create && api->link_add_data && api->link_complete && api->link_destroy;
}

static int copy_out(const void *cubin, size_t size, void **ret_cubin, size_t *ret_size)
{
        void *copy = image_memory_alloc(size);

        if (!copy)
                return -ENOMEM;
        memcpy(copy, cubin, size);
        *ret_cubin = copy;
        *ret_size = size;
        return 0;
}

static int link_in(const struct cuda_api *api, cuda_handle state, const char *text, size_t size,
                   void **ret_cubin, size_t *ret_size, char error[PROBE_ERROR_BYTES])
{
        void *cubin = NULL;
        size_t cubin_size = 0;
        int r;

        /* The size of PTX includes its NUL. */
        r = api->link_add_data(state, CUDA_LINK_PTX, (void *)(uintptr_t)text, size + 1, "gpuobs", 0,
                               NULL, NULL);
        if (r == CUDA_OK)
                r = api->link_complete(state, &cubin, &cubin_size);
        if (r != CUDA_OK) {
                snprintf(error, PROBE_ERROR_BYTES, "the driver does not compile the PTX: %s",
                         cuda_error_name(api, r));
                return -EINVAL;
        }
        return copy_out(cubin, cubin_size, ret_cubin, ret_size);
}

int probe_link_ptx(const struct cuda_api *api, const char *text, size_t size, unsigned option_count,
                   const int *options, void *const *values, void **ret_cubin, size_t *ret_size,
                   char error[PROBE_ERROR_BYTES])
{
        cuda_handle state = NULL;
        int r;

        error[0] = '\0';
        if (!probe_linker_available(api))
                return -ENOSYS;
        r = api->link_create(option_count, (int *)(uintptr_t)options, (void **)(uintptr_t)values,
                             &state);
        if (r == CUDA_NOT_SUPPORTED)
                return -ENOSYS;
        if (r != CUDA_OK) {
                snprintf(error, PROBE_ERROR_BYTES, "the driver's linker does not start: %s",
                         cuda_error_name(api, r));
                return -EINVAL;
        }
        r = link_in(api, state, text, size, ret_cubin, ret_size, error);
        api->link_destroy(state);
        return r;
}

/* Keep the first line of the compiler's words behind our own. */
static void add_log(char error[PROBE_ERROR_BYTES], const char *log)
{
        size_t used = strlen(error), n = strcspn(log, "\n");

        if (n && used + 3 < PROBE_ERROR_BYTES)
                snprintf(error + used, PROBE_ERROR_BYTES - used, ": %.*s", (int)n, log);
}

/* A kernel without parameters around the fragment, as splice.h wants it. */
static void write_probe(struct text *t, const char *fragment, uint32_t sm,
                        const struct grid_layout *layout, bool loosen)
{
        struct fragment_values values = {.loosen = loosen,
                                         .label = "0",
                                         .kernel = SPLICE_KERNEL_ID_NAME,
                                         .context = FRAGMENT_LOAD_ZERO,
                                         .queue = FRAGMENT_LOAD_ZERO,
                                         .address = SPLICE_ADDRESS_NAME,
                                         .access = SPLICE_ACCESS_NAME};

        if (layout) {
                values.context.source = layout->context;
                values.queue.source = SPLICE_QUEUE;
        }
        text_print(t,
                   ".version 8.0\n.target sm_%u\n.address_size 64\n"
                   ".visible .entry gpuobs_probe()\n{\n",
                   sm);
        text_print(t, "%s", SPLICE_KERNEL_ID_PROLOGUE);
        if (strstr(fragment, "@A@") || strstr(fragment, "@S@"))
                text_add(t, SPLICE_ACCESS_PROLOGUE, strlen(SPLICE_ACCESS_PROLOGUE));
        fragment_expand(t, fragment, &values);
        text_print(t, "\nret;\n}\n");
}

static int build(const struct cuda_api *api, const char *fragment, uint32_t sm,
                 const struct grid_layout *layout, bool loosen, struct probe_code **ret_code,
                 char error[PROBE_ERROR_BYTES])
{
        static const int options[] = {JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_BYTES};
        char log[1024] = "";
        void *values[] = {log, (void *)(uintptr_t)(sizeof(log) - 1)};
        struct text t = {0};
        const char *refusal = NULL;
        void *cubin = NULL;
        size_t size = 0;
        int r = -ENOMEM;

        write_probe(&t, fragment, sm, layout, loosen);
        if (!t.failed)
                r = probe_link_ptx(api, t.bytes, t.size, 2, options, values, &cubin, &size, error);
        if (r == -EINVAL)
                add_log(error, log);
        if (r == 0) {
                r = probe_code_extract(cubin, size, ret_code, &refusal);
                if (r < 0)
                        snprintf(error, PROBE_ERROR_BYTES, "%s", refusal ?: "out of memory");
        }
        image_memory_free(cubin);
        text_done(&t);
        return r;
}

/* Once more with numbers kept out of uniform registers; what was built stays if that fails. */
static int build_loosened(const struct cuda_api *api, const char *fragment, uint32_t sm,
                          const struct grid_layout *layout, struct probe_code **code)
{
        struct probe_code *other = NULL;
        char error[PROBE_ERROR_BYTES];
        int r = build(api, fragment, sm, layout, true, &other, error);

        if (r < 0)
                return r;
        probe_code_free(*code);
        *code = other;
        return 0;
}

int probe_build(const struct cuda_api *api, const char *fragment, uint32_t sm,
                const struct grid_layout *layout, struct probe_code **ret_code,
                char error[PROBE_ERROR_BYTES])
{
        struct probe_code *code = NULL;
        int r = build(api, fragment, sm, layout, false, &code, error);

        if ((r == -EINVAL || (r == 0 && probe_code_exit_refusal(code))) &&
            strstr(fragment, "@O@") && build_loosened(api, fragment, sm, layout, &code) == 0) {
                error[0] = '\0';
                r = 0;
        }
        if (r == 0)
                *ret_code = code;
        return r;
}
