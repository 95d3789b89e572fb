/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Instructions that only read and write registers, as a table the parser searches. */
#include "ptx_ir.h"

/*
 * signature: one character per operand, destination first:
 *   t the instruction's type   w twice as wide   u 32-bit integer   p predicate
 *   C writes the carry (no operand)   c reads the carry (no operand)
 * ignorable: modifiers, each between spaces, that do not change what is computed
 * here (a correctly rounded result is a valid approximation); when it begins with
 * '!', one of them must be given.
 */
struct ptx_simple_op {
        const char *name;
        const char *variant; /* modifiers that select this entry, in order, or "" */
        enum ptx_type type;
        const char *signature;
        const char *ignorable;
        ptx_handler fn;
};

extern const struct ptx_simple_op ptx_simple_ops[];
extern const size_t ptx_simple_op_count;

enum ptx_compare {
        PTX_EQ,
        PTX_NE,
        PTX_LT,
        PTX_LE,
        PTX_GT,
        PTX_GE,
        PTX_EQU, /* true also when unordered, as the rest below */
        PTX_NEU,
        PTX_LTU,
        PTX_LEU,
        PTX_GTU,
        PTX_GEU,
        PTX_NUM, /* both are numbers */
        PTX_NAN, /* one is not */
};

enum ptx_bool {
        PTX_BOOL_NONE,
        PTX_BOOL_AND,
        PTX_BOOL_OR,
        PTX_BOOL_XOR,
};

/*
 * setp: dst = (src0 sub src1) sub2 src2, dst2 the same of the negated comparison.
 * set: dst = all ones (type2 integer) or 1.0f.
 */
void ptx_op_setp(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_set(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);

/* mov of whole slots, and between a register and its parts (vectors). */
void ptx_op_move(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_pack(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_unpack(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);

/* dst = !src0, a predicate. */
void ptx_op_not_pred(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);

enum ptx_rounding {
        PTX_ROUND_DEFAULT,
        PTX_ROUND_NEAREST,
        PTX_ROUND_ZERO,
        PTX_ROUND_DOWN,
        PTX_ROUND_UP,
};

/* cvt: dst (type) = src0 (type2); sub is the rounding to an integer, sub2 1 to saturate. */
void ptx_op_cvt(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
