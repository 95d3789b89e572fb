/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/arch.h"
#include "splice_device.h"

enum { LINK_PTX = 1, JIT_ERROR_LOG = 5, JIT_ERROR_LOG_BYTES = 6 };
enum { ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 };

#define DEFINE(name, parameters) int(*name) parameters;
SPLICE_DRIVER(DEFINE)

void splice_die(const char *what, const char *why)
{
        fprintf(stderr, "%s: %s\n", what, why);
        exit(1);
}

void splice_must(int result, const char *what)
{
        const char *text = NULL;

        if (result == 0)
                return;
        cuGetErrorString(result, &text);
        splice_die(what, text ? text : "unknown error");
}

static void load_driver(void)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW);

        if (!library) {
                printf("SKIP: no libcuda.so.1\n");
                exit(77);
        }
#define LOOK_UP(name, parameters)                                                                  \
        name = (int(*) parameters)dlsym(library, #name);                                           \
        if (!name)                                                                                 \
                splice_die(#name, "not in the driver");
        SPLICE_DRIVER(LOOK_UP)
}

void splice_open_device(void)
{
        int device, major = 0, minor = 0;
        void *context;

        load_driver();
        if (cuInit(0) != 0 || cuDeviceGet(&device, 0) != 0) {
                printf("SKIP: no device\n");
                exit(77);
        }
        splice_must(cuDeviceGetAttribute(&major, ATTRIBUTE_MAJOR, device), "cuDeviceGetAttribute");
        splice_must(cuDeviceGetAttribute(&minor, ATTRIBUTE_MINOR, device), "cuDeviceGetAttribute");
        if (major != 9 || minor != 0) {
                printf("SKIP: the device is sm_%d%d, not sm_90\n", major, minor);
                exit(77);
        }
        splice_must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
        splice_must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

void splice_allocate(struct probe_memory *m)
{
        size_t words = (sizeof(struct device_counters) + 3) / 4;

        splice_must(cuMemAlloc_v2(&m->counters, words * 4), "cuMemAlloc");
        splice_must(cuMemsetD32_v2(m->counters, 0, words), "cuMemsetD32");
        splice_must(cuMemHostAlloc((void **)&m->ring, DEVICE_RING_BYTES, 2 /* mapped */),
                    "cuMemHostAlloc");
        memset(m->ring, 0, DEVICE_RING_BYTES);
        splice_must(cuMemHostGetDevicePointer_v2(&m->ring_address, m->ring, 0),
                    "cuMemHostGetDevicePointer");
}

char *splice_read_file(const char *path, size_t *ret_size)
{
        FILE *f = fopen(path, "rb");
        char *bytes;
        long size;

        if (!f || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0)
                splice_die(path, "cannot be read");
        rewind(f);
        bytes = malloc((size_t)size + 1);
        if (!bytes || fread(bytes, 1, (size_t)size, f) != (size_t)size)
                splice_die(path, "cannot be read");
        bytes[size] = 0;
        fclose(f);
        *ret_size = (size_t)size;
        return bytes;
}

/* The fragment with its tokens filled in, as the agent does it. */
static void expand(FILE *out, const struct probe_memory *m, const char *text, bool loosen)
{
        char ring[32], counters[32];
        const struct {
                const char *token, *value;
        } tokens[] = {
                {"@U@", "x"},
                {"@K@", SPLICE_KERNEL_ID_NAME},
                {"@M0@", ring},
                {"@M1@", counters},
                {"@C0@", "mov.u32"},
                {"@C1@", arch_sm90.grid.context},
                {"@Q0@", "mov.u32"},
                {"@Q1@", SPLICE_QUEUE},
                {"@A@", SPLICE_ADDRESS_NAME},
                {"@S@", SPLICE_ACCESS_NAME},
                {"@O@", loosen ? "" : "//"},
        };
        size_t k;

        snprintf(ring, sizeof(ring), "0x%llx", m->ring_address);
        snprintf(counters, sizeof(counters), "0x%llx", m->counters);
        while (*text) {
                for (k = 0; k < sizeof(tokens) / sizeof(tokens[0]); k++)
                        if (strncmp(text, tokens[k].token, strlen(tokens[k].token)) == 0)
                                break;
                if (k < sizeof(tokens) / sizeof(tokens[0])) {
                        fputs(tokens[k].value, out);
                        text += strlen(tokens[k].token);
                } else {
                        fputc(*text++, out);
                }
        }
}

static char *probe_text(const struct probe_memory *m, const char *fragment, bool loosen,
                        size_t *ret_size)
{
        char *text = NULL;
        FILE *out = open_memstream(&text, ret_size);

        if (!out)
                splice_die("open_memstream", "out of memory");
        fputs(".version 8.0\n.target sm_90\n.address_size 64\n"
              ".visible .entry gpuobs_probe()\n{\n" SPLICE_KERNEL_ID_PROLOGUE
                      SPLICE_ACCESS_PROLOGUE,
              out);
        expand(out, m, fragment, loosen);
        fprintf(out, "\nret;\n}\n");
        fclose(out);
        return text;
}

/* The driver's linker makes machine code of it. */
static void compile(const char *name, struct splice_built *b)
{
        int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES}, result;
        char log[4096] = "";
        void *values[] = {log, (void *)(uintptr_t)(sizeof(log) - 1)}, *link, *cubin = NULL;

        splice_must(cuLinkCreate_v2(2, options, values, &link), "cuLinkCreate");
        result = cuLinkAddData_v2(link, LINK_PTX, b->text, b->text_size + 1, name, 0, NULL, NULL);
        if (result == 0)
                result = cuLinkComplete(link, &cubin, &b->cubin_size);
        if (result != 0)
                fprintf(stderr, "%s: %s\n", name, log);
        splice_must(result, "compiling the probe");
        b->cubin = malloc(b->cubin_size);
        if (!b->cubin)
                splice_die(name, "out of memory");
        memcpy(b->cubin, cubin, b->cubin_size);
        cuLinkDestroy(link);
}

void splice_built_done(struct splice_built *b)
{
        free(b->text);
        free(b->cubin);
        memset(b, 0, sizeof(*b));
}

static struct probe_code *build(const struct probe_memory *m, const char *name,
                                const char *fragment, splice_edit *edit, bool loosen,
                                struct splice_built *ret_built)
{
        struct splice_built built = {0};
        const char *why = "out of memory";
        struct probe_code *code;

        built.text = probe_text(m, fragment, loosen, &built.text_size);
        compile(name, &built);
        if (edit && edit(built.cubin, built.cubin_size) < 0)
                splice_die(name, "its machine code is not what was expected");
        if (probe_code_extract(built.cubin, built.cubin_size, &code, &why) < 0)
                splice_die(name, why);
        *ret_built = built;
        return code;
}

struct probe_code *splice_build_probe(const struct probe_memory *m, const char *name,
                                      const char *fragment, splice_edit *edit,
                                      struct splice_built *ret_built)
{
        struct splice_built built;
        struct probe_code *code = build(m, name, fragment, edit, false, &built);

        if (probe_code_exit_refusal(code) && strstr(fragment, "@O@")) {
                splice_built_done(&built);
                probe_code_free(code);
                code = build(m, name, fragment, edit, true, &built);
        }
        if (ret_built)
                *ret_built = built;
        else
                splice_built_done(&built);
        return code;
}
