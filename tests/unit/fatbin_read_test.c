/* SPDX-License-Identifier: Apache-2.0 */

/* Reading what applications hand to the driver: every form and packing, and broken ones. */
#include <errno.h>

#include <lz4.h>

#include "agent/cubin.h"
#include "agent/fatbin.h"
#include "agent/image_memory.h"
#include "unit/test.h"
#include "unit/test_file.h"

static const char *data_dir;

struct file {
        uint8_t *bytes;
        size_t size;
};

static struct file load(const char *name)
{
        char path[4096];
        struct file f;

        snprintf(path, sizeof(path), "%s/%s", data_dir, name);
        f.bytes = test_read_file(path, &f.size);
        f.bytes = realloc(f.bytes, f.size + 1); /* PTX text ends with a NUL */
        CHECK(f.bytes);
        f.bytes[f.size] = '\0';
        return f;
}

/* An entry's bytes must be the same cubin whatever it was packed with. */
static void check_cubin(const struct fatbin_entry *e, const struct file *wanted)
{
        size_t size;
        void *bytes;

        CHECK_EQ(fatbin_unpack(e, &bytes, &size), 0);
        CHECK_EQ(size, wanted->size);
        CHECK(memcmp(bytes, wanted->bytes, size) == 0);
        image_memory_free(bytes);
}

static void test_packings(void)
{
        static const struct {
                const char *name;
                enum fatbin_packing ptx, cubin;
        } modes[] = {{"none.fatbin", FATBIN_RAW, FATBIN_RAW},
                     {"speed.fatbin", FATBIN_LZ4, FATBIN_RAW},
                     {"size.fatbin", FATBIN_ZSTD, FATBIN_ZSTD}};
        struct file tiny = load("tiny.cubin");

        for (size_t m = 0; m < 3; m++) {
                struct file f = load(modes[m].name);
                struct fatbin_entry e, chosen[2];
                size_t offset = 0, size, ptx = 0, elf = 0;
                struct fatbin fb;
                void *text;

                CHECK_EQ(fatbin_open_bytes(f.bytes, f.size, &fb), 0);
                CHECK_EQ(fb.form, FATBIN_CONTAINER);
                CHECK_EQ(fb.size, f.size);
                while (fatbin_next(&fb, &offset, &e) == 1) {
                        if (e.kind == FATBIN_KIND_PTX) {
                                CHECK_EQ(e.packing, modes[m].ptx);
                                CHECK_EQ(e.arch, 80);
                                CHECK_EQ(fatbin_unpack(&e, &text, &size), 0);
                                CHECK_EQ(strlen(text), size);
                                CHECK(strstr(text, ".target sm_80"));
                                image_memory_free(text);
                                ptx++;
                        } else {
                                CHECK_EQ(e.packing, modes[m].cubin);
                                elf++;
                        }
                }
                CHECK_EQ(ptx, 1);
                CHECK_EQ(elf, 2);
                CHECK_EQ(fatbin_choose(&fb, 90, chosen, 2), 1);
                CHECK_EQ(chosen[0].arch, 90);
                check_cubin(&chosen[0], &tiny);
                free(f.bytes);
        }
        free(tiny.bytes);
}

static void test_choice(void)
{
        struct file f = load("none.fatbin");
        struct fatbin_entry e[2];
        struct fatbin fb;

        CHECK_EQ(fatbin_open_bytes(f.bytes, f.size, &fb), 0);
        /* machine code of the same major, the highest minor not above */
        CHECK_EQ(fatbin_choose(&fb, 80, e, 2), 1);
        CHECK(e[0].kind == FATBIN_KIND_ELF && e[0].arch == 80);
        CHECK_EQ(fatbin_choose(&fb, 89, e, 2), 1);
        CHECK(e[0].kind == FATBIN_KIND_ELF && e[0].arch == 80);
        /* else PTX that is not too new */
        CHECK_EQ(fatbin_choose(&fb, 100, e, 2), 1);
        CHECK(e[0].kind == FATBIN_KIND_PTX && e[0].arch == 80);
        CHECK_EQ(fatbin_choose(&fb, 75, e, 2), -ENOENT);
        /* The PTX of a device link is not all the driver has. */
        fb.linked = true;
        CHECK_EQ(fatbin_choose(&fb, 100, e, 2), -ENOENT);
        CHECK_EQ(fatbin_choose(&fb, 90, e, 2), 1);
        free(f.bytes);
}

/* sm_90 beside sm_90a: both, and a container to leave the choice to the driver. */
static void test_variants(void)
{
        struct file f = load("variants.fatbin"), tiny = load("tiny.cubin");
        struct fatbin_entry e[2], again[2];
        struct fatbin_part parts[2];
        struct fatbin fb, out_fb;
        size_t size, variants = 0;
        void *out;

        CHECK_EQ(fatbin_open_bytes(f.bytes, f.size, &fb), 0);
        CHECK_EQ(fatbin_choose(&fb, 90, e, 1), -ENOBUFS);
        CHECK_EQ(fatbin_choose(&fb, 90, e, 2), 2);
        CHECK(e[0].arch_specific != e[1].arch_specific);
        for (size_t k = 0; k < 2; k++)
                parts[k] = (struct fatbin_part){&e[k], tiny.bytes, tiny.size};
        CHECK_EQ(fatbin_repack(&fb, parts, 2, &out, &size), 0);
        CHECK_EQ(fatbin_open_bytes(out, size, &out_fb), 0);
        CHECK_EQ(out_fb.size, size);
        CHECK_EQ(fatbin_choose(&out_fb, 90, again, 2), 2);
        for (size_t k = 0; k < 2; k++) {
                CHECK_EQ(again[k].packing, FATBIN_RAW);
                CHECK_EQ(again[k].arch_specific, e[k].arch_specific);
                CHECK(again[k].payload_bytes >= tiny.size);
                CHECK(memcmp(again[k].payload, tiny.bytes, tiny.size) == 0);
                variants += again[k].arch_specific;
        }
        CHECK_EQ(variants, 1);
        image_memory_free(out);
        /* Only what the arch-specific variant was made for may run it. */
        CHECK_EQ(fatbin_choose(&fb, 91, e, 2), 1);
        CHECK(!e[0].arch_specific);
        free(f.bytes);
        free(tiny.bytes);
}

/* Machine code as an LZ4 block, which compilers before the current one wrote. */
static void test_lz4_cubin(void)
{
        struct file f = load("none.fatbin"), tiny = load("tiny.cubin");
        int room = LZ4_compressBound((int)tiny.size), packed;
        uint8_t *image = calloc(1, 16 + 64 + (size_t)room + 8);
        struct fatbin_entry e, old[1];
        struct fatbin fb;
        uint64_t v;

        CHECK(image);
        CHECK_EQ(fatbin_open_bytes(f.bytes, f.size, &fb), 0);
        CHECK_EQ(fatbin_choose(&fb, 90, old, 1), 1);
        packed = LZ4_compress_default((const char *)tiny.bytes, (char *)image + 80, (int)tiny.size,
                                      room);
        CHECK(packed > 0);
        memcpy(image, f.bytes, 16);
        memcpy(image + 16, old[0].header, 64);
        v = 64 + (((uint64_t)packed + 7) & ~7ULL);
        memcpy(image + 8, &v, 8); /* the container's body */
        v -= 64;
        memcpy(image + 16 + 8, &v, 8); /* payload with padding */
        memcpy(image + 16 + 16, &packed, 4);
        v = old[0].flags | 0x2000;
        memcpy(image + 16 + 40, &v, 8);
        v = tiny.size;
        memcpy(image + 16 + 56, &v, 8);
        CHECK_EQ(fatbin_open(image, &fb), 0);
        CHECK_EQ(fatbin_choose(&fb, 90, &e, 1), 1);
        CHECK_EQ(e.packing, FATBIN_LZ4);
        check_cubin(&e, &tiny);
        /* one byte more than there is */
        v = tiny.size + 1;
        memcpy(image + 16 + 56, &v, 8);
        CHECK_EQ(fatbin_choose(&fb, 90, &e, 1), 1);
        CHECK_EQ(fatbin_unpack(&e, &(void *){NULL}, &(size_t){0}), -EINVAL);
        free(image);
        free(f.bytes);
        free(tiny.bytes);
}

static void test_bare_images(void)
{
        struct file tiny = load("tiny.cubin"), ptx = load("tiny.ptx");
        struct fatbin_entry e;
        struct fatbin fb;

        /* No size is given: the ELF tables tell, exactly. */
        CHECK_EQ(fatbin_open(tiny.bytes, &fb), 0);
        CHECK_EQ(fb.form, FATBIN_CUBIN);
        CHECK_EQ(fb.size, tiny.size);
        CHECK_EQ(fatbin_choose(&fb, 90, &e, 1), 1);
        check_cubin(&e, &tiny);
        CHECK_EQ(fatbin_open_bytes(tiny.bytes, tiny.size - 1, &fb), -EINVAL);

        CHECK_EQ(fatbin_open(ptx.bytes, &fb), 0);
        CHECK_EQ(fb.form, FATBIN_PTX_TEXT);
        CHECK_EQ(fb.size, strlen((char *)ptx.bytes));
        CHECK_EQ(fatbin_choose(&fb, 90, &e, 1), 1);
        CHECK_EQ(e.kind, FATBIN_KIND_PTX);
        free(tiny.bytes);
        free(ptx.bytes);
}

static void test_text_beginnings(void)
{
        static const struct {
                const char *text;
                int r;
        } cases[] = {
                {".version 8.0", 0},
                {"//\n//\n\t .version 8.0", 0},
                {"/* a * / b **/ /* */.version 8.0", 0},
                {"", -EINVAL},
                {" ", -EINVAL},
                {"/", -EINVAL},
                {"//", -EINVAL},
                {"/* not closed .version 8.0", -EINVAL},
                {".versio", -EINVAL},
                {"\x7f", -EINVAL},
                {"P", -EINVAL},
                {"BC\xc0\xde", -EINVAL},
        };

        for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
                char *copy = strdup(cases[k].text); /* so that a sanitizer sees the end */
                struct fatbin fb;

                CHECK_EQ(fatbin_open_bytes(copy, strlen(copy), &fb), cases[k].r);
                if (copy[0] != '\x7f' && copy[0] != 'P') /* those promise a header */
                        CHECK_EQ(fatbin_open(copy, &fb), cases[k].r);
                free(copy);
        }
        CHECK_EQ(fatbin_open(NULL, &(struct fatbin){0}), -EINVAL);
}

static void test_wrapper(void)
{
        struct file f = load("none.fatbin");
        struct {
                uint32_t magic, version;
                const void *container, *objects;
        } w = {0x466243b1, 1, f.bytes, NULL};
        struct fatbin fb;

        CHECK_EQ(fatbin_open(&w, &fb), 0);
        CHECK(fb.bytes == f.bytes && fb.size == f.size && !fb.linked);
        w.version = 2;
        CHECK_EQ(fatbin_open(&w, &fb), 0);
        CHECK(fb.linked);
        w.version = 3;
        CHECK_EQ(fatbin_open(&w, &fb), -EINVAL);
        w.version = 1;
        w.container = NULL;
        CHECK_EQ(fatbin_open(&w, &fb), -EINVAL);
        /* A pointer in a file means nothing. */
        w.container = f.bytes;
        CHECK_EQ(fatbin_open_bytes(&w, sizeof(w), &fb), -EINVAL);
        free(f.bytes);
}

static void test_broken_containers(void)
{
        struct file f = load("size.fatbin");
        struct fatbin_entry e;
        struct fatbin fb;
        size_t offset;
        uint64_t big = 1ULL << 62;

        /* an entry that is longer than its container */
        memcpy(f.bytes + 16 + 8, &big, 8);
        CHECK_EQ(fatbin_open_bytes(f.bytes, f.size, &fb), 0);
        offset = 0;
        CHECK_EQ(fatbin_next(&fb, &offset, &e), -EINVAL);
        CHECK_EQ(fatbin_choose(&fb, 90, &e, 1), -EINVAL);
        /* a container longer than anything */
        memcpy(f.bytes + 8, &big, 8);
        CHECK_EQ(fatbin_open(f.bytes, &fb), -EINVAL);
        free(f.bytes);

        f = load("size.fatbin");
        CHECK_EQ(fatbin_open_bytes(f.bytes, f.size, &fb), 0);
        CHECK_EQ(fatbin_choose(&fb, 90, &e, 1), 1);
        e.bytes = 3UL << 30; /* promises more than anybody would */
        CHECK_EQ(fatbin_unpack(&e, &(void *){NULL}, &(size_t){0}), -EFBIG);
        e.bytes = 100;
        CHECK_EQ(fatbin_unpack(&e, &(void *){NULL}, &(size_t){0}), -EINVAL);
        e.packing = FATBIN_PACKING_UNKNOWN;
        CHECK_EQ(fatbin_unpack(&e, &(void *){NULL}, &(size_t){0}), -ENOTSUP);
        free(f.bytes);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        data_dir = argv[1];
        TEST(test_packings);
        TEST(test_choice);
        TEST(test_variants);
        TEST(test_lz4_cubin);
        TEST(test_bare_images);
        TEST(test_text_beginnings);
        TEST(test_wrapper);
        TEST(test_broken_containers);
        return 0;
}
