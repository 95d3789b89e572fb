/* SPDX-License-Identifier: Apache-2.0 */
#include "ptx_warp.h"

#include <stdlib.h>
#include <time.h>

static const struct {
        const char *name;
        enum ptx_special special;
        enum ptx_type type;
} specials[] = {
        {"%tid.x", PTX_SR_TID_X, PTX_U32},
        {"%tid.y", PTX_SR_TID_Y, PTX_U32},
        {"%tid.z", PTX_SR_TID_Z, PTX_U32},
        {"%ntid.x", PTX_SR_NTID_X, PTX_U32},
        {"%ntid.y", PTX_SR_NTID_Y, PTX_U32},
        {"%ntid.z", PTX_SR_NTID_Z, PTX_U32},
        {"%ctaid.x", PTX_SR_CTAID_X, PTX_U32},
        {"%ctaid.y", PTX_SR_CTAID_Y, PTX_U32},
        {"%ctaid.z", PTX_SR_CTAID_Z, PTX_U32},
        {"%nctaid.x", PTX_SR_NCTAID_X, PTX_U32},
        {"%nctaid.y", PTX_SR_NCTAID_Y, PTX_U32},
        {"%nctaid.z", PTX_SR_NCTAID_Z, PTX_U32},
        {"%tid.w", PTX_SR_ZERO, PTX_U32},
        {"%ctaid.w", PTX_SR_ZERO, PTX_U32},
        {"%laneid", PTX_SR_LANEID, PTX_U32},
        {"%warpid", PTX_SR_WARPID, PTX_U32},
        {"%nwarpid", PTX_SR_NWARPID, PTX_U32},
        {"WARP_SZ", PTX_SR_WARPSIZE, PTX_U32},
        {"%smid", PTX_SR_SMID, PTX_U32},
        {"%nsmid", PTX_SR_NSMID, PTX_U32},
        {"%gridid", PTX_SR_GRIDID, PTX_U64},
        {"%globaltimer", PTX_SR_GLOBALTIMER, PTX_U64},
        {"%globaltimer_lo", PTX_SR_GLOBALTIMER_LO, PTX_U32},
        {"%globaltimer_hi", PTX_SR_GLOBALTIMER_HI, PTX_U32},
        {"%clock", PTX_SR_CLOCK, PTX_U32},
        {"%clock_hi", PTX_SR_CLOCK_HI, PTX_U32},
        {"%clock64", PTX_SR_CLOCK64, PTX_U64},
        {"%lanemask_eq", PTX_SR_LANEMASK_EQ, PTX_U32},
        {"%lanemask_le", PTX_SR_LANEMASK_LE, PTX_U32},
        {"%lanemask_lt", PTX_SR_LANEMASK_LT, PTX_U32},
        {"%lanemask_ge", PTX_SR_LANEMASK_GE, PTX_U32},
        {"%lanemask_gt", PTX_SR_LANEMASK_GT, PTX_U32},
        {"%dynamic_smem_size", PTX_SR_DYNAMIC_SMEM, PTX_U32},
        {"%total_smem_size", PTX_SR_TOTAL_SMEM, PTX_U32},
};

static bool find_envreg(const char *name, enum ptx_special *ret_special)
{
        static const char prefix[] = "%envreg";
        size_t length = sizeof(prefix) - 1;
        char *end;
        unsigned long n;

        if (strncmp(name, prefix, length) != 0 || name[length] < '0' || name[length] > '9')
                return false;
        n = strtoul(name + length, &end, 10);
        *ret_special = (enum ptx_special)(PTX_SR_ENVREG0 + n);
        return *end == '\0' && n < 32;
}

bool ptx_special_find(const char *name, enum ptx_special *ret_special, enum ptx_type *ret_type)
{
        for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
                if (strcmp(specials[i].name, name) == 0) {
                        *ret_special = specials[i].special;
                        *ret_type = specials[i].type;
                        return true;
                }
        }
        *ret_type = PTX_U32;
        return find_envreg(name, ret_special);
}

bool ptx_special_fits(enum ptx_special special, enum ptx_type own, enum ptx_type type)
{
        unsigned bytes = ptx_type_bytes(type);

        if (ptx_type_float(type))
                return false;
        return bytes == ptx_type_bytes(own) || (special == PTX_SR_GRIDID && bytes == 4);
}

static uint64_t timer(struct ptx_machine *machine)
{
        struct timespec now;

        ptx_charge(machine);
        if (machine->env->globaltimer)
                return machine->env->globaltimer(machine->env->userdata);
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static uint64_t thread_index(const struct ptx_warp *warp, enum ptx_special special, unsigned lane)
{
        const uint32_t *block = warp->machine->launch->block;
        uint32_t thread = warp->index * PTX_WARP + lane;

        switch (special) {
        case PTX_SR_TID_X:
                return block[1] == 1 && block[2] == 1 ? thread : thread % block[0];
        case PTX_SR_TID_Y:
                return thread / block[0] % block[1];
        default:
                return thread / block[0] / block[1];
        }
}

static uint64_t lane_value(const struct ptx_warp *warp, enum ptx_special special, unsigned lane)
{
        uint32_t bit = 1u << lane;

        switch (special) {
        case PTX_SR_LANEID:
                return lane;
        case PTX_SR_LANEMASK_EQ:
                return bit;
        case PTX_SR_LANEMASK_LT:
                return bit - 1;
        case PTX_SR_LANEMASK_LE:
                return bit | (bit - 1);
        case PTX_SR_LANEMASK_GE:
                return ~(bit - 1);
        case PTX_SR_LANEMASK_GT:
                return ~(bit | (bit - 1));
        default:
                return thread_index(warp, special, lane);
        }
}

/* The same for every lane of the warp. */
static uint64_t warp_value(struct ptx_warp *warp, enum ptx_special special)
{
        struct ptx_machine *machine = warp->machine;
        const struct ptx_launch *launch = machine->launch;

        switch (special) {
        case PTX_SR_NTID_X:
        case PTX_SR_NTID_Y:
        case PTX_SR_NTID_Z:
                return launch->block[special - PTX_SR_NTID_X];
        case PTX_SR_CTAID_X:
        case PTX_SR_CTAID_Y:
        case PTX_SR_CTAID_Z:
                return warp->block->index[special - PTX_SR_CTAID_X];
        case PTX_SR_NCTAID_X:
        case PTX_SR_NCTAID_Y:
        case PTX_SR_NCTAID_Z:
                return launch->grid[special - PTX_SR_NCTAID_X];
        case PTX_SR_WARPID:
                return warp->index;
        case PTX_SR_NWARPID:
                return 64;
        case PTX_SR_WARPSIZE:
                return PTX_WARP;
        case PTX_SR_SMID:
                return warp->block->smid;
        case PTX_SR_NSMID:
                return machine->env->sm_count ? machine->env->sm_count : 1;
        case PTX_SR_GRIDID:
                return launch->gridid;
        case PTX_SR_GLOBALTIMER:
                return timer(machine);
        case PTX_SR_GLOBALTIMER_LO:
                return (uint32_t)timer(machine);
        case PTX_SR_GLOBALTIMER_HI:
                return timer(machine) >> 32;
        case PTX_SR_CLOCK:
                return (uint32_t)machine->instructions;
        case PTX_SR_CLOCK_HI:
                return machine->instructions >> 32;
        case PTX_SR_CLOCK64:
                return machine->instructions;
        case PTX_SR_DYNAMIC_SMEM:
                return launch->shared_bytes;
        case PTX_SR_TOTAL_SMEM:
                return warp->block->shared_bytes;
        default:
                return 0;
        }
}

static uint64_t envreg_value(const struct ptx_warp *warp, enum ptx_special special)
{
        uint32_t value;

        memcpy(&value, warp->machine->bank + PTX_BANK_ENVREGS + 4 * (special - PTX_SR_ENVREG0),
               sizeof(value));
        return value;
}

static bool differs_by_lane(enum ptx_special special)
{
        return special <= PTX_SR_TID_Z || special == PTX_SR_LANEID ||
               (special >= PTX_SR_LANEMASK_EQ && special <= PTX_SR_LANEMASK_GT);
}

void ptx_op_special(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        enum ptx_special special = (enum ptx_special)insn->sub;
        uint64_t *dst = ptx_dst(warp, insn->dst);
        uint64_t value;

        if (differs_by_lane(special)) {
                PTX_LANES(mask, lane)
                dst[lane] = lane_value(warp, special, lane);
                return;
        }
        value = special >= PTX_SR_ENVREG0 ? envreg_value(warp, special) : warp_value(warp, special);
        value = ptx_truncate(value, ptx_type_bytes((enum ptx_type)insn->type));
        PTX_LANES(mask, lane)
        dst[lane] = value;
}

/* The lane a shuffle reads from, and whether it lies in range. */
static unsigned shuffle_source(enum ptx_shuffle mode, unsigned lane, uint32_t b, uint32_t c,
                               bool *ret_in_range)
{
        unsigned segment = c >> 8 & 31, clamp = c & 31;
        int top = (int)((lane & segment) | (clamp & ~segment));
        int bottom = (int)(lane & segment), source;

        b &= 31;
        switch (mode) {
        case PTX_SHFL_UP:
                source = (int)lane - (int)b;
                *ret_in_range = source >= top;
                break;
        case PTX_SHFL_DOWN:
                source = (int)(lane + b);
                *ret_in_range = source <= top;
                break;
        case PTX_SHFL_BFLY:
                source = (int)(lane ^ b);
                *ret_in_range = source <= top;
                break;
        default:
                source = bottom | (int)(b & ~segment);
                *ret_in_range = source <= top;
                break;
        }
        return *ret_in_range ? (unsigned)source & 31 : lane;
}

void ptx_op_shfl(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        uint64_t values[PTX_WARP] = {0};

        PTX_LANES(mask, lane)
        values[lane] = ptx_read(warp, insn->src[0], lane);
        PTX_LANES(mask, lane)
        {
                uint32_t b = (uint32_t)ptx_read(warp, insn->src[1], lane);
                uint32_t c = (uint32_t)ptx_read(warp, insn->src[2], lane);
                bool in_range;
                unsigned from = shuffle_source((enum ptx_shuffle)insn->sub, lane, b, c, &in_range);

                /* Reading from a lane that does not take part is undefined: we give its own. */
                ptx_dst(warp, insn->dst)[lane] = values[mask >> from & 1 ? from : lane];
                if (insn->dst2 >= 0)
                        ptx_dst(warp, insn->dst2)[lane] = in_range;
        }
}

static uint32_t true_lanes(const struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        uint32_t result = 0;

        PTX_LANES(mask, lane)
        result |= (uint32_t)((ptx_read(warp, insn->src[0], lane) & 1) ^ insn->sub2) << lane;
        return result;
}

void ptx_op_vote(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        uint32_t votes = true_lanes(warp, insn, mask);
        uint64_t result = 0;

        switch ((enum ptx_vote)insn->sub) {
        case PTX_VOTE_ALL:
                result = votes == mask;
                break;
        case PTX_VOTE_ANY:
                result = votes != 0;
                break;
        case PTX_VOTE_UNI:
                result = votes == mask || votes == 0;
                break;
        case PTX_VOTE_BALLOT:
                result = votes;
                break;
        }
        PTX_LANES(mask, lane)
        ptx_dst(warp, insn->dst)[lane] = result;
}

/* sub 0: the lanes with the same value; 1: all lanes, if they all have it. */
void ptx_op_match(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type);
        uint32_t same[PTX_WARP] = {0};

        PTX_LANES(mask, lane)
        {
                uint64_t value = ptx_truncate(ptx_read(warp, insn->src[0], lane), bytes);

                for (unsigned other = 0; other < PTX_WARP; other++) {
                        if ((mask >> other & 1) &&
                            ptx_truncate(ptx_read(warp, insn->src[0], other), bytes) == value)
                                same[lane] |= 1u << other;
                }
        }
        PTX_LANES(mask, lane)
        {
                bool all = same[lane] == mask;

                ptx_dst(warp, insn->dst)[lane] = insn->sub ? (all ? mask : 0) : same[lane];
                if (insn->dst2 >= 0)
                        ptx_dst(warp, insn->dst2)[lane] = all;
        }
}

static uint32_t reduce(const struct ptx_insn *insn, uint32_t a, uint32_t b)
{
        bool is_signed = insn->type == PTX_S32;
        bool b_less = is_signed ? (int32_t)b < (int32_t)a : b < a;

        switch ((enum ptx_redux)insn->sub) {
        case PTX_REDUX_ADD:
                return a + b;
        case PTX_REDUX_MIN:
                return b_less ? b : a;
        case PTX_REDUX_MAX:
                return b_less ? a : b;
        case PTX_REDUX_AND:
                return a & b;
        case PTX_REDUX_OR:
                return a | b;
        default:
                return a ^ b;
        }
}

void ptx_op_redux(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        unsigned first = (unsigned)__builtin_ctz(mask);
        uint32_t result = (uint32_t)ptx_read(warp, insn->src[0], first);

        PTX_LANES(mask & (mask - 1), lane)
        result = reduce(insn, result, (uint32_t)ptx_read(warp, insn->src[0], lane));
        PTX_LANES(mask, lane)
        ptx_dst(warp, insn->dst)[lane] = result;
}

void ptx_op_activemask(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        PTX_LANES(mask, lane)
        ptx_dst(warp, insn->dst)[lane] = mask;
}

/* The lowest lane is elected. */
void ptx_op_elect(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        uint32_t leader = (uint32_t)__builtin_ctz(mask);

        PTX_LANES(mask, lane)
        {
                ptx_dst(warp, insn->dst)[lane] = leader;
                if (insn->dst2 >= 0)
                        ptx_dst(warp, insn->dst2)[lane] = lane == leader;
        }
}

void ptx_op_nothing(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
}
