/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads instructions of PTX that access memory: how many bytes, where, what for. The
 * width of a register comes from its declaration: an address of 32 bits is extended
 * by zeros.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx_lex.h"

/* The registers that are declared where the parser is. */
struct ptx_registers {
        struct ptx_declaration *at; /* owned */
        size_t count, room;
};

/*
 * Note a declaration; the lexer stands behind `.reg`. `depth` is that of the braces
 * around it. False without memory; what cannot be read is left out.
 */
bool ptx_registers_add(struct ptx_registers *r, struct ptx_lexer lexer, size_t depth);
/* Forget the declarations deeper than `depth`. */
void ptx_registers_leave(struct ptx_registers *r, size_t depth);
void ptx_registers_done(struct ptx_registers *r);

struct ptx_access {
        uint8_t size;                /* bytes */
        uint8_t kind;                /* enum gpuobs_access_kind */
        uint8_t space;               /* enum gpuobs_space */
        bool is_narrow;              /* the base is a register of 32 bits */
        size_t base, base_bytes;     /* in the text */
        size_t offset, offset_bytes; /* likewise, with its sign; 0 bytes: there is none */
};

enum ptx_access_class {
        PTX_ACCESS_NONE, /* the instruction does not access memory, or reads parameters */
        PTX_ACCESS_PLAIN,
        PTX_ACCESS_OTHER, /* it does, in a way without an address for each thread, or not understood
                           */
};

/*
 * Look at an instruction: its opcode, and the lexer behind it. Only for
 * PTX_ACCESS_PLAIN is *ret_access filled in.
 */
enum ptx_access_class ptx_access_read(struct ptx_lexer lexer, const struct ptx_token *opcode,
                                      const struct ptx_registers *registers,
                                      struct ptx_access *ret_access);
