/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cubin.h"
#include "fatbin.h"
#include "found_index.h"
#include "grow.h"
#include "image_memory.h"
#include "images.h"
#include "memory_map.h"
#include "monotonic.h"
#include "ptx_lex.h"

#define SECTIONS_MAX  8
#define SECTION_NAMES (1u << 20) /* bytes of section names that are looked at */
#define KERNELS_MAX   (1u << 22)
#define ALIGNMENT     8

struct container {
        const uint8_t *bytes;
        size_t size;
        uint32_t kernel_count;
};

struct entry {
        uint64_t name;
        uint32_t container;
};

struct found_index {
        struct container *containers;
        size_t container_count;
        struct entry *entries; /* by name, in the end */
        size_t entry_count;
        uint32_t sm;
        uint64_t until_ns;
        bool stopped; /* not all of it was looked at */
};

/* ---- sections of a file ---- */

static bool read_at(int fd, void *to, size_t size, uint64_t offset)
{
        return offset <= INT64_MAX && pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

static bool is_fatbin(const char *names, size_t size, uint32_t at)
{
        static const char section[] = ".nv_fatbin";

        return at < size && size - at >= sizeof(section) &&
               memcmp(names + at, section, sizeof(section)) == 0;
}

static int pick_sections(int fd, const Elf64_Ehdr *h, const char *names, size_t names_size,
                         struct found_section *ret_sections, size_t max)
{
        size_t count = 0;
        Elf64_Shdr s;

        for (unsigned i = 0; i < h->e_shnum && count < max; i++) {
                if (!read_at(fd, &s, sizeof(s), h->e_shoff + i * sizeof(s)))
                        return -EINVAL;
                if (s.sh_type == SHT_PROGBITS && is_fatbin(names, names_size, s.sh_name))
                        ret_sections[count++] = (struct found_section){s.sh_offset, s.sh_size};
        }
        return (int)count;
}

int found_sections(int fd, struct found_section *ret_sections, size_t max)
{
        Elf64_Shdr names;
        Elf64_Ehdr h;
        char *text;
        int r = -EINVAL;

        if (!read_at(fd, &h, sizeof(h), 0) || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 ||
            h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_shentsize != sizeof(Elf64_Shdr) ||
            h.e_shstrndx >= h.e_shnum ||
            !read_at(fd, &names, sizeof(names), h.e_shoff + h.e_shstrndx * sizeof(names)) ||
            names.sh_size > SECTION_NAMES)
                return -EINVAL;
        text = malloc(names.sh_size + 1);
        if (!text)
                return -ENOMEM;
        if (read_at(fd, text, names.sh_size, names.sh_offset))
                r = pick_sections(fd, &h, text, names.sh_size, ret_sections, max);
        free(text);
        return r;
}

/* ---- kernels of an image ---- */

static bool cubin_kernels(const void *bytes, size_t size, bool (*add)(void *, uint64_t), void *data)
{
        struct cubin c;
        bool good = true;

        if (cubin_open(bytes, size, &c, NULL) < 0)
                return false;
        for (size_t i = 0; good && i < c.symbol_count; i++) {
                Elf64_Sym s;

                cubin_symbol(&c, i, &s);
                if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_other & CUBIN_KERNEL_FLAG)
                        good = add(data, image_name(cubin_symbol_name(&c, &s)));
        }
        cubin_done(&c);
        return good;
}

static bool ptx_kernels(const char *text, size_t size, bool (*add)(void *, uint64_t), void *data)
{
        struct ptx_lexer l = {.text = text, .size = size};
        struct ptx_token t = ptx_next(&l);
        bool good = true;

        while (good && t.kind != PTX_END && t.kind != PTX_BAD) {
                bool entry = ptx_is(&l, &t, ".entry");

                t = ptx_next(&l);
                if (entry && t.kind == PTX_WORD) {
                        char *name = strndup(text + t.start, t.size);

                        good = name && add(data, image_name(name));
                        free(name);
                }
        }
        return good && t.kind == PTX_END;
}

bool found_kernels(const void *bytes, size_t size, bool is_ptx,
                   bool (*add)(void *data, uint64_t name), void *data)
{
        return is_ptx ? ptx_kernels(bytes, strnlen(bytes, size), add, data)
                      : cubin_kernels(bytes, size, add, data);
}

/* ---- making it ---- */

static bool add_kernel(void *data, uint64_t name)
{
        struct found_index *f = data;

        if (f->entry_count >= KERNELS_MAX ||
            !grow((void **)&f->entries, f->entry_count, sizeof(*f->entries)))
                return false;
        f->entries[f->entry_count++] = (struct entry){name, (uint32_t)f->container_count};
        f->containers[f->container_count].kernel_count++;
        return true;
}

/* What the driver would take of the container, as an image of its own. */
static void add_container(struct found_index *f, const struct fatbin *b)
{
        struct fatbin_entry entries[FATBIN_CANDIDATES_MAX];
        size_t before = f->entry_count, size;
        void *bytes = NULL;

        if (fatbin_choose(b, f->sm, entries, FATBIN_CANDIDATES_MAX) < 1 ||
            !grow((void **)&f->containers, f->container_count, sizeof(*f->containers)) ||
            fatbin_unpack(&entries[0], &bytes, &size) < 0)
                return;
        f->containers[f->container_count] = (struct container){.bytes = b->bytes, .size = b->size};
        if (found_kernels(bytes, size, entries[0].kind == FATBIN_KIND_PTX, add_kernel, f))
                f->container_count++;
        else
                f->entry_count = before;
        image_memory_free(bytes);
}

static void add_section(struct found_index *f, const uint8_t *bytes, size_t size)
{
        size_t at = 0;

        while (size - at >= sizeof(uint64_t) && !f->stopped) {
                struct fatbin b;

                if (fatbin_open_bytes(bytes + at, size - at, &b) == 0 &&
                    b.form == FATBIN_CONTAINER) {
                        add_container(f, &b);
                        at += b.size;
                } else {
                        at += ALIGNMENT;
                }
                at = (at + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
                if (at > size)
                        break;
                f->stopped = now_ns() > f->until_ns;
        }
}

/* The file behind a mapping; another one at its path tells places where no container is. */
static int open_file(const struct memory_mapping *m)
{
        int fd = m->path[0] == '/' ? open(m->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
        struct stat st;

        if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
                close(fd);
                return -1;
        }
        return fd;
}

/* Sections whose beginning lies in this mapping. */
static void add_mapping(struct found_index *f, const struct memory_mapping *m)
{
        struct found_section sections[SECTIONS_MAX];
        int fd = open_file(m), count;

        if (fd < 0)
                return;
        count = found_sections(fd, sections, SECTIONS_MAX);
        close(fd);
        for (int i = 0; i < count; i++) {
                uint64_t from = sections[i].offset - m->offset;

                if (sections[i].offset < m->offset || from >= m->end - m->start ||
                    sections[i].bytes > m->end - m->start - from)
                        continue;
                add_section(f, (const uint8_t *)m->start + from, (size_t)sections[i].bytes);
        }
}

static bool on_mapping(void *data, const struct memory_mapping *m)
{
        struct found_index *f = data;

        if (m->readable && !m->writable && m->inode)
                add_mapping(f, m);
        return !f->stopped;
}

static int compare(const void *a, const void *b)
{
        const struct entry *x = a, *y = b;

        return x->name != y->name ? (x->name < y->name ? -1 : 1)
                                  : (x->container > y->container) - (x->container < y->container);
}

struct found_index *found_index_new(uint32_t sm, unsigned timeout_ms)
{
        struct found_index *f = calloc(1, sizeof(*f));

        if (!f)
                return NULL;
        f->sm = sm;
        f->until_ns = now_ns() + timeout_ms * 1000000ull;
        memory_mappings_each(on_mapping, f);
        if (f->entry_count)
                qsort(f->entries, f->entry_count, sizeof(*f->entries), compare);
        return f;
}

/* ---- asking it ---- */

/* The first entry of a name, or the end. */
static size_t first_entry(const struct found_index *f, uint64_t name)
{
        size_t low = 0, high = f->entry_count;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (f->entries[middle].name < name)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static bool has(const struct found_index *f, uint32_t container, uint64_t name)
{
        for (size_t i = first_entry(f, name); i < f->entry_count && f->entries[i].name == name; i++)
                if (f->entries[i].container == container)
                        return true;
        return false;
}

static bool fits(const struct found_index *f, uint32_t container, const char *const *names,
                 size_t count, bool complete)
{
        if (complete && f->containers[container].kernel_count != count)
                return false;
        for (size_t i = 0; i < count; i++)
                if (!has(f, container, image_name(names[i])))
                        return false;
        return true;
}

static bool same(const struct container *a, const struct container *b)
{
        return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

const char *found_index_look_up(const struct found_index *f, const char *const *names, size_t count,
                                bool complete, struct found_image *ret_image)
{
        const struct container *found = NULL;
        uint64_t name = count ? image_name(names[0]) : 0;

        for (size_t i = count ? first_entry(f, name) : f->entry_count;
             i < f->entry_count && f->entries[i].name == name; i++) {
                const struct container *c = &f->containers[f->entries[i].container];

                if (!fits(f, f->entries[i].container, names, count, complete))
                        continue;
                if (found && !same(found, c))
                        return "loaded before attach, and several images could be it";
                found = c;
        }
        if (!found)
                return f->stopped ? "loaded before attach, looking for it took too long"
                                  : "loaded before attach, image not found";
        *ret_image = (struct found_image){found->bytes, found->size};
        return NULL;
}
