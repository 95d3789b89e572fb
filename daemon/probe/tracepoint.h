/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Attaching to a tracepoint without needing tracefs mounted: the service may
 * run where it is not, or is hidden.
 */
struct bpf_link;
struct bpf_program;

/* category and name, "syscalls" and "sys_enter_mmap". 0 or -errno. */
int tracepoint_attach(const struct bpf_program *program, const char *category, const char *name,
                      struct bpf_link **ret_link);
