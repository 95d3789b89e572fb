/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What runs instead of the driver's image loading functions. Each one lets the
 * agent look, calls the original with the agent's image if there is one, and
 * again with the application's if the driver did not take it.
 *
 * cuLinkAddData and its kin are left alone on purpose: what a link makes is
 * machine code that comes back through one of these functions, and is rewritten
 * then, whole; PTX that was changed before it is linked would be probed twice.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "hook.h"
#include "hooked.h"

#define FILE_MAX ((off_t)1 << 30)

static int (*module_load_data)(cuda_handle *, const void *);
static int (*module_load_data_ex)(cuda_handle *, const void *, unsigned, int *, void **);
static int (*module_load_fat_binary)(cuda_handle *, const void *);
static int (*module_load)(cuda_handle *, const char *);
static int (*library_load_data)(cuda_handle *, const void *, int *, void **, unsigned, int *,
                                void **, unsigned);
static int (*library_load_from_file)(cuda_handle *, const char *, int *, void **, unsigned, int *,
                                     void **, unsigned);

/* The driver writes results into option values: the second try needs them fresh. */
struct values {
        void **saved;
        unsigned count;
};

static bool values_save(struct values *v, void **values, unsigned count)
{
        v->count = values ? count : 0;
        v->saved = NULL;
        if (!v->count)
                return true;
        v->saved = malloc(v->count * sizeof(*v->saved));
        if (v->saved)
                memcpy(v->saved, values, v->count * sizeof(*v->saved));
        return v->saved != NULL;
}

static void values_restore(struct values *v, void **values)
{
        if (v->count)
                memcpy(values, v->saved, v->count * sizeof(*v->saved));
}

static cuda_handle handle_of(int result, const cuda_handle *handle)
{
        return result == CUDA_OK && handle ? *handle : NULL;
}

static int on_module_load_data(cuda_handle *module, const void *image)
{
        struct agent_load load;
        int r = CUDA_INVALID_VALUE;

        agent_begin(&load, image, 0, false, 0, NULL, NULL);
        if (load.rewrite.image) {
                r = module_load_data(module, load.rewrite.image);
                if (r != CUDA_OK)
                        agent_load_failed(&load, r);
        }
        if (r != CUDA_OK)
                r = module_load_data(module, image);
        agent_end(&load, r, handle_of(r, module));
        return r;
}

static int on_module_load_data_ex(cuda_handle *module, const void *image, unsigned count,
                                  int *options, void **values)
{
        struct agent_load load;
        int r = CUDA_INVALID_VALUE;
        struct values v;

        agent_begin(&load, image, 0, false, count, options, values);
        if (load.rewrite.image && values_save(&v, values, count)) {
                r = module_load_data_ex(module, load.rewrite.image, count, options, values);
                if (r != CUDA_OK) {
                        values_restore(&v, values);
                        agent_load_failed(&load, r);
                }
                free(v.saved);
        }
        if (r != CUDA_OK)
                r = module_load_data_ex(module, image, count, options, values);
        agent_end(&load, r, handle_of(r, module));
        return r;
}

/* What is loaded instead is no fatbin any more: it goes through the general function. */
static int on_module_load_fat_binary(cuda_handle *module, const void *image)
{
        struct agent_load load;
        int r = CUDA_INVALID_VALUE;

        agent_begin(&load, image, 0, false, 0, NULL, NULL);
        if (load.rewrite.image) {
                r = agent_api()->module_load_data(module, load.rewrite.image);
                if (r != CUDA_OK)
                        agent_load_failed(&load, r);
        }
        if (r != CUDA_OK)
                r = module_load_fat_binary(module, image);
        agent_end(&load, r, handle_of(r, module));
        return r;
}

/* A file as a NUL-terminated buffer, or NULL: then the driver shall deal with it. */
static void *read_file(const char *path, size_t *ret_size)
{
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        char *bytes = NULL;
        struct stat st;
        size_t done = 0;

        if (fd < 0)
                return NULL;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= FILE_MAX)
                bytes = malloc((size_t)st.st_size + 1);
        while (bytes && done < (size_t)st.st_size) {
                ssize_t n = read(fd, bytes + done, (size_t)st.st_size - done);

                if (n <= 0)
                        break;
                done += (size_t)n;
        }
        close(fd);
        if (bytes)
                bytes[done] = '\0';
        *ret_size = done;
        return bytes;
}

static void free_file(void *file)
{
        int saved_errno = errno;

        free(file);
        errno = saved_errno;
}

static int on_module_load(cuda_handle *module, const char *path)
{
        int r = CUDA_INVALID_VALUE, saved_errno = errno;
        struct agent_load load;
        size_t size = 0;
        void *file = agent_watching() ? read_file(path, &size) : NULL;

        agent_image_from(path);
        agent_begin(&load, file, size, false, 0, NULL, NULL);
        if (load.rewrite.image) {
                r = agent_api()->module_load_data(module, load.rewrite.image);
                if (r != CUDA_OK)
                        agent_load_failed(&load, r);
        }
        errno = saved_errno;
        if (r != CUDA_OK)
                r = module_load(module, path);
        agent_end(&load, r, handle_of(r, module));
        free_file(file);
        return r;
}

/*
 * Library options without the promise that the code stays where it is: what is
 * loaded instead goes away, so the driver must keep its own copy.
 */
struct library_options {
        int *options;
        void **values;
        unsigned count;
};

static bool library_options_copy(struct library_options *o, const int *options, void *const *values,
                                 unsigned count)
{
        *o = (struct library_options){0};
        if (!count)
                return true;
        o->options = calloc(count, sizeof(*o->options));
        o->values = calloc(count, sizeof(*o->values));
        if (!o->options || !o->values)
                return false;
        for (unsigned i = 0; i < count; i++) {
                if (!options || options[i] == CUDA_LIBRARY_BINARY_IS_PRESERVED)
                        continue;
                o->options[o->count] = options[i];
                o->values[o->count++] = values ? values[i] : NULL;
        }
        return true;
}

static void library_options_done(struct library_options *o)
{
        free(o->options);
        free(o->values);
}

/* Load the agent's image as a library. */
static int load_instead(struct agent_load *load, cuda_handle *library, int *jit_options,
                        void **jit_values, unsigned jit_count, const int *options,
                        void *const *values, unsigned count)
{
        int r = CUDA_INVALID_VALUE;
        struct library_options o;
        struct values v;

        if (!library_options_copy(&o, options, values, count) ||
            !values_save(&v, jit_values, jit_count)) {
                library_options_done(&o);
                return r;
        }
        r = library_load_data(library, load->rewrite.image, jit_options, jit_values, jit_count,
                              o.count ? o.options : NULL, o.count ? o.values : NULL, o.count);
        if (r != CUDA_OK) {
                values_restore(&v, jit_values);
                agent_load_failed(load, r);
        }
        free(v.saved);
        library_options_done(&o);
        return r;
}

static int on_library_load_data(cuda_handle *library, const void *code, int *jit_options,
                                void **jit_values, unsigned jit_count, int *options, void **values,
                                unsigned count)
{
        struct agent_load load;
        int r = CUDA_INVALID_VALUE;

        agent_begin(&load, code, 0, true, jit_count, jit_options, jit_values);
        if (load.rewrite.image)
                r = load_instead(&load, library, jit_options, jit_values, jit_count, options,
                                 values, count);
        if (r != CUDA_OK)
                r = library_load_data(library, code, jit_options, jit_values, jit_count, options,
                                      values, count);
        agent_end(&load, r, handle_of(r, library));
        return r;
}

static int on_library_load_from_file(cuda_handle *library, const char *path, int *jit_options,
                                     void **jit_values, unsigned jit_count, int *options,
                                     void **values, unsigned count)
{
        int r = CUDA_INVALID_VALUE, saved_errno = errno;
        struct agent_load load;
        size_t size = 0;
        void *file = library_load_data && agent_watching() ? read_file(path, &size) : NULL;

        agent_image_from(path);
        agent_begin(&load, file, size, true, jit_count, jit_options, jit_values);
        if (load.rewrite.image)
                r = load_instead(&load, library, jit_options, jit_values, jit_count, options,
                                 values, count);
        errno = saved_errno;
        if (r != CUDA_OK)
                r = library_load_from_file(library, path, jit_options, jit_values, jit_count,
                                           options, values, count);
        agent_end(&load, r, handle_of(r, library));
        free_file(file);
        return r;
}

size_t loads_hooks(struct hook *hooks)
{
        const struct hook all[] = {
                HOOK("cuModuleLoadData", on_module_load_data, module_load_data),
                HOOK("cuModuleLoadDataEx", on_module_load_data_ex, module_load_data_ex),
                HOOK("cuModuleLoadFatBinary", on_module_load_fat_binary, module_load_fat_binary),
                HOOK("cuModuleLoad", on_module_load, module_load),
                HOOK("cuLibraryLoadData", on_library_load_data, library_load_data),
                HOOK("cuLibraryLoadFromFile", on_library_load_from_file, library_load_from_file),
        };

        memcpy(hooks, all, sizeof(all));
        return sizeof(all) / sizeof(all[0]);
}
