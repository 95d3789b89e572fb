/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* From an instruction of a program to its line of source, through ELF and BTF. */
#include <linux/bpf.h>
#include <stddef.h>

struct btf;
struct source_map;

/*
 * elf and btf are borrowed until source_map_free(). An object without line
 * information gives a map that finds nothing. 0 or -ENOMEM.
 */
int source_map_new(const void *elf, size_t elf_bytes, const struct btf *btf,
                   struct source_map **ret_map);
struct source_map *source_map_free(struct source_map *m);

/*
 * Where instruction `insn` of a program comes from: "FILE:LINE" into `position`
 * and the line's text, without indentation, into `text`. `insns` is the program as
 * it is loaded, with the functions it calls behind it. 0 or -ENOENT.
 */
int source_map_find(const struct source_map *m, const char *section, const char *program,
                    const struct bpf_insn *insns, size_t count, size_t insn, char *position,
                    size_t position_size, char *text, size_t text_size);
