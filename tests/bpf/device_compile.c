/* SPDX-License-Identifier: Apache-2.0 */

/*
 * device_compile OBJECT [--module KERNEL_ID]: print the names of the maps and the PTX of every
 * program of a device object, for developers and tests. With --module each fragment is made
 * into a kernel called after its program, tokens replaced (the maps by example
 * addresses): what ptxas takes. Exits with 77 where device programs cannot be loaded.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "agent/arch.h"
#include "agent/splice.h"
#include "bpf/device_tools.h"
#include "device/device_abi.h"
#include "device/program.h"
#include "util/macro.h"

#define EXAMPLE_DEVICE_ADDRESS UINT64_C(0x7f1234000000)

static void print_fragments(const struct device_object *o)
{
        printf("// maps:");
        for (size_t i = 0; i < device_object_map_count(o); i++)
                printf(" %s", device_object_map(o, i)->name);
        printf("\n");
        for (size_t i = 0; i < device_object_program_count(o); i++)
                printf("// %s\n%s", device_object_program(o, i)->name,
                       device_object_program(o, i)->ptx);
}

static void print_module(const struct device_object *o, const char *kernel_id)
{
        uint64_t maps[8] = {};
        const struct device_values values = {.kernel_id = kernel_id,
                                             .context = arch_sm90.grid.context,
                                             .queue = SPLICE_QUEUE,
                                             .maps = maps};

        for (size_t i = 0; i < device_object_map_count(o); i++)
                maps[i] = device_object_map(o, i)->placement == GPUOBS_PLACE_HOST
                                  ? DEVICE_RING_ADDRESS
                                  : EXAMPLE_DEVICE_ADDRESS + i * 0x1000000;
        for (size_t i = 0; i < device_object_program_count(o); i++) {
                const struct device_program_info *p = device_object_program(o, i);
                _cleanup_free_ char *text = device_make_kernel(p->ptx, p->name, &values, i == 0);

                fputs(text, stdout);
        }
}

int main(int argc, char **argv)
{
        _cleanup_free_ char *elf = NULL;
        struct device_object *o;
        char error[1024];
        size_t bytes;
        int result;

        if (argc != 2 && !(argc == 4 && !strcmp(argv[2], "--module"))) {
                fprintf(stderr, "usage: device_compile OBJECT [--module KERNEL_ID]\n");
                return 2;
        }
        elf = device_read_file(argv[1], &bytes);
        if (!elf) {
                fprintf(stderr, "cannot read %s\n", argv[1]);
                return 2;
        }
        libbpf_set_print(NULL);
        result = device_object_load(elf, bytes, NULL, error, sizeof(error), &o);
        if (result) {
                fprintf(stderr, "%s\n", error);
                return result == -EPERM ? 77 : 1;
        }
        if (argc == 4)
                print_module(o, argv[3]);
        else
                print_fragments(o);
        device_object_free(o);
        return 0;
}
