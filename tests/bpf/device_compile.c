/* SPDX-License-Identifier: Apache-2.0 */

/*
 * device_compile OBJECT [--module LITERAL_KERNEL_ID]: print the PTX of every
 * program of a device object, for developers and tests. With --module each
 * fragment is made into a kernel called after its program, tokens replaced:
 * what ptxas and the PTX interpreter take.
 */
#include <bpf/libbpf.h>
#include <inttypes.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/program.h"
#include "util/macro.h"

#define EXAMPLE_DEVICE_ADDRESS UINT64_C(0x7f1234000000)

static char *read_file(const char *path, size_t *ret_bytes)
{
        _cleanup_fclose_ FILE *f = fopen(path, "rb");
        char *data = NULL;
        long size;

        if (!f || fseek(f, 0, SEEK_END) || (size = ftell(f)) < 0)
                return NULL;
        rewind(f);
        data = malloc((size_t)size + 1);
        if (data && fread(data, 1, (size_t)size, f) != (size_t)size) {
                free(data);
                return NULL;
        }
        *ret_bytes = (size_t)size;
        return data;
}

static void print_token(const struct device_object *o, const char *token, const char *kernel_id)
{
        unsigned m;

        if (*token == 'U') {
                printf("0");
        } else if (*token == 'K') {
                printf("%s", kernel_id);
        } else if (sscanf(token, "M%u", &m) == 1) {
                bool host = device_object_map(o, m)->placement == GPUOBS_PLACE_HOST;

                printf("0x%" PRIx64,
                       (uint64_t)(host ? DEVICE_RING_ADDRESS
                                       : EXAMPLE_DEVICE_ADDRESS + m * UINT64_C(0x1000000)));
        }
}

static void print_module(const struct device_object *o, const char *kernel_id)
{
        printf(".version 8.0\n.target sm_90\n.address_size 64\n");
        for (size_t i = 0; i < device_object_program_count(o); i++) {
                const struct device_program_info *p = device_object_program(o, i);
                _cleanup_free_ char *text = strdup(p->ptx);
                char *rest = text, *part;

                printf(".visible .entry %s()\n{\n", p->name);
                for (bool token = false; (part = strsep(&rest, "@")); token = !token) {
                        /* A predicate's @ is followed by %: not a token. */
                        while (!token && rest && *rest == '%') {
                                printf("%s@", part);
                                part = strsep(&rest, "@");
                        }
                        if (token)
                                print_token(o, part, kernel_id);
                        else
                                printf("%s", part);
                }
                printf("ret;\n}\n");
        }
}

int main(int argc, char **argv)
{
        _cleanup_free_ char *elf = NULL;
        struct device_object *o;
        char error[1024];
        size_t bytes;

        if (argc < 2 || !(elf = read_file(argv[1], &bytes))) {
                fprintf(stderr, "usage: device_compile OBJECT [--module KERNEL_ID]\n");
                return 2;
        }
        libbpf_set_print(NULL);
        if (device_object_load(elf, bytes, error, sizeof(error), &o)) {
                fprintf(stderr, "%s\n", error);
                return 1;
        }
        if (argc > 3 && !strcmp(argv[2], "--module"))
                print_module(o, argv[3]);
        else
                for (size_t i = 0; i < device_object_program_count(o); i++)
                        printf("// %s\n%s", device_object_program(o, i)->name,
                               device_object_program(o, i)->ptx);
        device_object_free(o);
        return 0;
}
