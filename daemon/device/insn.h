/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Questions about opcodes of eBPF instructions, from the instruction-set standard (RFC 9669). */
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In newer headers than some that this is built with. */
#ifndef BPF_MEMSX
#define BPF_MEMSX 0x80 /* mode of a load that extends the sign */
#endif

/*
 * Helpers device programs may call: numbers of the kernel's uapi, and those that only
 * a GPU has (CODE_INTRINSIC + the number in probes/device/gpuobs_device.h).
 */
enum {
        INSN_HELPER_MAP_LOOKUP = 1,
        INSN_HELPER_MAP_UPDATE = 2,
        INSN_HELPER_MAP_DELETE = 3,
        INSN_HELPER_KTIME_GET_NS = 5,
        INSN_HELPER_TRACE_PRINTK = 6,
        INSN_HELPER_GET_PRANDOM_U32 = 7,
        INSN_HELPER_GET_SMP_PROCESSOR_ID = 8,
        INSN_HELPER_RINGBUF_OUTPUT = 130,
        INSN_HELPER_RINGBUF_RESERVE = 131,
        INSN_HELPER_RINGBUF_SUBMIT = 132,
        INSN_HELPER_RINGBUF_DISCARD = 133,
        INSN_HELPER_TRACE_VPRINTK = 177,
        INSN_HELPER_BALLOT = 0x10001,
        INSN_HELPER_WARP_SUM,
        INSN_HELPER_WARP_MIN,
        INSN_HELPER_WARP_MAX,
        INSN_HELPER_WARP_AND,
        INSN_HELPER_WARP_OR,
        INSN_HELPER_WARP_XOR,
        INSN_HELPER_BITS,
        INSN_HELPER_SECTORS,
        INSN_HELPER_LINES,
        INSN_HELPER_ONES = 0x10020,
};

/* Whether all active lanes of a warp must call a helper together. */
static inline bool insn_is_warp_wide(int32_t helper)
{
        return helper >= INSN_HELPER_BALLOT && helper <= INSN_HELPER_WARP_XOR;
}

/* Whether a helper is about ring buffers. */
static inline bool insn_is_ring(int32_t helper)
{
        return helper >= INSN_HELPER_RINGBUF_OUTPUT && helper <= INSN_HELPER_RINGBUF_DISCARD;
}

static inline bool insn_is_print(int32_t helper)
{
        return helper == INSN_HELPER_TRACE_PRINTK || helper == INSN_HELPER_TRACE_VPRINTK;
}

/* Offset field of signed divisions and remainders. */
#define INSN_SIGNED 1

/* The two-slot load of a 64-bit constant or map reference. */
static inline bool insn_is_wide(uint8_t code)
{
        return code == (BPF_LD | BPF_IMM | BPF_DW);
}

static inline bool insn_is_alu(uint8_t code)
{
        return BPF_CLASS(code) == BPF_ALU || BPF_CLASS(code) == BPF_ALU64;
}

static inline bool insn_is_jump_class(uint8_t code)
{
        return BPF_CLASS(code) == BPF_JMP || BPF_CLASS(code) == BPF_JMP32;
}

static inline bool insn_is_exit(uint8_t code)
{
        return code == (BPF_JMP | BPF_EXIT);
}

static inline bool insn_is_call(uint8_t code)
{
        return code == (BPF_JMP | BPF_CALL);
}

static inline bool insn_is_goto(uint8_t code)
{
        return insn_is_jump_class(code) && BPF_OP(code) == BPF_JA;
}

static inline bool insn_is_branch(uint8_t code)
{
        return insn_is_jump_class(code) && BPF_OP(code) != BPF_JA && BPF_OP(code) != BPF_CALL &&
               BPF_OP(code) != BPF_EXIT;
}

static inline bool insn_is_64bit(uint8_t code)
{
        return BPF_CLASS(code) == BPF_ALU64 || BPF_CLASS(code) == BPF_JMP;
}

static inline bool insn_uses_register(uint8_t code)
{
        return BPF_SRC(code) == BPF_X;
}

/* Bytes that a load, store or atomic moves. */
static inline unsigned insn_size(uint8_t code)
{
        static const unsigned char bytes[] = {4, 2, 1, 8};

        return bytes[BPF_SIZE(code) >> 3];
}

/* Of 1, 2 or 4 bytes. */
static inline bool insn_is_signed_load(uint8_t code)
{
        return BPF_CLASS(code) == BPF_LDX && BPF_MODE(code) == BPF_MEMSX && insn_size(code) < 8;
}

static inline bool insn_is_load(uint8_t code)
{
        return BPF_CLASS(code) == BPF_LDX &&
               (BPF_MODE(code) == BPF_MEM || insn_is_signed_load(code));
}

static inline bool insn_is_store(uint8_t code)
{
        return (BPF_CLASS(code) == BPF_STX || BPF_CLASS(code) == BPF_ST) &&
               BPF_MODE(code) == BPF_MEM;
}

static inline bool insn_is_atomic(uint8_t code)
{
        return BPF_CLASS(code) == BPF_STX && BPF_MODE(code) == BPF_ATOMIC;
}
