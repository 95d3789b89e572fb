/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Special registers and what the lanes of a warp do together. */
#include "ptx_ir.h"

enum ptx_special {
        PTX_SR_TID_X,
        PTX_SR_TID_Y,
        PTX_SR_TID_Z,
        PTX_SR_NTID_X,
        PTX_SR_NTID_Y,
        PTX_SR_NTID_Z,
        PTX_SR_CTAID_X,
        PTX_SR_CTAID_Y,
        PTX_SR_CTAID_Z,
        PTX_SR_NCTAID_X,
        PTX_SR_NCTAID_Y,
        PTX_SR_NCTAID_Z,
        PTX_SR_ZERO,
        PTX_SR_LANEID,
        PTX_SR_WARPID,
        PTX_SR_NWARPID,
        PTX_SR_WARPSIZE,
        PTX_SR_SMID,
        PTX_SR_NSMID,
        PTX_SR_GRIDID,
        PTX_SR_GLOBALTIMER,
        PTX_SR_GLOBALTIMER_LO,
        PTX_SR_GLOBALTIMER_HI,
        PTX_SR_CLOCK,
        PTX_SR_CLOCK_HI,
        PTX_SR_CLOCK64,
        PTX_SR_LANEMASK_EQ,
        PTX_SR_LANEMASK_LE,
        PTX_SR_LANEMASK_LT,
        PTX_SR_LANEMASK_GE,
        PTX_SR_LANEMASK_GT,
        PTX_SR_DYNAMIC_SMEM,
        PTX_SR_TOTAL_SMEM,
        PTX_SR_ENVREG0, /* the others follow */
        PTX_SR_ENVREG31 = PTX_SR_ENVREG0 + 31,
};

/* A special register by its name ("%tid.x"), with its type. false: not one we know. */
bool ptx_special_find(const char *name, enum ptx_special *ret_special, enum ptx_type *ret_type);

/* Whether an instruction of a type may read it; %gridid may be read as 32 bits. */
bool ptx_special_fits(enum ptx_special special, enum ptx_type own, enum ptx_type type);

/* dst = special register `sub`, as `type`. */
void ptx_op_special(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);

enum ptx_shuffle {
        PTX_SHFL_UP,
        PTX_SHFL_DOWN,
        PTX_SHFL_BFLY,
        PTX_SHFL_IDX,
};

enum ptx_vote {
        PTX_VOTE_ALL,
        PTX_VOTE_ANY,
        PTX_VOTE_UNI,
        PTX_VOTE_BALLOT,
};

enum ptx_redux {
        PTX_REDUX_ADD,
        PTX_REDUX_MIN,
        PTX_REDUX_MAX,
        PTX_REDUX_AND,
        PTX_REDUX_OR,
        PTX_REDUX_XOR,
};

void ptx_op_shfl(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_vote(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_match(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_redux(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_activemask(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_elect(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
void ptx_op_nothing(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask);
