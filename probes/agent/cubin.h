/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reading and rebuilding cubins: ELF64 files of machine NVIDIA CUDA, in the two
 * forms there are: ABI 7 (OSABI 0x33; CUDA up to 12 and Triton) and ABI 8
 * (OSABI 0x41; CUDA 13).
 */
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUBIN_MACHINE     190 /* EM_CUDA */
#define CUBIN_INFO_TYPE   0x70000000u
#define CUBIN_SHARED_TYPE 0x7000000au /* shared memory, before linking; takes no room */
#define CUBIN_KERNEL_FLAG 0x10        /* st_other of a kernel's symbol */

/* Attributes of .nv.info sections that are understood here. */
enum cubin_attribute_id {
        CUBIN_CTAIDZ_USED = 0x04,
        CUBIN_MAX_THREADS = 0x05,
        CUBIN_PARAM_CBANK = 0x0a,
        CUBIN_REQNTID = 0x10,
        CUBIN_FRAME_SIZE = 0x11,
        CUBIN_MIN_STACK_SIZE = 0x12,
        CUBIN_KPARAM_INFO = 0x17,
        CUBIN_MAXREG_COUNT = 0x1b,
        CUBIN_EXIT_OFFSETS = 0x1c,
        CUBIN_S2RCTAID_OFFSETS = 0x1d,
        CUBIN_CRS_STACK_SIZE = 0x1e,
        CUBIN_LD_CACHEMOD_OFFSETS = 0x25,
        CUBIN_ATOM_SYS_OFFSETS = 0x27,
        CUBIN_COOP_GROUP_OFFSETS = 0x28,
        CUBIN_COOP_GROUP_REGIDS = 0x29,
        CUBIN_ATOMF16_EMUL_OFFSETS = 0x2d,
        CUBIN_REGCOUNT = 0x2f,
        CUBIN_WARP_WIDE_OFFSETS = 0x31,
        CUBIN_SW_WAR = 0x36,
        CUBIN_API_VERSION = 0x37,
};

enum cubin_format {
        CUBIN_FORMAT_NONE = 1, /* no value */
        CUBIN_FORMAT_BYTE = 2,
        CUBIN_FORMAT_HALF = 3,
        CUBIN_FORMAT_SIZED = 4, /* data of a size that is given */
};

struct cubin_attribute {
        uint8_t format; /* enum cubin_format */
        uint8_t id;
        uint16_t value;      /* of the small formats; the size of data otherwise */
        const uint8_t *data; /* CUBIN_FORMAT_SIZED; NULL otherwise */
        size_t offset;       /* of the attribute in its section */
        size_t bytes;        /* of the whole attribute */
};

struct cubin {
        const uint8_t *bytes; /* the caller's; must outlive this */
        size_t size;
        Elf64_Ehdr header;
        Elf64_Shdr *sections;      /* header.e_shnum copies; owned */
        uint32_t sm;               /* e.g. 90 */
        bool registers_in_section; /* ABI 7: .text may have its register count in sh_info[31:24] */
        uint32_t symtab;           /* section index; 0: none */
        size_t symbol_count;
};

/*
 * Check the headers and every section's place. Bytes are only looked at within
 * `size`. 0; -EINVAL not a cubin or broken; -ENOTSUP an unknown form; -ENOMEM.
 * *ret_reason (may be NULL) then points to a constant phrase.
 */
int cubin_open(const void *bytes, size_t size, struct cubin *ret_cubin, const char **ret_reason);
void cubin_done(struct cubin *c);

/* A name, "" when it lies outside its table. Points into the cubin. */
const char *cubin_section_name(const struct cubin *c, size_t section);
/* Symbol i < symbol_count; its name likewise. */
void cubin_symbol(const struct cubin *c, size_t i, Elf64_Sym *ret_symbol);
const char *cubin_symbol_name(const struct cubin *c, const Elf64_Sym *symbol);

/* Whether code in it launches kernels: the device's runtime is, or is to be, linked in. */
bool cubin_launches(const struct cubin *c);

/* Contents of a section; empty for one that takes no room in the file. */
const uint8_t *cubin_section_bytes(const struct cubin *c, size_t section, size_t *ret_size);

/*
 * Attributes of a .nv.info section in order: start with *offset = 0. 1 one was
 * read; 0 no more; -EINVAL the section is broken there.
 */
int cubin_next_attribute(const uint8_t *info, size_t size, size_t *offset,
                         struct cubin_attribute *ret_attribute);

/*
 * A copy of the cubin in which section i has sizes[i] bytes (the old contents cut
 * or followed by zeros), everything behind it moved, and headers adjusted. Where
 * its sections are is returned in ret_offsets (one per section, the caller's
 * array). 0; -ENOMEM; -ENOTSUP the file is not laid out in separate pieces.
 */
int cubin_rebuild(const struct cubin *c, const uint64_t *sizes, uint64_t *ret_offsets,
                  uint8_t **ret_bytes, size_t *ret_size);
