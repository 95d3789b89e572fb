/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random programs for elsewhere:
 *
 *   device_random_make FIRST COUNT FILE   what the kernel makes of the programs of COUNT
 *                                         seeds, for tests/gpu/device_random
 *   device_random_make FIRST COUNT        the programs as one PTX module, for an assembler
 */
#include <unistd.h>

#include "bpf/device_tools.h"
#include "bpf/random_program.h"
#include "unit/test.h"

#define EXAMPLE_ADDRESS UINT64_C(0x7f1234000000)
#define EXAMPLE_TABLE   UINT64_C(0x7f1233000000)

static struct random_program program;

static uint64_t expected_hash(uint64_t seed, int map)
{
        struct pair_output out;
        struct pair_input in;
        int fd;

        random_program_make(seed, map, RANDOM_CONTEXT_ANYWHERE, &program);
        random_input_make(seed, &in);
        fd = pair_load(program.insns, program.count, NULL, 0);
        if (fd < 0)
                return 0;
        pair_run_kernel(fd, &in, &out);
        close(fd);
        return random_output_hash(&out);
}

static void write_expected(uint64_t first, uint64_t count, const char *path)
{
        struct random_expected head = {
                .magic = RANDOM_EXPECTED_MAGIC, .first = first, .count = count};
        FILE *out = fopen(path, "wb");
        int map = pair_open();

        CHECK(out && fwrite(&head, sizeof(head), 1, out) == 1);
        for (uint64_t i = 0; i < count; i++) {
                uint64_t hash = expected_hash(first + i, map);

                CHECK(fwrite(&hash, sizeof(hash), 1, out) == 1);
        }
        CHECK(fclose(out) == 0);
        pair_close();
}

static void print_module(uint64_t first, uint64_t count)
{
        for (uint64_t i = 0; i < count; i++) {
                const uint64_t maps[PAIR_MAPS] = {EXAMPLE_ADDRESS + sizeof(struct pair_output) * i,
                                                  EXAMPLE_TABLE};
                struct device_values values = {
                        .kernel_id = "77", .context = "1", .queue = "2", .maps = maps};
                char name[32], *fragment, *kernel;

                random_program_make(first + i, 0, RANDOM_CONTEXT_SIMULATED, &program);
                fragment = pair_compile(program.insns, program.count,
                                        i & 1 ? DEVICE_ENTRY : DEVICE_EXIT, NULL, NULL);
                snprintf(name, sizeof(name), "random_%" PRIu64, first + i);
                kernel = device_make_kernel(fragment, name, &values, i == 0);
                fputs(kernel, stdout);
                free(kernel);
                free(fragment);
        }
}

int main(int argc, char **argv)
{
        if (argc != 3 && argc != 4) {
                fprintf(stderr, "usage: device_random_make FIRST COUNT [FILE]\n");
                return 2;
        }
        if (argc == 4)
                write_expected(strtoull(argv[1], NULL, 0), strtoull(argv[2], NULL, 0), argv[3]);
        else
                print_module(strtoull(argv[1], NULL, 0), strtoull(argv[2], NULL, 0));
        return 0;
}
