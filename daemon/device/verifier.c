/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/verifier.h"
#include "device/verify.h"
#include "util/macro.h"

#define LOG_STATISTICS 4 /* of log_level: nothing else */

static int get_info(int fd, struct bpf_prog_info *info)
{
        uint32_t size = sizeof(*info);

        return bpf_obj_get_info_by_fd(fd, info, &size);
}

uint64_t verifier_insns(int fd)
{
        struct bpf_prog_info info = {};

        return get_info(fd, &info) ? 0 : info.verified_insns;
}

/* Where the program's functions begin, and of what types they are; fills in those fields. */
static void *read_functions(int fd, struct bpf_prog_info *info)
{
        struct bpf_prog_info known = {};
        void *functions;

        if (get_info(fd, &known))
                return NULL;
        functions = calloc(known.nr_func_info + 1, known.func_info_rec_size + 1);
        *info = (struct bpf_prog_info){.nr_func_info = known.nr_func_info,
                                       .func_info_rec_size = known.func_info_rec_size,
                                       .func_info = (uint64_t)(uintptr_t)functions};
        if (functions && get_info(fd, info)) {
                free(functions);
                return NULL;
        }
        return functions;
}

/* Load the instructions to see what the statistics say; 0 nothing. */
static unsigned load_for_depth(const struct bpf_insn *insns, size_t count,
                               struct bpf_prog_load_opts *opts)
{
        char log[4096] = "";
        int fd;

        opts->prog_flags = BPF_F_SLEEPABLE;
        opts->log_level = LOG_STATISTICS;
        opts->log_buf = log;
        opts->log_size = sizeof(log);
        fd = bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "gpuobs_depth", "GPL", insns, count, opts);
        if (fd < 0)
                return 0;
        close(fd);
        return verify_read_depth(log);
}

/*
 * Whether the kernel counts accesses at distances that only the running program knows. Up to 6.7
 * (but for those that were mended) it counted what is known of them: here, nothing of 8 bytes.
 */
static bool counts_all(void)
{
        static const struct bpf_insn insns[] = {
                {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_prandom_u32},
                {.code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = BPF_REG_0, .imm = 7},
                {.code = BPF_ALU64 | BPF_SUB | BPF_K, .dst_reg = BPF_REG_0, .imm = 8},
                {.code = BPF_ALU64 | BPF_ADD | BPF_X, .dst_reg = BPF_REG_0, .src_reg = BPF_REG_10},
                {.code = BPF_ST | BPF_MEM | BPF_B, .dst_reg = BPF_REG_0},
                {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
                {.code = BPF_JMP | BPF_EXIT},
        };
        LIBBPF_OPTS(bpf_prog_load_opts, opts);

        return load_for_depth(insns, ARRAY_SIZE(insns), &opts) == 8;
}

unsigned verifier_stack_depth(int fd, const struct bpf_insn *insns, size_t count, int btf)
{
        struct bpf_prog_info info = {};
        _cleanup_free_ void *functions = NULL;
        LIBBPF_OPTS(bpf_prog_load_opts, opts);

        if (!counts_all())
                return 0;
        functions = read_functions(fd, &info);
        if (!functions)
                return 0;
        if (info.nr_func_info && btf >= 0) {
                opts.prog_btf_fd = (uint32_t)btf;
                opts.func_info = functions;
                opts.func_info_cnt = info.nr_func_info;
                opts.func_info_rec_size = info.func_info_rec_size;
        }
        return load_for_depth(insns, count, &opts);
}
