/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "image_memory.h"

#define OSABI_CUDA   0x33
#define OSABI_CUDA13 0x41

static int fail(int error, const char *why, const char **ret_reason)
{
        if (ret_reason)
                *ret_reason = why;
        return error;
}

static bool inside(uint64_t offset, uint64_t bytes, size_t size)
{
        return offset <= size && bytes <= size - offset;
}

static bool takes_room(const Elf64_Shdr *s)
{
        return s->sh_type != SHT_NULL && s->sh_type != SHT_NOBITS &&
               s->sh_type != CUBIN_SHARED_TYPE;
}

/* Which of the two forms it is, and for which architecture. */
static int read_abi(struct cubin *c)
{
        const unsigned char *ident = c->header.e_ident;

        if (ident[EI_OSABI] == OSABI_CUDA && ident[EI_ABIVERSION] == 7) {
                c->sm = c->header.e_flags & 0xff;
                c->registers_in_section = true;
                return 0;
        }
        if (ident[EI_OSABI] == OSABI_CUDA13 && ident[EI_ABIVERSION] == 8) {
                c->sm = c->header.e_flags >> 8 & 0xff;
                c->registers_in_section = false;
                return 0;
        }
        return -ENOTSUP;
}

static int read_sections(struct cubin *c)
{
        size_t n = c->header.e_shnum;

        c->sections = malloc(n * sizeof(*c->sections));
        if (!c->sections)
                return -ENOMEM;
        memcpy(c->sections, c->bytes + c->header.e_shoff, n * sizeof(*c->sections));
        for (size_t i = 0; i < n; i++) {
                const Elf64_Shdr *s = &c->sections[i];

                if (takes_room(s) && !inside(s->sh_offset, s->sh_size, c->size))
                        return -EINVAL;
                if (s->sh_type == SHT_SYMTAB && !c->symtab) {
                        if (s->sh_entsize != sizeof(Elf64_Sym) || s->sh_link >= n)
                                return -EINVAL;
                        c->symtab = (uint32_t)i;
                        c->symbol_count = s->sh_size / sizeof(Elf64_Sym);
                }
        }
        return 0;
}

int cubin_open(const void *bytes, size_t size, struct cubin *ret_cubin, const char **ret_reason)
{
        struct cubin c = {.bytes = bytes, .size = size};
        const Elf64_Ehdr *h = &c.header;
        int r;

        if (size < sizeof(c.header) || memcmp(bytes, ELFMAG, SELFMAG) != 0)
                return fail(-EINVAL, "not an ELF file", ret_reason);
        memcpy(&c.header, bytes, sizeof(c.header));
        if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
            h->e_machine != CUBIN_MACHINE)
                return fail(-EINVAL, "not machine code for a CUDA device", ret_reason);
        if (h->e_shnum == 0 || h->e_shentsize != sizeof(Elf64_Shdr) ||
            h->e_shstrndx >= h->e_shnum || (h->e_phnum && h->e_phentsize != sizeof(Elf64_Phdr)) ||
            !inside(h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr), size) ||
            !inside(h->e_phoff, (uint64_t)h->e_phnum * sizeof(Elf64_Phdr), size))
                return fail(-EINVAL, "broken ELF tables", ret_reason);
        if (read_abi(&c) < 0)
                return fail(-ENOTSUP, "a cubin of an unknown ABI version", ret_reason);
        r = read_sections(&c);
        if (r < 0) {
                cubin_done(&c);
                return fail(r, r == -ENOMEM ? "out of memory" : "broken ELF sections", ret_reason);
        }
        *ret_cubin = c;
        return 0;
}

void cubin_done(struct cubin *c)
{
        free(c->sections);
        c->sections = NULL;
}

/* A NUL-terminated string in a string table, or "". */
static const char *string_at(const struct cubin *c, size_t table, uint64_t offset)
{
        size_t size;
        const uint8_t *bytes = cubin_section_bytes(c, table, &size);

        if (offset >= size || !memchr(bytes + offset, 0, size - offset))
                return "";
        return (const char *)bytes + offset;
}

const char *cubin_section_name(const struct cubin *c, size_t section)
{
        return string_at(c, c->header.e_shstrndx, c->sections[section].sh_name);
}

void cubin_symbol(const struct cubin *c, size_t i, Elf64_Sym *ret_symbol)
{
        memcpy(ret_symbol, c->bytes + c->sections[c->symtab].sh_offset + i * sizeof(*ret_symbol),
               sizeof(*ret_symbol));
}

const char *cubin_symbol_name(const struct cubin *c, const Elf64_Sym *symbol)
{
        return string_at(c, c->sections[c->symtab].sh_link, symbol->st_name);
}

bool cubin_launches(const struct cubin *c)
{
        Elf64_Sym symbol;
        const char *name;

        for (size_t i = 0; i < c->symbol_count; i++) {
                cubin_symbol(c, i, &symbol);
                name = cubin_symbol_name(c, &symbol);
                /* The runtime's function, and the driver's that it calls. */
                if ((!strncmp(name, "__cudaCDP", 9) || !strncmp(name, "__cuda_syscall_cnp", 18) ||
                     !strncmp(name, "cudaLaunch", 10)) &&
                    strstr(name, "LaunchDevice"))
                        return true;
        }
        return false;
}

const uint8_t *cubin_section_bytes(const struct cubin *c, size_t section, size_t *ret_size)
{
        const Elf64_Shdr *s = &c->sections[section];

        *ret_size = takes_room(s) ? s->sh_size : 0;
        return takes_room(s) ? c->bytes + s->sh_offset : c->bytes;
}

int cubin_next_attribute(const uint8_t *info, size_t size, size_t *offset,
                         struct cubin_attribute *ret_attribute)
{
        struct cubin_attribute a = {.offset = *offset, .bytes = 4};

        if (*offset >= size)
                return 0;
        if (size - *offset < 4)
                return -EINVAL;
        a.format = info[*offset];
        a.id = info[*offset + 1];
        memcpy(&a.value, info + *offset + 2, 2);
        if (a.format == CUBIN_FORMAT_SIZED) {
                if (size - *offset - 4 < a.value)
                        return -EINVAL;
                a.data = info + *offset + 4;
                a.bytes += a.value;
        } else if (a.format == 0 || a.format > CUBIN_FORMAT_SIZED) {
                return -EINVAL;
        }
        *offset += a.bytes;
        *ret_attribute = a;
        return 1;
}

/*
 * Rebuilding. The file is a sequence of pieces: the ELF header, the two tables,
 * the sections. Pieces keep their order and alignment and what lies between them,
 * so that a file in which no size changes is rebuilt byte for byte.
 */
enum piece_kind {
        PIECE_HEADER,
        PIECE_SECTION,
        PIECE_SECTION_TABLE,
        PIECE_PROGRAM_TABLE,
};

struct piece {
        enum piece_kind kind;
        uint32_t section;
        uint64_t old_offset, old_size;
        uint64_t new_offset, new_size;
        uint64_t alignment;
        uint64_t gap; /* bytes before it that belong to no piece */
};

static int by_place(const void *a, const void *b)
{
        const struct piece *p = a, *q = b;

        if (p->old_offset != q->old_offset)
                return p->old_offset < q->old_offset ? -1 : 1;
        if (p->old_size != q->old_size) /* empty pieces first */
                return p->old_size < q->old_size ? -1 : 1;
        return p->section < q->section ? -1 : p->section > q->section;
}

static uint64_t section_alignment(const Elf64_Shdr *s)
{
        uint64_t a = s->sh_addralign;

        return a && (a & (a - 1)) == 0 && a <= 4096 ? a : 1;
}

static struct piece table_piece(enum piece_kind kind, uint64_t offset, uint64_t size)
{
        return (struct piece){
                .kind = kind,
                .old_offset = offset,
                .old_size = size,
                .new_size = size,
                .alignment = 8,
        };
}

static size_t list_pieces(const struct cubin *c, const uint64_t *sizes, struct piece *pieces)
{
        const Elf64_Ehdr *h = &c->header;
        size_t n = 0;

        pieces[n++] = table_piece(PIECE_HEADER, 0, sizeof(*h));
        pieces[n++] = table_piece(PIECE_SECTION_TABLE, h->e_shoff,
                                  (uint64_t)h->e_shnum * sizeof(Elf64_Shdr));
        if (h->e_phnum)
                pieces[n++] = table_piece(PIECE_PROGRAM_TABLE, h->e_phoff,
                                          (uint64_t)h->e_phnum * sizeof(Elf64_Phdr));
        for (uint32_t i = 0; i < h->e_shnum; i++) {
                const Elf64_Shdr *s = &c->sections[i];

                if (s->sh_type == SHT_NULL)
                        continue;
                pieces[n++] = (struct piece){
                        .kind = PIECE_SECTION,
                        .section = i,
                        .old_offset = s->sh_offset,
                        .old_size = takes_room(s) ? s->sh_size : 0,
                        .new_size = takes_room(s) ? sizes[i] : 0,
                        .alignment = section_alignment(s),
                };
        }
        qsort(pieces, n, sizeof(*pieces), by_place);
        return n;
}

static uint64_t align_up(uint64_t n, uint64_t alignment)
{
        return (n + alignment - 1) & ~(alignment - 1);
}

/* Give every piece its new place. Pieces that overlap, or lie outside, have none. */
static int place_pieces(struct piece *pieces, size_t n, uint64_t old_size, uint64_t *ret_size)
{
        uint64_t old_end = 0, end = 0;

        for (size_t k = 0; k < n; k++) {
                struct piece *p = &pieces[k];
                uint64_t gap = p->old_offset > old_end ? p->old_offset - old_end : 0;

                if ((p->old_size && p->old_offset < old_end) || p->old_offset > old_size)
                        return -ENOTSUP;
                p->gap = gap;
                p->new_offset = end + gap;
                if (p->old_offset % p->alignment == 0)
                        p->new_offset = align_up(p->new_offset, p->alignment);
                old_end += gap + p->old_size;
                end = p->new_offset + p->new_size;
        }
        *ret_size = end + (old_size - old_end);
        return 0;
}

/*
 * The new place of a segment: it starts with a piece and ends with one or behind
 * it, or is empty.
 */
static int map_range(const struct piece *pieces, size_t n, uint64_t *start, uint64_t *size)
{
        uint64_t old_start = *start, old_end = *start + *size, slack;
        bool found = false;

        if (*size == 0)
                return 0;
        for (size_t k = 0; k < n; k++) {
                const struct piece *p = &pieces[k];

                if (!p->old_size || p->old_offset < old_start || p->old_offset >= old_end)
                        continue;
                if (!found) {
                        if (p->old_offset != old_start)
                                return -ENOTSUP;
                        *start = p->new_offset;
                        found = true;
                }
                if (p->old_offset + p->old_size > old_end)
                        return -ENOTSUP;
                /* It may end in padding behind its last piece. */
                slack = old_end - p->old_offset - p->old_size;
                *size = p->new_offset + p->new_size + slack - *start;
        }
        return found ? 0 : -ENOTSUP;
}

static int rebuild_segments(const struct cubin *c, const struct piece *pieces, size_t n,
                            uint8_t *table)
{
        for (size_t i = 0; i < c->header.e_phnum; i++) {
                uint64_t size;
                Elf64_Phdr p;

                memcpy(&p, c->bytes + c->header.e_phoff + i * sizeof(p), sizeof(p));
                if (p.p_offset > c->size || p.p_filesz > c->size - p.p_offset)
                        return -ENOTSUP;
                size = p.p_filesz;
                if (map_range(pieces, n, &p.p_offset, &size) < 0)
                        return -ENOTSUP;
                /* What follows the file's part in memory keeps its size. */
                p.p_memsz += size - p.p_filesz;
                p.p_filesz = size;
                memcpy(table + i * sizeof(p), &p, sizeof(p));
        }
        return 0;
}

static void copy_section(uint8_t *out, uint64_t new_size, const uint8_t *bytes, uint64_t old_size)
{
        uint64_t common = old_size < new_size ? old_size : new_size;

        memcpy(out, bytes, common);
        memset(out + common, 0, new_size - common);
}

static void copy_sections(const struct cubin *c, const struct piece *pieces, size_t n, uint8_t *out,
                          uint8_t *table, uint64_t *ret_offsets)
{
        memcpy(table, c->sections, c->header.e_shnum * sizeof(Elf64_Shdr));
        for (size_t k = 0; k < n; k++) {
                const struct piece *p = &pieces[k];
                Elf64_Shdr s;

                if (p->kind != PIECE_SECTION)
                        continue;
                s = c->sections[p->section];
                s.sh_offset = p->new_offset;
                if (takes_room(&s)) {
                        s.sh_size = p->new_size;
                        copy_section(out + p->new_offset, p->new_size, c->bytes + p->old_offset,
                                     p->old_size);
                }
                memcpy(table + p->section * sizeof(s), &s, sizeof(s));
                ret_offsets[p->section] = p->new_offset;
        }
}

static const struct piece *find_piece(const struct piece *pieces, size_t n, enum piece_kind kind)
{
        for (size_t k = 0; k < n; k++) {
                if (pieces[k].kind == kind)
                        return &pieces[k];
        }
        return NULL;
}

/* What lies between the pieces, and behind the last one. */
static void copy_gaps(const struct cubin *c, const struct piece *pieces, size_t n, uint8_t *out)
{
        uint64_t end = 0, old_end = 0;

        for (size_t k = 0; k < n; k++) {
                const struct piece *p = &pieces[k];

                if (p->gap)
                        memcpy(out + end, c->bytes + old_end, p->gap);
                memset(out + end + p->gap, 0, p->new_offset - end - p->gap); /* alignment */
                old_end += p->gap + p->old_size;
                end = p->new_offset + p->new_size;
        }
        memcpy(out + end, c->bytes + old_end, c->size - old_end);
}

static int write_pieces(const struct cubin *c, const struct piece *pieces, size_t n, uint8_t *out,
                        uint64_t *ret_offsets)
{
        const struct piece *sht = find_piece(pieces, n, PIECE_SECTION_TABLE);
        const struct piece *pht = find_piece(pieces, n, PIECE_PROGRAM_TABLE);
        Elf64_Ehdr h = c->header;

        if (find_piece(pieces, n, PIECE_HEADER)->new_offset != 0)
                return -ENOTSUP;
        h.e_shoff = sht->new_offset;
        if (pht)
                h.e_phoff = pht->new_offset;
        memcpy(out, &h, sizeof(h));
        copy_gaps(c, pieces, n, out);
        copy_sections(c, pieces, n, out, out + sht->new_offset, ret_offsets);
        return pht ? rebuild_segments(c, pieces, n, out + pht->new_offset) : 0;
}

int cubin_rebuild(const struct cubin *c, const uint64_t *sizes, uint64_t *ret_offsets,
                  uint8_t **ret_bytes, size_t *ret_size)
{
        struct piece *pieces = malloc((c->header.e_shnum + 3UL) * sizeof(*pieces));
        uint64_t size = 0;
        uint8_t *out = NULL;
        size_t n;
        int r;

        if (!pieces)
                return -ENOMEM;
        n = list_pieces(c, sizes, pieces);
        r = place_pieces(pieces, n, c->size, &size);
        if (r == 0) {
                out = image_memory_alloc(size);
                r = out ? write_pieces(c, pieces, n, out, ret_offsets) : -ENOMEM;
        }
        free(pieces);
        if (r < 0) {
                image_memory_free(out);
                return r;
        }
        *ret_bytes = out;
        *ret_size = size;
        return 0;
}
