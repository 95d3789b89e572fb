/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Attaching a uprobe program to many places of one file: by one uprobe_multi
 * link where the kernel has them (Linux 6.6), else by a perf event for each.
 * The Debian 12 libbpf and kernel headers know nothing of the former.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpf_link;
struct bpf_program;

struct uprobe_place {
        uint64_t offset; /* in the file */
        uint64_t cookie;
};

/* What keeps probes attached; closing it takes them off. */
struct uprobe_links {
        int *fds; /* uprobe_multi links */
        size_t fd_count;
        struct bpf_link **links; /* perf events */
        size_t link_count;
};

bool uprobe_multi_supported(void);

/* Before load: a program is loaded for one way of attaching or the other. */
void uprobe_prepare(struct bpf_program *program, bool multi);

/*
 * Attach at the entries of functions, or at their returns. path: any path the
 * kernel can walk, /proc/self/fd/N among them. A place that the kernel refuses
 * is passed over. ret_count: the places attached. 0 or -errno if none could be;
 * links keeps what it had.
 */
int uprobe_attach(struct uprobe_links *links, const struct bpf_program *program, bool multi,
                  bool at_return, const char *path, const struct uprobe_place *places, size_t n,
                  size_t *ret_count);

/* Detach all. */
void uprobe_links_done(struct uprobe_links *links);
