/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The program as the other passes see it. Every call of one of the program's own
 * functions is replaced by the function's body: code that is put into a kernel
 * has no stack to call with, and a probe is short. So there is one straight list
 * of instructions, in which
 *
 *   - r0..r5 are registers 0..5 everywhere, and the function that runs in frame f
 *     has its own r6..r10 as registers 6 + 5f .. 10 + 5f (frame 0 is the program);
 *   - jumps hold the place they lead to; a 64-bit constant takes one place;
 *   - CODE_ENTER and CODE_RETURN stand where a function's body begins and where
 *     its caller goes on; the function's exits are jumps to the latter.
 *
 * Stack: frame f has the 512 bytes below -512 f, counted from the end of all
 * frames; below the last frame lie the records a program has reserved, one for each
 * call that reserves: they are made on the stack and copied when they are submitted.
 */
#include <stddef.h>
#include <stdint.h>

#include "device/compile.h"

#define CODE_FRAMES       8
#define CODE_FRAME_BYTES  512
#define CODE_RECORDS      8 /* calls that reserve */
#define CODE_RECORD_BYTES 256
#define CODE_REGISTERS    (6 + 5 * CODE_FRAMES)
#define CODE_MAX_INSNS    16384
#define CODE_NO_CALLER    UINT32_MAX

/*
 * Calls of helpers that only a GPU has: the program's side is a function that begins
 * by loading CODE_MARK + the helper's number into r0 (probes/device/gpuobs_device.h);
 * here it is a call with imm CODE_INTRINSIC + the number.
 */
#define CODE_MARK      0x6f62734750550000ULL
#define CODE_INTRINSIC 0x10000

enum code_kind {
        CODE_PLAIN = 0,
        CODE_ENTER,
        CODE_RETURN,
};

struct code_insn {
        uint8_t kind;     /* enum code_kind */
        uint8_t code;     /* as in struct bpf_insn */
        uint8_t dst;      /* registers as above */
        uint8_t src;      /* of calls and 64-bit constants the field as it was: what imm means */
        uint8_t frame;    /* that it runs in; CODE_ENTER: the new one, CODE_RETURN: the old one */
        int16_t off;      /* as in struct bpf_insn; of a call that reserves the record's number */
        int32_t imm;      /* likewise; first half of a 64-bit constant */
        int32_t imm_high; /* second half */
        uint32_t target;  /* of a jump; of CODE_ENTER the place of its CODE_RETURN */
        uint32_t origin;  /* the instruction of the program it comes from */
        uint32_t caller;  /* CODE_ENTER of the function it is in, or CODE_NO_CALLER */
};

struct code {
        const struct compile_job *job;
        struct code_insn *insns;
        size_t count;
        unsigned frames;  /* at most CODE_FRAMES */
        unsigned records; /* at most CODE_RECORDS */
        bool *divergent;  /* for each instruction: lanes of a warp may be apart (flow_diverge.h) */
        bool warp_wide;   /* a helper is called that a warp's lanes must call together */
};

/* Fill in ret_code. 0; -ENOTSUP refused, ret_refusal says why (insn is one of job's); -ENOMEM. */
int code_init(const struct compile_job *job, struct refusal *ret_refusal, struct code *ret_code);
void code_done(struct code *c);

/* The register that is r10 in a frame. */
static inline unsigned code_frame_pointer(unsigned frame)
{
        return 10 + 5 * frame;
}

/* All that lies on the stack. */
static inline unsigned code_stack_bytes(const struct code *c)
{
        return c->frames * CODE_FRAME_BYTES + c->records * CODE_RECORD_BYTES;
}

/* Where record n begins, from the end of the stack. */
static inline int64_t code_record_start(const struct code *c, unsigned n)
{
        return -(int64_t)(c->frames * CODE_FRAME_BYTES + (n + 1) * CODE_RECORD_BYTES);
}

/* The number by which a program calls a register. */
static inline unsigned code_register_name(unsigned reg)
{
        return reg < 6 ? reg : 6 + (reg - 6) % 5;
}

static inline uint64_t code_wide_constant(const struct code_insn *i)
{
        return (uint32_t)i->imm | (uint64_t)(uint32_t)i->imm_high << 32;
}
