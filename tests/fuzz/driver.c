/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs a fuzz target as an ordinary test: every file of the corpus directories
 * given as arguments, then FUZZ_RUNS (default 4000) deterministic mutations of
 * them. The sanitizers the target is built with decide what is a failure.
 */
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
        uint8_t *data;
        size_t size;
};

static struct input *inputs;
static size_t input_count;

static void add_input(const char *path)
{
        struct stat st;
        FILE *f = fopen(path, "rb");

        CHECK(f && fstat(fileno(f), &st) == 0);
        if (S_ISREG(st.st_mode)) {
                inputs = realloc(inputs, (input_count + 1) * sizeof(*inputs));
                CHECK(inputs);
                inputs[input_count].size = (size_t)st.st_size;
                inputs[input_count].data = malloc((size_t)st.st_size + 1);
                CHECK(fread(inputs[input_count].data, 1, (size_t)st.st_size, f) ==
                      (size_t)st.st_size);
                input_count++;
        }
        fclose(f);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_directory(const char *path)
{
        struct dirent **entries;
        char file[PATH_MAX];
        int n = scandir(path, &entries, NULL, by_name);

        CHECK(n >= 0);
        for (int i = 0; i < n; i++) {
                if (entries[i]->d_name[0] != '.') {
                        snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
                        add_input(file);
                }
                free(entries[i]);
        }
        free(entries);
}

/* The input in a buffer of exactly its size, so that reading past the end is seen. */
static void run_exact(const uint8_t *data, size_t size)
{
        uint8_t *copy = malloc(size ? size : 1);

        CHECK(copy);
        memcpy(copy, data, size);
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
}

static void mutate_and_run(const struct input *in, uint64_t *seed)
{
        size_t size = in->size;
        uint8_t *copy = malloc(size + 64);

        CHECK(copy);
        memcpy(copy, in->data, size);
        for (uint64_t k = 1 + test_random(seed) % 8; k && size; k--) {
                size_t at = test_random(seed) % size;
                static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, 0x20};

                switch (test_random(seed) % 5) {
                case 0:
                        copy[at] = (uint8_t)test_random(seed);
                        break;
                case 1:
                        copy[at] ^= (uint8_t)(1u << (test_random(seed) % 8));
                        break;
                case 2:
                        copy[at] = edges[test_random(seed) % sizeof(edges)];
                        break;
                case 3:
                        size = at;
                        break;
                case 4:
                        memmove(copy + at, copy + size - (size - at) / 2, (size - at) / 2);
                        break;
                }
        }
        run_exact(copy, size);
        free(copy);
}

int main(int argc, char **argv)
{
        const char *runs = getenv("FUZZ_RUNS");
        uint64_t seed = 1, n = runs ? strtoull(runs, NULL, 0) : 4000;

        for (int i = 1; i < argc; i++)
                add_directory(argv[i]);
        for (size_t i = 0; i < input_count; i++)
                run_exact(inputs[i].data, inputs[i].size);
        run_exact((const uint8_t *)"", 0);
        for (uint64_t i = 0; i < n && input_count; i++)
                mutate_and_run(&inputs[i % input_count], &seed);
        printf("ok %zu corpus files, %" PRIu64 " mutations\n", input_count, n);
        return 0;
}
