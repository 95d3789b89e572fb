/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What rewriting the images of real libraries costs: unpacking, which the driver
 * would do otherwise, and splicing. Reads every fatbin container of the files
 * named (libcublas, libcudnn, ...), as the driver would for sm_90.
 *
 * usage: image_rewrite ENTRY.cubin EXIT.cubin [LIBRARY...]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/fatbin.h"
#include "agent/image_memory.h"
#include "unit/splice_pair.h"

#define SM          90
#define MAGIC       0xba55ed50u
#define MAX_ENTRIES 4

struct totals {
        size_t images, kernels, refused;
        size_t packed_bytes, bytes, out_bytes;
        uint64_t unpack_ns, splice_ns, slowest_ns;
};

struct file {
        const uint8_t *bytes;
        size_t size;
};

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct file map_file(const char *path)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct file f = {0};
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0) {
                perror(path);
                exit(1);
        }
        f.size = (size_t)st.st_size;
        f.bytes = mmap(NULL, f.size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
        close(fd);
        if (f.bytes == MAP_FAILED) {
                perror(path);
                exit(1);
        }
        return f;
}

static struct probe_code *load_probe(const char *path)
{
        struct file f = map_file(path);
        struct probe_code *code = NULL;
        const char *why = "out of memory";

        if (probe_code_extract(f.bytes, f.size, &code, &why) < 0) {
                fprintf(stderr, "%s: %s\n", path, why);
                exit(1);
        }
        return code;
}

static void one_entry(const struct fatbin_entry *e, const struct splice_pair *probes,
                      struct totals *t)
{
        struct splice_result *result = NULL;
        const char *why = NULL;
        void *cubin = NULL;
        uint64_t start = now_ns(), unpacked, spliced;
        size_t size = 0;

        if (fatbin_unpack(e, &cubin, &size) < 0)
                return;
        unpacked = now_ns();
        t->images++;
        t->packed_bytes += e->payload_bytes;
        t->bytes += size;
        if (splice_pair_image(cubin, size, probes, 1, &result, &why) < 0)
                t->refused++;
        spliced = now_ns();
        if (result) {
                t->kernels += result->kernel_count;
                t->out_bytes += result->image_bytes;
        }
        t->unpack_ns += unpacked - start;
        t->splice_ns += spliced - unpacked;
        if (spliced - start > t->slowest_ns)
                t->slowest_ns = spliced - start;
        splice_result_free(result);
        image_memory_free(cubin);
}

static void one_container(const uint8_t *at, size_t size, const struct splice_pair *probes,
                          struct totals *t)
{
        struct fatbin_entry entries[MAX_ENTRIES];
        struct fatbin f;
        int n;

        if (fatbin_open_bytes(at, size, &f) < 0 || f.form != FATBIN_CONTAINER)
                return;
        n = fatbin_choose(&f, SM, entries, MAX_ENTRIES);
        for (int i = 0; i < n; i++)
                if (entries[i].kind == FATBIN_KIND_ELF)
                        one_entry(&entries[i], probes, t);
}

static double mega(uint64_t n)
{
        return (double)n / 1e6;
}

static void one_library(const char *path, const struct splice_pair *probes)
{
        struct file f = map_file(path);
        struct totals t = {0};
        uint32_t magic;

        for (size_t at = 0; at + sizeof(magic) <= f.size; at += 8) {
                memcpy(&magic, f.bytes + at, sizeof(magic));
                if (magic == MAGIC)
                        one_container(f.bytes + at, f.size - at, probes, &t);
        }
        printf("%s: %zu images (%zu refused), %zu kernels, %.1f MB packed, %.1f MB, %.1f MB out; "
               "unpack %.0f ms, splice %.0f ms (%.1f us a kernel), slowest image %.1f ms\n",
               path, t.images, t.refused, t.kernels, mega(t.packed_bytes), mega(t.bytes),
               mega(t.out_bytes), mega(t.unpack_ns), mega(t.splice_ns),
               mega(t.splice_ns) * 1e3 / (double)(t.kernels ?: 1), mega(t.slowest_ns));
        munmap((void *)(uintptr_t)f.bytes, f.size);
}

int main(int argc, char **argv)
{
        struct splice_pair probes;

        if (argc < 3) {
                fprintf(stderr, "usage: %s ENTRY.cubin EXIT.cubin [LIBRARY...]\n", argv[0]);
                return 2;
        }
        probes = splice_pair(load_probe(argv[1]), load_probe(argv[2]));
        for (int i = 3; i < argc; i++)
                one_library(argv[i], &probes);
        return 0;
}
