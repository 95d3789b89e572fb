/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Loads, stores, atomics and conversions between address spaces. */
#include "ptx_ir.h"

enum ptx_atomic {
        PTX_ATOM_ADD,
        PTX_ATOM_MIN,
        PTX_ATOM_MAX,
        PTX_ATOM_AND,
        PTX_ATOM_OR,
        PTX_ATOM_XOR,
        PTX_ATOM_EXCH,
        PTX_ATOM_CAS,
        PTX_ATOM_INC,
        PTX_ATOM_DEC,
};

/*
 * [src0 + offset] in `space`, `vec` elements of `type`; src0 may be an immediate.
 * ld: dst, or vectors[dst …]; type2 is the register's type, to which the value is
 * extended. st: src1, or vectors[src1 …]. atom: src1, and src2 for cas; dst -1 for red.
 */
void ptx_op_ld(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_st(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_atom(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);

/* cvta between `space` and generic; sub 1: from generic. */
void ptx_op_cvta(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);

/* isspacep: whether the generic address src0 is in `space`. */
void ptx_op_isspacep(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
