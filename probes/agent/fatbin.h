/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What an application hands to cuModuleLoadData, cuModuleLoadFatBinary or
 * cuLibraryLoadData: a fatbin (a container of machine code and PTX for several
 * architectures, perhaps behind a wrapper that points to it), a bare cubin, or
 * PTX text. The driver is given no size, and so neither are we: the reader looks
 * only at what the headers before it imply.
 *
 * No function here allocates unless it says so, logs, or keeps state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fatbin_form {
        FATBIN_CONTAINER = 1, /* entries, see fatbin_next() */
        FATBIN_CUBIN,         /* a bare ELF; one entry */
        FATBIN_PTX_TEXT,      /* bare NUL-terminated PTX; one entry */
};

enum fatbin_kind {
        FATBIN_KIND_PTX = 1,
        FATBIN_KIND_ELF = 2,
        /* containers may hold others (3..): never chosen here */
};

enum fatbin_packing {
        FATBIN_RAW = 0,
        FATBIN_LZ4,
        FATBIN_ZSTD,
        FATBIN_PACKING_UNKNOWN,
};

/* What a wrapper (__fatbinc) looks like in memory. */
#define FATBIN_WRAPPER_MAGIC  0x466243b1u
#define FATBIN_WRAPPER_LINKED 2 /* result of a device link, with the objects it came from */

struct fatbin_wrapper {
        uint32_t magic;
        uint32_t version; /* 1 or FATBIN_WRAPPER_LINKED */
        const void *container;
        const void *objects;
};

/* More images than this for one architecture are not understood. */
#define FATBIN_CANDIDATES_MAX 4

/* An image whose extent is known. Points into the caller's memory. */
struct fatbin {
        enum fatbin_form form;
        const uint8_t *bytes; /* the container, the ELF, or the text */
        size_t size;          /* as its headers say; text: without the NUL */
        size_t first;         /* container: offset of its first entry */
        bool linked;          /* container of a device link: the driver may use other objects too */
};

struct fatbin_entry {
        uint32_t kind;      /* enum fatbin_kind, or a number unknown to us */
        uint32_t arch;      /* 10 * major + minor, e.g. 90; 0 for a bare image */
        bool arch_specific; /* the "a" variant, e.g. sm_90a */
        uint64_t flags;     /* as found */
        enum fatbin_packing packing;
        const uint8_t *payload; /* packed bytes */
        size_t payload_bytes;
        size_t bytes;          /* unpacked; 0 when the header does not say */
        const uint8_t *header; /* the entry's header; NULL for a bare image */
        size_t header_bytes;
};

/*
 * Recognise an image. fatbin_open() trusts the headers for its extent, as the
 * driver does, and follows a wrapper's pointer. fatbin_open_bytes() reads a file
 * or packet of `size` bytes and never looks beyond; a wrapper is refused.
 * 0; -EINVAL it is none of the forms above, or its headers contradict each other.
 */
int fatbin_open(const void *image, struct fatbin *ret_fatbin);
int fatbin_open_bytes(const void *image, size_t size, struct fatbin *ret_fatbin);

/*
 * Entries in order: start with *offset = 0. 1 an entry was read; 0 no more;
 * -EINVAL the entry does not fit into the container.
 */
int fatbin_next(const struct fatbin *f, size_t *offset, struct fatbin_entry *ret_entry);

/*
 * What the driver would load for a device of compute capability sm (10 * major +
 * minor): machine code of the same major and the highest minor not above the
 * device's, else the PTX of the highest version not above it. Where several
 * entries are equally near (sm_90 beside sm_90a) all of them are returned and
 * only the driver knows; see fatbin_repack(). PTX of a device link (`linked`) is
 * never chosen. ret_entries has room for `max`.
 *
 * Number of entries (>= 1); -ENOENT nothing for this device; -ENOBUFS more
 * candidates than `max`; -EINVAL the container is broken.
 */
int fatbin_choose(const struct fatbin *f, uint32_t sm, struct fatbin_entry *ret_entries,
                  size_t max);

/*
 * The unpacked bytes of an entry, to be given to image_memory_free(). PTX gets
 * a NUL after its end that ret_size does not count. 0; -ENOMEM; -EINVAL broken
 * data; -ENOTSUP a packing we do not know; -EFBIG more than 1 GiB.
 */
int fatbin_unpack(const struct fatbin_entry *entry, void **ret_bytes, size_t *ret_size);

/* One entry of a container to build: the header of `like`, other bytes. */
struct fatbin_part {
        const struct fatbin_entry *like;
        const void *bytes; /* unpacked */
        size_t size;
};

/*
 * A container that holds exactly these parts, unpacked, in this order, so that
 * the driver can choose among rewritten candidates by its own rules, for image_memory_free().
 * 0; -ENOMEM; -EINVAL a part has no header (came from a bare image).
 */
int fatbin_repack(const struct fatbin *f, const struct fatbin_part *parts, size_t count,
                  void **ret_bytes, size_t *ret_size);
