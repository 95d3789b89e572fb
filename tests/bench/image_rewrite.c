/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What rewriting images costs: unpacking, which the driver would do otherwise, and
 * splicing, in processor time; the pass over the code is shown by itself as well. Reads
 * every fatbin container of the files named (libcublas, libcudnn, ...), as the driver
 * would for sm_90. At how many kernels the programs are, and how many have more registers
 * for it, is said as well. Of a bare cubin, images of some megabytes are made: its kernels with
 * their code many times over, each time with other registers, so that packing finds
 * about as much to save as in real code.
 *
 * usage: image_rewrite ENTRY.cubin EXIT.cubin FILE...
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <lz4.h>
#include <zstd.h>

#include "agent/cubin.h"
#include "agent/fatbin.h"
#include "agent/image_memory.h"
#include "agent/splice_scan.h"
#include "unit/splice_pair.h"

#define SM          90
#define MAGIC       0xba55ed50u
#define MAX_ENTRIES 4
#define COPIES      120 /* of the code, in images that are made */
#define IMAGES      16
#define ZSTD_LEVEL  3

struct totals {
        size_t images, kernels, refused;
        size_t entries, exits, grown; /* kernels: with the one, the other, more registers */
        size_t packed_bytes, bytes, code_bytes, out_bytes;
        uint64_t unpack_ns, scan_ns, splice_ns, slowest_ns;
};

struct file {
        const uint8_t *bytes;
        size_t size;
};

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
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

static void scan_image(const void *image, size_t size, struct totals *t)
{
        struct code_marks marks = {0};
        struct cubin c;
        struct scan s;

        if (cubin_open(image, size, &c, NULL) < 0)
                return;
        for (size_t i = 1; i < c.header.e_shnum; i++) {
                const uint8_t *code;
                size_t bytes;

                if (!(c.sections[i].sh_flags & SHF_EXECINSTR))
                        continue;
                code = cubin_section_bytes(&c, i, &bytes);
                marks.count = 0;
                if (scan_code(&arch_sm90, code, (uint32_t)(bytes / INSTR_BYTES), &marks, &s) == 0)
                        t->code_bytes += bytes;
        }
        marks_done(&marks);
        cubin_done(&c);
}

/* They are given in units of 8. */
static uint32_t registers_taken(uint32_t named)
{
        return (named + 7) / 8 * 8;
}

static void one_entry(const struct fatbin_entry *e, const struct splice_pair *probes,
                      struct totals *t)
{
        struct splice_result *result = NULL;
        const char *why = NULL;
        void *cubin = NULL;
        uint64_t start = now_ns(), unpacked, spliced, scanned;
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
        scan_image(cubin, size, t);
        scanned = now_ns();
        if (result) {
                t->kernels += result->kernel_count;
                t->out_bytes += result->image_bytes;
                t->entries += splice_count(result, PAIR_ENTRY);
                t->exits += splice_count(result, PAIR_EXIT);
                for (size_t k = 0; k < result->kernel_count; k++)
                        t->grown += registers_taken(result->kernels[k].registers_after) >
                                    registers_taken(result->kernels[k].registers_before);
        }
        t->unpack_ns += unpacked - start;
        t->splice_ns += spliced - unpacked;
        t->scan_ns += scanned - spliced;
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

/* Bytes in so many nanoseconds, as MB/s. */
static double rate(size_t bytes, uint64_t ns)
{
        return (double)bytes * 1e3 / (double)(ns ?: 1);
}

static void print(const char *what, const struct totals *t)
{
        printf("%s: %zu images (%zu refused), %zu kernels, %.1f MB packed, %.1f MB, %.1f MB out, "
               "slowest image %.1f ms\n",
               what, t->images, t->refused, t->kernels, mega(t->packed_bytes), mega(t->bytes),
               mega(t->out_bytes), mega(t->slowest_ns));
        printf("  entries %zu, exits %zu, more registers %zu\n", t->entries, t->exits, t->grown);
        printf("  unpack %6.1f ms %6.0f MB/s\n  splice %6.1f ms %6.0f MB/s, %.1f us a kernel\n"
               "  total  %6.1f ms %6.0f MB/s\n  (scan  %6.1f ms %6.0f MB/s of code)\n",
               mega(t->unpack_ns), rate(t->bytes, t->unpack_ns), mega(t->splice_ns),
               rate(t->bytes, t->splice_ns), mega(t->splice_ns) * 1e3 / (double)(t->kernels ?: 1),
               mega(t->unpack_ns + t->splice_ns), rate(t->bytes, t->unpack_ns + t->splice_ns),
               mega(t->scan_ns), rate(t->code_bytes, t->scan_ns));
}

static void one_library(const char *path, const struct file *f, const struct splice_pair *probes)
{
        struct totals t = {0};
        uint32_t magic;

        for (size_t at = 0; at + sizeof(magic) <= f->size; at += 8) {
                memcpy(&magic, f->bytes + at, sizeof(magic));
                if (magic == MAGIC)
                        one_container(f->bytes + at, f->size - at, probes, &t);
        }
        print(path, &t);
}

static uint32_t next_random(uint32_t *state)
{
        *state = *state * 1664525 + 1013904223;
        return *state >> 16;
}

/* Copies of the first `bytes` of code behind it, much of each with other registers. */
static void multiply_code(uint8_t *code, size_t bytes, uint32_t *random)
{
        for (size_t k = bytes / INSTR_BYTES; k < COPIES * bytes / INSTR_BYTES; k++) {
                struct instr i = instr_load(code, k - bytes / INSTR_BYTES);
                const struct arch_op *op = arch_op(&arch_sm90, &i);

                if (op && !op->ur && !(op->properties & ARCH_CONTROL) && next_random(random) % 3)
                        i.lo ^= (uint64_t)(next_random(random) & 0x1f1f) << 16;
                instr_store(code, k, i);
        }
}

/* An image with the kernels of a cubin, each COPIES times as long. */
static uint8_t *make_image(const struct cubin *c, uint32_t seed, size_t *ret_size)
{
        uint64_t *sizes = calloc(2UL * c->header.e_shnum, sizeof(*sizes));
        uint64_t *offsets = sizes + c->header.e_shnum;
        uint8_t *image;

        if (!sizes)
                exit(1);
        for (size_t i = 0; i < c->header.e_shnum; i++)
                sizes[i] = c->sections[i].sh_size *
                           (c->sections[i].sh_flags & SHF_EXECINSTR ? COPIES : 1);
        if (cubin_rebuild(c, sizes, offsets, &image, ret_size) < 0) {
                fprintf(stderr, "the cubin cannot be made larger\n");
                exit(1);
        }
        for (size_t i = 1; i < c->header.e_shnum; i++)
                if (c->sections[i].sh_flags & SHF_EXECINSTR)
                        multiply_code(image + offsets[i], c->sections[i].sh_size, &seed);
        free(sizes);
        return image;
}

static struct fatbin_entry pack_image(const uint8_t *image, size_t size,
                                      enum fatbin_packing packing)
{
        size_t room = ZSTD_compressBound(size) + (size_t)LZ4_compressBound((int)size);
        struct fatbin_entry e = {.kind = FATBIN_KIND_ELF, .packing = packing, .bytes = size};
        char *packed = malloc(room);

        if (!packed)
                exit(1);
        if (packing == FATBIN_ZSTD)
                e.payload_bytes = ZSTD_compress(packed, room, image, size, ZSTD_LEVEL);
        else
                e.payload_bytes = (size_t)LZ4_compress_default((const char *)image, packed,
                                                               (int)size, (int)room);
        e.payload = (const uint8_t *)packed;
        return e;
}

static void made_image(const struct cubin *c, uint32_t seed, enum fatbin_packing packing,
                       const struct splice_pair *probes, struct totals *t)
{
        struct fatbin_entry e;
        size_t size;
        uint8_t *image = make_image(c, seed, &size);

        e = pack_image(image, size, packing);
        image_memory_free(image);
        one_entry(&e, probes, t);
        free((void *)(uintptr_t)e.payload);
}

static void made_images(const struct file *f, const struct splice_pair *probes)
{
        static const char *const names[] = {
                [FATBIN_LZ4] = "made images, lz4", [FATBIN_ZSTD] = "made images, zstd"};
        struct cubin c;

        if (cubin_open(f->bytes, f->size, &c, NULL) < 0) {
                fprintf(stderr, "not a cubin\n");
                exit(1);
        }
        for (enum fatbin_packing p = FATBIN_LZ4; p <= FATBIN_ZSTD; p++) {
                struct totals t = {0};

                for (uint32_t n = 0; n < IMAGES; n++)
                        made_image(&c, n, p, probes, &t);
                print(names[p], &t);
        }
        cubin_done(&c);
}

static void one_file(const char *path, const struct splice_pair *probes)
{
        struct file f = map_file(path);

        if (f.size >= SELFMAG && memcmp(f.bytes, ELFMAG, SELFMAG) == 0 &&
            f.size > sizeof(Elf64_Ehdr) &&
            ((const Elf64_Ehdr *)f.bytes)->e_machine == CUBIN_MACHINE)
                made_images(&f, probes);
        else
                one_library(path, &f, probes);
        munmap((void *)(uintptr_t)f.bytes, f.size);
}

int main(int argc, char **argv)
{
        struct splice_pair probes;

        if (argc < 4) {
                fprintf(stderr, "usage: %s ENTRY.cubin EXIT.cubin FILE...\n", argv[0]);
                return 2;
        }
        probes = splice_pair(load_probe(argv[1]), load_probe(argv[2]));
        for (int i = 3; i < argc; i++)
                one_file(argv[i], &probes);
        return 0;
}
