/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether a function of the managed-memory driver can have fentry and fexit probes.
 * These find it by its name and by its BTF, and while one of them is there the module
 * cannot be unloaded: the kernel's trampolines hold it.
 */
#include <stddef.h>

struct uvm_symbol;

#define UVM_TRACE_ENOTSUPP 524 /* the kernel's own: no such trampoline; not in errno.h */

/*
 * 0 it may be tried; -ENOENT no such function; -EILSEQ the compiler changed it;
 * -ENODATA BTF does not tell its parameters; -ENOTUNIQ another symbol has its name.
 */
int uvm_trace_check(const struct uvm_symbol *s);

/* What an error of the above, or of the kernel when it was tried, means. */
void uvm_trace_explain(const struct uvm_symbol *s, int error, char *buffer, size_t size);
