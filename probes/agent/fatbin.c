/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <lz4.h>
#include <zstd.h>

#include "fatbin.h"
#include "image_memory.h"

#define CONTAINER_MAGIC 0xba55ed50u

#define CONTAINER_HEADER_MIN 16
#define ENTRY_HEADER_MIN     64

/* Offsets in an entry's header. */
#define ENTRY_KIND           0  /* u16 */
#define ENTRY_HEADER_BYTES   4  /* u32 */
#define ENTRY_PAYLOAD_BYTES  8  /* u64, padded */
#define ENTRY_PACKED_BYTES   16 /* u32, 0 when raw */
#define ENTRY_ARCH           28 /* u32 */
#define ENTRY_FLAGS          40 /* u64 */
#define ENTRY_UNPACKED_BYTES 56 /* u64, 0 when raw */

#define FLAG_PACKED_OLD    0x1000u /* a scheme older than LZ4, not understood */
#define FLAG_LZ4           0x2000u
#define FLAG_ZSTD          0x8000u
#define FLAG_PACKING       (FLAG_PACKED_OLD | FLAG_LZ4 | FLAG_ZSTD)
#define FLAG_ARCH_SPECIFIC 0x100000u

#define EXTENT_MAX   (4ULL << 30) /* of an image, by its headers */
#define UNPACKED_MAX (1ULL << 30)

static uint16_t get16(const uint8_t *p)
{
        uint16_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

static uint32_t get32(const uint8_t *p)
{
        uint32_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

static uint64_t get64(const uint8_t *p)
{
        uint64_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

static void put32(uint8_t *p, uint32_t v)
{
        memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
        memcpy(p, &v, sizeof(v));
}

static int open_container(const uint8_t *bytes, size_t limit, struct fatbin *ret_fatbin)
{
        uint64_t header, body;

        if (limit < CONTAINER_HEADER_MIN || get32(bytes) != CONTAINER_MAGIC)
                return -EINVAL;
        header = get16(bytes + 6);
        body = get64(bytes + 8);
        if (header < CONTAINER_HEADER_MIN || body > EXTENT_MAX || header + body > limit)
                return -EINVAL;
        *ret_fatbin = (struct fatbin){
                .form = FATBIN_CONTAINER,
                .bytes = bytes,
                .size = (size_t)(header + body),
                .first = (size_t)header,
        };
        return 0;
}

/* Raise *end to at least offset + size. */
static int extend(uint64_t *end, uint64_t offset, uint64_t size)
{
        if (offset > EXTENT_MAX || size > EXTENT_MAX)
                return -EINVAL;
        if (offset + size > *end)
                *end = offset + size;
        return 0;
}

/* The end of what the tables of an ELF refer to: nothing else gives its size. */
static int elf_extent(const uint8_t *bytes, uint64_t limit, uint64_t *ret_end)
{
        uint64_t end = sizeof(Elf64_Ehdr);
        Elf64_Ehdr h;

        memcpy(&h, bytes, sizeof(h));
        if ((h.e_shnum && h.e_shentsize != sizeof(Elf64_Shdr)) ||
            (h.e_phnum && h.e_phentsize != sizeof(Elf64_Phdr)))
                return -EINVAL;
        if (h.e_shnum && extend(&end, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr)) < 0)
                return -EINVAL;
        if (h.e_phnum && extend(&end, h.e_phoff, (uint64_t)h.e_phnum * sizeof(Elf64_Phdr)) < 0)
                return -EINVAL;
        if (end > limit)
                return -EINVAL;
        for (unsigned i = 0; i < h.e_shnum; i++) {
                Elf64_Shdr s;

                memcpy(&s, bytes + h.e_shoff + i * sizeof(s), sizeof(s));
                if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL &&
                    extend(&end, s.sh_offset, s.sh_size) < 0)
                        return -EINVAL;
        }
        for (unsigned i = 0; i < h.e_phnum; i++) {
                Elf64_Phdr p;

                memcpy(&p, bytes + h.e_phoff + i * sizeof(p), sizeof(p));
                if (extend(&end, p.p_offset, p.p_filesz) < 0)
                        return -EINVAL;
        }
        *ret_end = end;
        return 0;
}

static int open_cubin(const uint8_t *bytes, size_t limit, struct fatbin *ret_fatbin)
{
        uint64_t end;

        if (limit < EI_NIDENT || memcmp(bytes, ELFMAG, SELFMAG) != 0 ||
            bytes[EI_CLASS] != ELFCLASS64 || bytes[EI_DATA] != ELFDATA2LSB)
                return -EINVAL;
        if (limit < sizeof(Elf64_Ehdr) || elf_extent(bytes, limit, &end) < 0 || end > limit)
                return -EINVAL;
        *ret_fatbin = (struct fatbin){.form = FATBIN_CUBIN, .bytes = bytes, .size = (size_t)end};
        return 0;
}

/* Skip white space and comments; the position of what follows, or of the end. */
static size_t skip_blanks(const uint8_t *text, size_t limit)
{
        size_t i = 0;

        while (i < limit && text[i]) {
                if (isspace(text[i])) {
                        i++;
                } else if (text[i] == '/' && i + 1 < limit && text[i + 1] == '/') {
                        while (i < limit && text[i] && text[i] != '\n')
                                i++;
                } else if (text[i] == '/' && i + 1 < limit && text[i + 1] == '*') {
                        for (i += 2; i < limit && text[i]; i++) {
                                if (text[i] == '*' && i + 1 < limit && text[i + 1] == '/')
                                        break;
                        }
                        if (i >= limit || !text[i])
                                return i;
                        i += 2;
                } else {
                        break;
                }
        }
        return i;
}

static int open_text(const uint8_t *text, size_t limit, struct fatbin *ret_fatbin)
{
        static const char word[] = ".version";
        size_t at = skip_blanks(text, limit);

        for (size_t i = 0; i < sizeof(word) - 1; i++) {
                if (at + i >= limit || text[at + i] != (uint8_t)word[i])
                        return -EINVAL;
        }
        *ret_fatbin = (struct fatbin){
                .form = FATBIN_PTX_TEXT,
                .bytes = text,
                .size = strnlen((const char *)text, limit),
        };
        return 0;
}

/*
 * The first byte tells the forms apart, so no more than one byte is looked at
 * before a form's own headers promise more.
 */
static int open_limited(const uint8_t *image, size_t limit, struct fatbin *ret_fatbin)
{
        if (limit == 0)
                return -EINVAL;
        switch (image[0]) {
        case CONTAINER_MAGIC & 0xff:
                return open_container(image, limit, ret_fatbin);
        case ELFMAG0:
                return open_cubin(image, limit, ret_fatbin);
        default:
                return open_text(image, limit, ret_fatbin);
        }
}

int fatbin_open_bytes(const void *image, size_t size, struct fatbin *ret_fatbin)
{
        return open_limited(image, size, ret_fatbin);
}

int fatbin_open(const void *image, struct fatbin *ret_fatbin)
{
        const uint8_t *bytes = image;

        if (!bytes)
                return -EINVAL;
        if (bytes[0] == (FATBIN_WRAPPER_MAGIC & 0xff)) {
                struct fatbin_wrapper w;

                memcpy(&w, bytes, sizeof(w));
                if (w.magic != FATBIN_WRAPPER_MAGIC ||
                    (w.version != 1 && w.version != FATBIN_WRAPPER_LINKED) || !w.container)
                        return -EINVAL;
                if (open_container(w.container, SIZE_MAX, ret_fatbin) < 0)
                        return -EINVAL;
                ret_fatbin->linked = w.version == FATBIN_WRAPPER_LINKED;
                return 0;
        }
        return open_limited(bytes, SIZE_MAX, ret_fatbin);
}

static enum fatbin_packing packing_of(uint64_t flags)
{
        switch (flags & FLAG_PACKING) {
        case 0:
                return FATBIN_RAW;
        case FLAG_LZ4:
                return FATBIN_LZ4;
        case FLAG_ZSTD:
                return FATBIN_ZSTD;
        default:
                return FATBIN_PACKING_UNKNOWN;
        }
}

static int read_entry(const uint8_t *at, size_t left, struct fatbin_entry *ret_entry)
{
        struct fatbin_entry e = {.header = at};
        uint64_t payload, packed;

        if (left < ENTRY_HEADER_MIN)
                return -EINVAL;
        e.kind = get16(at + ENTRY_KIND);
        e.header_bytes = get32(at + ENTRY_HEADER_BYTES);
        payload = get64(at + ENTRY_PAYLOAD_BYTES);
        packed = get32(at + ENTRY_PACKED_BYTES);
        if (e.header_bytes < ENTRY_HEADER_MIN || e.header_bytes > left ||
            payload > left - e.header_bytes || packed > payload)
                return -EINVAL;
        e.arch = get32(at + ENTRY_ARCH);
        e.flags = get64(at + ENTRY_FLAGS);
        e.arch_specific = e.flags & FLAG_ARCH_SPECIFIC;
        e.packing = packing_of(e.flags);
        e.payload = at + e.header_bytes;
        e.payload_bytes = (size_t)(e.packing != FATBIN_RAW && packed ? packed : payload);
        e.bytes = e.packing == FATBIN_RAW ? (size_t)payload
                                          : (size_t)get64(at + ENTRY_UNPACKED_BYTES);
        *ret_entry = e;
        return 0;
}

int fatbin_next(const struct fatbin *f, size_t *offset, struct fatbin_entry *ret_entry)
{
        struct fatbin_entry e;
        size_t at = *offset ? *offset : f->first;

        if (f->form != FATBIN_CONTAINER) {
                if (*offset)
                        return 0;
                *offset = f->size;
                *ret_entry = (struct fatbin_entry){
                        .kind = f->form == FATBIN_CUBIN ? FATBIN_KIND_ELF : FATBIN_KIND_PTX,
                        .packing = FATBIN_RAW,
                        .payload = f->bytes,
                        .payload_bytes = f->size,
                        .bytes = f->size,
                };
                return 1;
        }
        if (at >= f->size)
                return 0;
        if (read_entry(f->bytes + at, f->size - at, &e) < 0)
                return -EINVAL;
        /* Not payload_bytes: what is padded or packed takes more room than it has bytes. */
        *offset = at + e.header_bytes + (size_t)get64(e.header + ENTRY_PAYLOAD_BYTES);
        *ret_entry = e;
        return 1;
}

/* Whether the device can run this entry, by compiling it if it is PTX. */
static bool entry_fits(const struct fatbin_entry *e, uint32_t kind, uint32_t sm)
{
        if (e->kind != kind)
                return false;
        if (!e->header)
                return true;
        if (e->arch > sm || (e->arch_specific && e->arch != sm))
                return false;
        return kind == FATBIN_KIND_PTX || e->arch / 10 == sm / 10;
}

/* All entries of the kind that fit and have the highest architecture among those. */
static int choose_kind(const struct fatbin *f, uint32_t kind, uint32_t sm,
                       struct fatbin_entry *ret_entries, size_t max)
{
        struct fatbin_entry e;
        size_t offset = 0, count = 0;
        uint32_t best = 0;
        int r;

        while ((r = fatbin_next(f, &offset, &e)) > 0) {
                if (!entry_fits(&e, kind, sm) || (count && e.arch < best))
                        continue;
                if (!count || e.arch > best) {
                        best = e.arch;
                        count = 0;
                }
                if (count < max)
                        ret_entries[count] = e;
                count++;
        }
        if (r < 0)
                return r;
        if (count > max || count > INT_MAX)
                return -ENOBUFS;
        return (int)count;
}

int fatbin_choose(const struct fatbin *f, uint32_t sm, struct fatbin_entry *ret_entries, size_t max)
{
        int r = choose_kind(f, FATBIN_KIND_ELF, sm, ret_entries, max);

        if (r == 0 && !f->linked)
                r = choose_kind(f, FATBIN_KIND_PTX, sm, ret_entries, max);
        return r == 0 ? -ENOENT : r;
}

static int unpack_lz4(const struct fatbin_entry *e, uint8_t *out)
{
        int r;

        if (e->payload_bytes > INT_MAX || e->bytes > INT_MAX)
                return -EFBIG;
        r = LZ4_decompress_safe((const char *)e->payload, (char *)out, (int)e->payload_bytes,
                                (int)e->bytes);
        return r >= 0 && (size_t)r == e->bytes ? 0 : -EINVAL;
}

static int unpack_zstd(const struct fatbin_entry *e, uint8_t *out)
{
        size_t r = ZSTD_decompress(out, e->bytes, e->payload, e->payload_bytes);

        return !ZSTD_isError(r) && r == e->bytes ? 0 : -EINVAL;
}

/*
 * Whether the header's unpacked size is believable, before memory is taken for
 * it: an LZ4 block expands at most 255 times; a zstd frame may say its own size.
 */
static bool size_credible(const struct fatbin_entry *e)
{
        if (e->packing == FATBIN_LZ4)
                return e->bytes / 255 <= e->payload_bytes;
        if (e->packing == FATBIN_ZSTD) {
                unsigned long long frame = ZSTD_getFrameContentSize(e->payload, e->payload_bytes);

                return frame == ZSTD_CONTENTSIZE_UNKNOWN || frame == e->bytes;
        }
        return true;
}

int fatbin_unpack(const struct fatbin_entry *entry, void **ret_bytes, size_t *ret_size)
{
        uint8_t *out;
        int r = 0;

        if (entry->packing == FATBIN_PACKING_UNKNOWN)
                return -ENOTSUP;
        if (entry->bytes > UNPACKED_MAX)
                return -EFBIG;
        if (entry->bytes == 0 || !size_credible(entry))
                return -EINVAL;
        out = image_memory_alloc(entry->bytes + 1);
        if (!out)
                return -ENOMEM;
        if (entry->packing == FATBIN_LZ4)
                r = unpack_lz4(entry, out);
        else if (entry->packing == FATBIN_ZSTD)
                r = unpack_zstd(entry, out);
        else
                memcpy(out, entry->payload, entry->bytes);
        if (r < 0) {
                image_memory_free(out);
                return r;
        }
        out[entry->bytes] = 0;
        *ret_bytes = out;
        *ret_size = entry->bytes;
        if (entry->kind == FATBIN_KIND_PTX) /* containers pad texts with NULs */
                *ret_size = strnlen((const char *)out, entry->bytes);
        return 0;
}

static size_t round_up8(size_t n)
{
        return (n + 7) & ~(size_t)7;
}

/* Header of `like`, restated for unpacked bytes. */
static void write_part(uint8_t *at, const struct fatbin_part *part)
{
        const struct fatbin_entry *like = part->like;

        memcpy(at, like->header, like->header_bytes);
        put64(at + ENTRY_PAYLOAD_BYTES, round_up8(part->size));
        put32(at + ENTRY_PACKED_BYTES, 0);
        put64(at + ENTRY_FLAGS, like->flags & ~(uint64_t)FLAG_PACKING);
        put64(at + ENTRY_UNPACKED_BYTES, 0);
        memcpy(at + like->header_bytes, part->bytes, part->size);
        memset(at + like->header_bytes + part->size, 0, round_up8(part->size) - part->size);
}

int fatbin_repack(const struct fatbin *f, const struct fatbin_part *parts, size_t count,
                  void **ret_bytes, size_t *ret_size)
{
        size_t size = f->first, at = f->first;
        uint8_t *out;

        if (f->form != FATBIN_CONTAINER)
                return -EINVAL;
        for (size_t i = 0; i < count; i++) {
                if (!parts[i].like->header || parts[i].size > UNPACKED_MAX)
                        return -EINVAL;
                size += parts[i].like->header_bytes + round_up8(parts[i].size);
        }
        out = image_memory_alloc(size);
        if (!out)
                return -ENOMEM;
        memcpy(out, f->bytes, f->first);
        put64(out + 8, size - f->first);
        for (size_t i = 0; i < count; i++) {
                write_part(out + at, &parts[i]);
                at += parts[i].like->header_bytes + round_up8(parts[i].size);
        }
        *ret_bytes = out;
        *ret_size = size;
        return 0;
}
