/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernel's verifier found out about a program that it has accepted. */
#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

/* How many instructions it looked at to know the program `fd`; 0: it does not say. */
uint64_t verifier_insns(int fd);

/*
 * The most bytes of its stack that a function of the program uses; 0: it does not say. It says
 * so in its log only: the program is loaded a second time for that, from its `count`
 * instructions (as they were loaded first) and the types in btf, and forgotten.
 */
unsigned verifier_stack_depth(int fd, const struct bpf_insn *insns, size_t count, int btf);
