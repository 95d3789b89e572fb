/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a policy's eBPF object may contain (object.h says why). */
#include <stddef.h>

struct bpf_object;

/* Maps and kinds of programs, before they are loaded. 0, or -errno with a sentence in error[]. */
int vet_parts(const struct bpf_object *bpf, char *error, size_t error_size);

/*
 * Instructions, once loaded: only then are functions that programs call part of
 * them. Loading runs nothing. 0, or -EACCES with a sentence in error[].
 */
int vet_instructions(const struct bpf_object *bpf, char *error, size_t error_size);
