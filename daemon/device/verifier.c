/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
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

unsigned verifier_stack_depth(int fd, const struct bpf_insn *insns, size_t count, int btf)
{
        struct bpf_prog_info info = {};
        _cleanup_free_ void *functions = read_functions(fd, &info);
        char log[4096] = "";
        LIBBPF_OPTS(bpf_prog_load_opts, opts, .prog_flags = BPF_F_SLEEPABLE,
                    .log_level = LOG_STATISTICS, .log_buf = log, .log_size = sizeof(log));
        int again;

        if (!functions)
                return 0;
        if (info.nr_func_info && btf >= 0) {
                opts.prog_btf_fd = (uint32_t)btf;
                opts.func_info = functions;
                opts.func_info_cnt = info.nr_func_info;
                opts.func_info_rec_size = info.func_info_rec_size;
        }
        again = bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "gpuobs_depth", "GPL", insns, count, &opts);
        if (again < 0)
                return 0;
        close(again);
        return verify_read_depth(log);
}
