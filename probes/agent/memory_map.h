/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the kernel says about this process's address space (/proc/self/maps).
 * Used before touching memory whose size or origin only the application knows.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct memory_mapping {
        uintptr_t start;
        uintptr_t end;
        uint64_t offset; /* in the file */
        unsigned device_major, device_minor;
        uint64_t inode; /* 0: no file */
        bool readable;
        bool writable;
        bool executable;
        char path[PATH_MAX]; /* as printed by the kernel; may end in " (deleted)" */
};

/* The mapping that holds an address. 0; -ENOENT not mapped; other -errno. */
int memory_mapping_find(uintptr_t address, struct memory_mapping *ret_mapping);

/* Each mapping in order of address, until visit() says false. */
void memory_mappings_each(bool (*visit)(void *data, const struct memory_mapping *m), void *data);

/* Start of the first mapping that the kernel prints with this name, e.g. "[stack]"; 0: none. */
uintptr_t memory_mapping_named(const char *name);

/*
 * The path of the file whose mapping holds an address, in buffer, perhaps cut; "" when
 * it is none (or address is NULL).
 */
const char *memory_file_path(const void *address, char *buffer, size_t size);

/*
 * How many bytes can be read from this address on without a fault, as far as
 * the permissions of mappings tell; not looked further than `enough` of them (SIZE_MAX: as
 * far as it goes). 0 when nothing is mapped there or the maps cannot be read.
 */
size_t memory_readable_bytes(const void *address, size_t enough);

/*
 * Original bytes of mapped file content: what the file holds, whatever was
 * written to the mapping since. Tries /proc/self/map_files, then the path. The
 * inode is not compared (overlay file systems show another one in the maps):
 * the caller must compare what it gets with memory. Number of bytes read;
 * -ENOENT not a file mapping; -ESTALE the file is gone; other -errno.
 */
ssize_t memory_file_bytes(uintptr_t address, void *buffer, size_t size);
