/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Questions about single eBPF instructions, from the instruction-set standard. */
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Helpers device programs may call (numbers of the kernel's uapi). */
enum {
        INSN_HELPER_MAP_LOOKUP = 1,
        INSN_HELPER_KTIME_GET_NS = 5,
        INSN_HELPER_GET_SMP_PROCESSOR_ID = 8,
};

/* The two-slot load of a 64-bit constant or map reference. */
static inline bool insn_is_wide(const struct bpf_insn *i)
{
        return i->code == (BPF_LD | BPF_IMM | BPF_DW);
}

static inline uint64_t insn_wide_constant(const struct bpf_insn *i)
{
        return (uint32_t)i[0].imm | (uint64_t)(uint32_t)i[1].imm << 32;
}

static inline bool insn_is_alu(const struct bpf_insn *i)
{
        return BPF_CLASS(i->code) == BPF_ALU || BPF_CLASS(i->code) == BPF_ALU64;
}

static inline bool insn_is_jump_class(const struct bpf_insn *i)
{
        return BPF_CLASS(i->code) == BPF_JMP || BPF_CLASS(i->code) == BPF_JMP32;
}

static inline bool insn_is_exit(const struct bpf_insn *i)
{
        return i->code == (BPF_JMP | BPF_EXIT);
}

static inline bool insn_is_call(const struct bpf_insn *i)
{
        return i->code == (BPF_JMP | BPF_CALL);
}

static inline bool insn_is_goto(const struct bpf_insn *i)
{
        return insn_is_jump_class(i) && BPF_OP(i->code) == BPF_JA;
}

static inline bool insn_is_branch(const struct bpf_insn *i)
{
        return insn_is_jump_class(i) && BPF_OP(i->code) != BPF_JA && BPF_OP(i->code) != BPF_CALL &&
               BPF_OP(i->code) != BPF_EXIT;
}

/* Where the goto or branch at `at` leads; may lie outside the program. */
static inline int64_t insn_target(const struct bpf_insn *insns, size_t at)
{
        const struct bpf_insn *i = &insns[at];
        bool long_goto = i->code == (BPF_JMP32 | BPF_JA);

        return (int64_t)at + 1 + (long_goto ? i->imm : i->off);
}

static inline bool insn_is_64bit(const struct bpf_insn *i)
{
        return BPF_CLASS(i->code) == BPF_ALU64 || BPF_CLASS(i->code) == BPF_JMP;
}

static inline bool insn_uses_register(const struct bpf_insn *i)
{
        return BPF_SRC(i->code) == BPF_X;
}

/* Bytes that a load, store or atomic moves. */
static inline unsigned insn_size(const struct bpf_insn *i)
{
        static const unsigned char bytes[] = {4, 2, 1, 8};

        return bytes[BPF_SIZE(i->code) >> 3];
}

static inline bool insn_is_load(const struct bpf_insn *i)
{
        return BPF_CLASS(i->code) == BPF_LDX && BPF_MODE(i->code) == BPF_MEM;
}

static inline bool insn_is_store(const struct bpf_insn *i)
{
        return (BPF_CLASS(i->code) == BPF_STX || BPF_CLASS(i->code) == BPF_ST) &&
               BPF_MODE(i->code) == BPF_MEM;
}

static inline bool insn_is_atomic(const struct bpf_insn *i)
{
        return BPF_CLASS(i->code) == BPF_STX && BPF_MODE(i->code) == BPF_ATOMIC;
}
