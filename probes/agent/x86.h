/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The few questions the hook engine asks about an x86-64 instruction, answered
 * by Zydis. The library is opened when first needed and stays open: a process
 * that never hooks never loads it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum x86_flow {
        X86_FALLS_THROUGH = 0,
        X86_BRANCH,   /* conditional or not, relative */
        X86_CALL,     /* relative */
        X86_ENDS,     /* ret, int3, ud2, hlt: never reaches the next instruction */
        X86_INDIRECT, /* jump through a register or memory */
};

struct x86_instruction {
        size_t length;      /* bytes */
        enum x86_flow flow; /* calls through a register or memory fall through */
        bool conditional;   /* of a branch */
        bool nop;           /* nop of any length, or endbr64 */
        int push_register;  /* 0..15 for push r64, else -1 */

        /* A position-dependent field: a 32-bit displacement, or a branch distance. */
        bool relative;
        size_t field_offset; /* where it is in the instruction */
        size_t field_bytes;  /* 1 or 4 */
        uintptr_t target;    /* what it refers to, given the address it was decoded at */
};

/* 0; -ENOENT Zydis is not there; -ENOTSUP a version we do not know. */
int x86_open(void);

/* Decode one instruction at `address` whose bytes are in code. 0; -EINVAL not an instruction. */
int x86_decode(const uint8_t *code, size_t size, uintptr_t address,
               struct x86_instruction *ret_instruction);
