/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/vet.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <string.h>

#include "policy/object.h"

#define MAY_GOTO (BPF_JMP | 0xe0) /* BPF_JCOND */

static int fail(char *error, size_t error_size, int code, const char *format, ...) _printf_(4, 5);

static int fail(char *error, size_t error_size, int code, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(error, error_size, format, args);
        va_end(args);
        return code;
}

/* ---- maps ---- */

static bool map_type_allowed(enum bpf_map_type type)
{
        switch (type) {
        case BPF_MAP_TYPE_ARRAY:
        case BPF_MAP_TYPE_HASH:
        case BPF_MAP_TYPE_LRU_HASH:
        case BPF_MAP_TYPE_QUEUE:
        case BPF_MAP_TYPE_STACK:
        case BPF_MAP_TYPE_RINGBUF:
                return true;
        default:
                return false;
        }
}

static uint64_t map_bytes(const struct bpf_map *map)
{
        uint64_t entry = (uint64_t)bpf_map__key_size(map) + bpf_map__value_size(map);

        if (bpf_map__type(map) == BPF_MAP_TYPE_RINGBUF)
                entry = 1;
        return entry * bpf_map__max_entries(map);
}

static int vet_map(const struct bpf_map *map, char *error, size_t error_size)
{
        const char *name = bpf_map__name(map);

        if (!map_type_allowed(bpf_map__type(map)))
                return fail(error, error_size, -EACCES,
                            "map %s: policies keep state in arrays, hashes, queues and stacks only",
                            name);
        if (bpf_map__type(map) == BPF_MAP_TYPE_RINGBUF && strcmp(name, "policy_actions") != 0)
                return fail(error, error_size, -EACCES,
                            "map %s: the only ring buffer of a policy is policy_actions", name);
        if (bpf_map__pin_path(map))
                return fail(error, error_size, -EACCES,
                            "map %s: a policy shares no maps with others", name);
        if (bpf_map__is_internal(map) && strstr(name, ".kconfig"))
                return fail(error, error_size, -EACCES, "a policy has no externs");
        return 0;
}

static int vet_maps(const struct bpf_object *bpf, char *error, size_t error_size)
{
        struct bpf_map *map;
        uint64_t bytes = 0;
        int r;

        bpf_object__for_each_map(map, bpf)
        {
                r = vet_map(map, error, error_size);
                if (r < 0)
                        return r;
                bytes += map_bytes(map);
                if (bytes > POLICY_MEMORY_MAX)
                        return fail(error, error_size, -EACCES,
                                    "its maps take more than the %u MiB a policy may have",
                                    POLICY_MEMORY_MAX >> 20);
        }
        return 0;
}

/* ---- programs ---- */

static int vet_programs(const struct bpf_object *bpf, char *error, size_t error_size)
{
        struct bpf_program *program;
        size_t n = 0;

        bpf_object__for_each_program(program, bpf)
        {
                if (bpf_program__type(program) != BPF_PROG_TYPE_SYSCALL)
                        return fail(error, error_size, -EINVAL,
                                    "program %s is in section %s: those of a policy are in "
                                    "SEC(\"syscall\")",
                                    bpf_program__name(program), bpf_program__section_name(program));
                n++;
        }
        return n ? 0 : fail(error, error_size, -EINVAL, "the object holds no program");
}

int vet_parts(const struct bpf_object *bpf, char *error, size_t error_size)
{
        int r = vet_programs(bpf, error, error_size);

        return r < 0 ? r : vet_maps(bpf, error, error_size);
}

/* ---- instructions ---- */

static bool helper_allowed(int helper)
{
        switch (helper) {
        case BPF_FUNC_map_lookup_elem:
        case BPF_FUNC_map_update_elem:
        case BPF_FUNC_map_delete_elem:
        case BPF_FUNC_map_push_elem:
        case BPF_FUNC_map_pop_elem:
        case BPF_FUNC_map_peek_elem:
        case BPF_FUNC_for_each_map_elem:
        case BPF_FUNC_loop:
        case BPF_FUNC_ringbuf_output:
        case BPF_FUNC_ringbuf_reserve:
        case BPF_FUNC_ringbuf_submit:
        case BPF_FUNC_ringbuf_discard:
        case BPF_FUNC_trace_printk:
                return true;
        default:
                return false;
        }
}

static int vet_instruction(const struct bpf_insn *insn, const char *program, char *error,
                           size_t error_size)
{
        if (insn->code == MAY_GOTO)
                return fail(error, error_size, -EACCES,
                            "%s loops with may_goto: a policy loops with bpf_loop()", program);
        if (insn->code != (BPF_JMP | BPF_CALL) || insn->src_reg == BPF_PSEUDO_CALL)
                return 0;
        if (insn->src_reg != 0)
                return fail(error, error_size, -EACCES,
                            "%s calls a function of the kernel: a policy may not", program);
        if (insn->imm == BPF_FUNC_ktime_get_ns || insn->imm == BPF_FUNC_get_prandom_u32)
                return fail(error, error_size, -EACCES,
                            "%s reads a clock or a random number: a policy is to do the same each "
                            "time; the event has the time",
                            program);
        if (!helper_allowed(insn->imm))
                return fail(error, error_size, -EACCES,
                            "%s calls eBPF helper %d, which a policy may not", program, insn->imm);
        return 0;
}

int vet_instructions(const struct bpf_object *bpf, char *error, size_t error_size)
{
        struct bpf_program *program;
        int r = 0;

        bpf_object__for_each_program(program, bpf)
        {
                const struct bpf_insn *insns = bpf_program__insns(program);
                size_t n = bpf_program__insn_cnt(program);

                for (size_t i = 0; i < n && r == 0; i++)
                        r = vet_instruction(&insns[i], bpf_program__name(program), error,
                                            error_size);
        }
        return r;
}
