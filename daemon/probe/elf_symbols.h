/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where functions lie in an ELF shared library, for probes. The file may be hostile. */
#include <stddef.h>
#include <stdint.h>

/*
 * For each of the n names of exported functions the offset in the file of its
 * first byte, 0 where the library has no such function. Of several versions of
 * a symbol the default one counts. Returns how many were found; -ENOEXEC when
 * this is no 64-bit shared library; other -errno. The descriptor's position may
 * change.
 */
int elf_find_functions(int fd, const char *const names[], size_t n, uint64_t ret_offsets[]);
