/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/uprobe.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>

#include "util/macro.h"

/* enum bpf_attach_type, Linux 6.6 */
#define ATTACH_UPROBE_MULTI ((enum bpf_attach_type)48)
#define UPROBE_MULTI_RETURN 1u

/* The part of union bpf_attr that BPF_LINK_CREATE reads for a uprobe_multi link. */
struct uprobe_multi_attr {
        uint32_t prog_fd;
        uint32_t target_fd;
        uint32_t attach_type;
        uint32_t flags;
        uint64_t path;
        uint64_t offsets;
        uint64_t ref_ctr_offsets;
        uint64_t cookies;
        uint32_t count;
        uint32_t multi_flags;
        uint32_t pid;
        uint32_t pad;
};

static int multi_link(int prog_fd, bool at_return, const char *path, const uint64_t *offsets,
                      const uint64_t *cookies, size_t n)
{
        struct uprobe_multi_attr attr = {
                .prog_fd = (uint32_t)prog_fd,
                .attach_type = ATTACH_UPROBE_MULTI,
                .path = (uintptr_t)path,
                .offsets = (uintptr_t)offsets,
                .cookies = (uintptr_t)cookies,
                .count = (uint32_t)n,
                .multi_flags = at_return ? UPROBE_MULTI_RETURN : 0,
        };
        int fd = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

        return fd < 0 ? -errno : fd;
}

/* A link to what is no regular file: the kernel says so only if it knows the kind of link. */
bool uprobe_multi_supported(void)
{
        static const struct bpf_insn nothing[] = {
                {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
                {.code = BPF_JMP | BPF_EXIT},
        };
        LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = ATTACH_UPROBE_MULTI);
        _cleanup_close_ int prog = -1, link = -1;
        uint64_t offset = 1;

        prog = bpf_prog_load(BPF_PROG_TYPE_KPROBE, NULL, "GPL", nothing, ARRAY_SIZE(nothing),
                             &opts);
        if (prog < 0)
                return false;
        link = multi_link(prog, false, "/", &offset, NULL, 1);
        return link == -EBADF;
}

void uprobe_prepare(struct bpf_program *program, bool multi)
{
        bpf_program__set_expected_attach_type(program, multi ? ATTACH_UPROBE_MULTI
                                                             : (enum bpf_attach_type)0);
}

static int keep_fd(struct uprobe_links *links, int fd)
{
        int *fds = reallocarray(links->fds, links->fd_count + 1, sizeof(*fds));

        if (!fds) {
                close(fd);
                return -ENOMEM;
        }
        links->fds = fds;
        fds[links->fd_count++] = fd;
        return 0;
}

static int keep_link(struct uprobe_links *links, struct bpf_link *link)
{
        struct bpf_link **all = reallocarray(links->links, links->link_count + 1, sizeof(*all));

        if (!all) {
                bpf_link__destroy(link);
                return -ENOMEM;
        }
        links->links = all;
        all[links->link_count++] = link;
        return 0;
}

/* One link for a run of places. */
static int attach_multi(struct uprobe_links *links, int prog_fd, bool at_return, const char *path,
                        const struct uprobe_place *places, size_t n)
{
        _cleanup_free_ uint64_t *offsets = calloc(n, 2 * sizeof(*offsets));
        size_t i;
        int fd;

        if (!offsets)
                return -ENOMEM;
        for (i = 0; i < n; i++) {
                offsets[i] = places[i].offset;
                offsets[n + i] = places[i].cookie;
        }
        fd = multi_link(prog_fd, at_return, path, offsets, offsets + n, n);
        return fd < 0 ? fd : keep_fd(links, fd);
}

static int attach_perf(struct uprobe_links *links, const struct bpf_program *program,
                       bool at_return, const char *path, const struct uprobe_place *place)
{
        LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = place->cookie, .retprobe = at_return);
        struct bpf_link *link =
                bpf_program__attach_uprobe_opts(program, -1, path, place->offset, &opts);

        return link ? keep_link(links, link) : -errno;
}

int uprobe_attach(struct uprobe_links *links, const struct bpf_program *program, bool multi,
                  bool at_return, const char *path, const struct uprobe_place *places, size_t n,
                  size_t *ret_count)
{
        int prog_fd = bpf_program__fd(program), r = -ENOENT;
        size_t i, count = 0;

        if (multi && n > 0 && attach_multi(links, prog_fd, at_return, path, places, n) == 0) {
                *ret_count = n;
                return 0;
        }
        /* One by one, so that a place that cannot be probed does not cost the others. */
        for (i = 0; i < n; i++) {
                r = multi ? attach_multi(links, prog_fd, at_return, path, &places[i], 1)
                          : attach_perf(links, program, at_return, path, &places[i]);
                count += r == 0;
        }
        if (count == 0)
                return r;
        *ret_count = count;
        return 0;
}

void uprobe_links_done(struct uprobe_links *links)
{
        size_t i;

        for (i = 0; i < links->fd_count; i++)
                close(links->fds[i]);
        for (i = 0; i < links->link_count; i++)
                bpf_link__destroy(links->links[i]);
        free(links->fds);
        free(links->links);
        *links = (struct uprobe_links){0};
}
