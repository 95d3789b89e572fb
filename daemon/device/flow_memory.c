/* SPDX-License-Identifier: Apache-2.0 */

/* What loads, stores and atomic operations do to a flow state, and which are refused. */
#include <string.h>

#include "device/context.h"
#include "device/device_abi.h"
#include "device/flow_span.h"
#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

int flow_check_stack(size_t i, const struct flow_state *state, struct tnum from_end, unsigned bytes,
                     struct refusal *r)
{
        int64_t at = (int64_t)from_end.value;

        if (!tnum_is_const(from_end))
                return 0;
        if (at < -flow_stack_bytes(state) || at + (int64_t)bytes > 0)
                return refuse(r, i, "access outside the stack");
        if (at & (bytes - 1))
                return refuse(r, i, "unaligned access to the stack");
        return 0;
}

static struct tnum distance(const struct value *base, const struct code_insn *insn)
{
        return tnum_add(base->num, tnum_const((uint64_t)(int64_t)insn->off));
}

static int load_context(const struct code *code, size_t i, struct tnum at, unsigned bytes,
                        struct refusal *r, struct value *ret_value)
{
        uint32_t size = context_bytes(code->job->where);

        if (!tnum_is_const(at))
                return refuse(r, i, "the context is read at an offset that is not constant");
        if (at.value >= size || at.value + bytes > size || at.value & (bytes - 1))
                return refuse(r, i, "the context has no field at offset %llu of %u bytes",
                              (unsigned long long)at.value, bytes);
        *ret_value = value_number(tnum_of_size(bytes));
        ret_value->taint.varying = context_varies((uint32_t)at.value, bytes);
        return 0;
}

/* GPUs access memory at multiples of the size only, unlike the CPU the verifier has in mind. */
static int check_alignment(size_t i, struct tnum at, unsigned bytes, struct refusal *r)
{
        if (tnum_alignment(at, bytes) == bytes)
                return 0;
        return refuse(r, i, "an access of %u bytes that may not be aligned", bytes);
}

/*
 * An access is of one slot. In functions' frames the kernel's verifier, which may know more, has
 * seen to that, in reserved records it has not.
 */
static int check_stack(size_t i, const struct flow_state *state, const struct value *base,
                       struct tnum at, unsigned bytes, struct refusal *r)
{
        int error = flow_check_stack(i, state, at, bytes, r);

        if (error || flow_is_frame(base))
                return error;
        return check_alignment(i, at, bytes, r);
}

static int load_stack(size_t i, const struct flow_state *state, const struct value *base,
                      struct tnum at, unsigned bytes, struct refusal *r, struct value *ret_value)
{
        int error = check_stack(i, state, base, at, bytes, r);

        if (error)
                return error;
        if (!tnum_is_const(at)) {
                *ret_value = value_number(tnum_of_size(bytes));
                ret_value->taint = flow_stack_taint(state);
                return 0;
        }
        if (!flow_stack_read(state, (int64_t)at.value, bytes, ret_value))
                return refuse(r, i, "part of an address is read from the stack");
        return 0;
}

/* The bytes at a known place of a map that never changes. */
static struct tnum constant_bytes(const struct device_map_info *map, uint64_t at, unsigned bytes)
{
        uint64_t v = 0;

        if (at + bytes > map->value_size || at + bytes < at)
                return tnum_of_size(bytes);
        memcpy(&v, map->constant + at, bytes);
        return tnum_const(v);
}

static int load_element(const struct code *code, size_t i, const struct value *base, struct tnum at,
                        unsigned bytes, struct refusal *r, struct value *ret_value)
{
        const struct device_map_info *map = &code->job->maps[base->map];
        int error = check_alignment(i, at, bytes, r);

        if (error)
                return error;
        *ret_value = value_number(tnum_of_size(bytes));
        if (!map->constant) {
                ret_value->taint = (struct taint){
                        .varying = true,
                        .maps = (uint8_t)(1u << base->map),
                        .bytes = (uint8_t)bytes,
                        .from = at,
                };
                return 0;
        }
        if (tnum_is_const(at))
                ret_value->num = constant_bytes(map, at.value, bytes);
        else
                ret_value->taint = base->taint; /* the same wherever the place is the same */
        return 0;
}

int flow_step_load(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        const struct code_insn *insn = &code->insns[i];
        const struct value *base = &state->regs[insn->src];
        unsigned bytes = insn_size(insn->code);
        struct tnum at = distance(base, insn);
        struct value result = {};
        int error;

        switch (base->kind) {
        case VALUE_CONTEXT:
                error = load_context(code, i, at, bytes, r, &result);
                break;
        case VALUE_STACK:
                error = load_stack(i, state, base, at, bytes, r, &result);
                break;
        case VALUE_ELEMENT:
                error = load_element(code, i, base, at, bytes, r, &result);
                break;
        default:
                return refuse(r, i, "a load through %s", value_name(base));
        }
        if (error)
                return error;
        if (insn_is_signed_load(insn->code)) {
                if (value_is_address(&result))
                        return refuse(r, i, "%s is used as a number", value_name(&result));
                result.num = tnum_extend_sign(result.num, 8 * bytes);
        }
        result.taint.varying |= base->taint.varying;
        state->regs[insn->dst] = result;
        return 0;
}

static int store_stack(const struct code *code, size_t i, struct flow_state *state,
                       const struct value *v, struct refusal *r)
{
        const struct code_insn *insn = &code->insns[i];
        const struct value *base = &state->regs[insn->dst];
        unsigned bytes = insn_size(insn->code);
        struct tnum at = distance(base, insn);
        int error = check_stack(i, state, base, at, bytes, r);

        if (error)
                return error;
        if (!tnum_is_const(at)) {
                if (value_is_address(v))
                        return refuse(r, i, "%s is stored at a stack address that varies",
                                      value_name(v));
                flow_stack_clobber(state, flow_reach(code, state, base, insn->off, bytes),
                                   v->taint);
                return 0;
        }
        if (!flow_stack_write(state, (int64_t)at.value, bytes, *v))
                return refuse(r, i, "part of an address is stored");
        return 0;
}

/*
 * A warp's element is the leader's, which is the only one of the warp that runs. Where
 * kernels access memory their lanes go different ways, each with a leader of its own.
 */
bool flow_is_private(const struct code *code, unsigned map)
{
        enum device_spread spread = code->job->maps[map].spread;

        return code->job->alone || spread == DEVICE_PER_THREAD ||
               (spread == DEVICE_PER_WARP && code->job->scope != DEVICE_SCOPE_THREAD &&
                code->job->where != DEVICE_MEM);
}

/* Whether a value was made from what an access of `bytes` bytes at `at` of the map would read. */
static bool comes_from(const struct taint *taint, unsigned map, struct tnum at, unsigned bytes)
{
        uint64_t within = (bytes > taint->bytes ? bytes : taint->bytes) - 1;
        struct tnum from = {taint->from.value & ~within, taint->from.mask & ~within}, both;

        at = (struct tnum){at.value & ~within, at.mask & ~within};
        return taint->maps >> map & 1 && tnum_intersect(from, at, &both);
}

static int store_element(const struct code *code, size_t i, const struct value *base,
                         struct tnum at, const struct value *v, struct refusal *r)
{
        const struct device_map_info *map = &code->job->maps[base->map];
        unsigned bytes = insn_size(code->insns[i].code);

        if (value_is_address(v))
                return refuse(r, i, "%s is stored in a map", value_name(v));
        if (map->constant)
                return refuse(r, i, "a store to a variable that is constant");
        if (map->rule == DEVICE_RULE_SETTINGS)
                return refuse(r, i, "a store to map %s, whose settings come from the CPU",
                              map->name);
        if (!flow_is_private(code, base->map) && comes_from(&v->taint, base->map, at, bytes))
                return refuse(r, i,
                              "map %s is read, changed and written back, and another thread may "
                              "do so in between; use an atomic operation, such as "
                              "__sync_fetch_and_add()",
                              map->name);
        return check_alignment(i, at, bytes, r);
}

int flow_step_store(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        const struct code_insn *insn = &code->insns[i];
        const struct value *base = &state->regs[insn->dst];
        struct value v = BPF_CLASS(insn->code) == BPF_STX
                                 ? state->regs[insn->src]
                                 : value_number(tnum_const((uint64_t)(int64_t)insn->imm));

        if (v.kind == VALUE_NONE)
                return refuse(r, i, "r%u is stored before it is written",
                              code_register_name(insn->src));
        v.taint.varying |= base->taint.varying || code->divergent[i];
        switch (base->kind) {
        case VALUE_STACK:
                return store_stack(code, i, state, &v, r);
        case VALUE_ELEMENT:
                return store_element(code, i, base, distance(base, insn), &v, r);
        case VALUE_CONTEXT:
                return refuse(r, i, "the context cannot be written");
        }
        return refuse(r, i, "a store through %s", value_name(base));
}

static bool known_atomic(const struct code_insn *insn)
{
        if (insn_size(insn->code) < 4)
                return false;
        switch (insn->imm & ~BPF_FETCH) {
        case BPF_ADD:
        case BPF_AND:
        case BPF_OR:
        case BPF_XOR:
                return true;
        }
        return insn->imm == BPF_XCHG || insn->imm == BPF_CMPXCHG;
}

static int check_operands(size_t i, const struct code_insn *insn, const struct flow_state *state,
                          struct refusal *r)
{
        const struct value *v = &state->regs[insn->src], *expected = &state->regs[BPF_REG_0];

        if (v->kind != VALUE_NUMBER)
                return refuse(r, i, "%s is used by an atomic operation", value_name(v));
        if (insn->imm == BPF_CMPXCHG && expected->kind != VALUE_NUMBER)
                return refuse(r, i, "%s is compared by an atomic operation", value_name(expected));
        return 0;
}

/* Memory that only this thread has: the operation is a plain one. */
static int atomic_stack(const struct code *code, size_t i, struct flow_state *state, struct tnum at,
                        struct refusal *r, struct value *ret_old)
{
        const struct code_insn *insn = &code->insns[i];
        const struct value *base = &state->regs[insn->dst];
        unsigned bytes = insn_size(insn->code);
        struct value v = value_number(tnum_of_size(bytes));
        int error = load_stack(i, state, base, at, bytes, r, ret_old);

        if (error)
                return error;
        if (value_is_address(ret_old))
                return refuse(r, i, "%s is used as a number", value_name(ret_old));
        ret_old->taint.varying |= base->taint.varying;
        v.taint = taint_join(ret_old->taint, state->regs[insn->src].taint);
        v.taint.varying |= code->divergent[i];
        if (insn->imm == BPF_CMPXCHG)
                v.taint = taint_join(v.taint, state->regs[BPF_REG_0].taint);
        return store_stack(code, i, state, &v, r);
}

static int atomic_element(const struct code *code, size_t i, const struct value *base,
                          struct tnum at, struct refusal *r, struct value *ret_old)
{
        const struct device_map_info *map = &code->job->maps[base->map];
        unsigned bytes = insn_size(code->insns[i].code);

        if (map->placement == GPUOBS_PLACE_HOST)
                return refuse(r, i,
                              "an atomic operation on map %s, which lives in host memory: it would "
                              "wait for the PCIe bus in every kernel; count in a map placed on the "
                              "device",
                              map->name);
        if (map->constant)
                return refuse(r, i, "an atomic operation on a variable that is constant");
        if (map->rule == DEVICE_RULE_SETTINGS)
                return refuse(r, i,
                              "an atomic operation on map %s, whose settings come from the CPU",
                              map->name);
        *ret_old = value_number(tnum_of_size(bytes));
        ret_old->taint.varying = true;
        return check_alignment(i, at, bytes, r);
}

int flow_step_atomic(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        const struct code_insn *insn = &code->insns[i];
        const struct value *base = &state->regs[insn->dst];
        struct tnum at = distance(base, insn);
        struct value old;
        int error;

        if (!known_atomic(insn))
                return refuse(r, i, "unknown atomic instruction 0x%x", insn->imm);
        error = check_operands(i, insn, state, r);
        if (error)
                return error;
        switch (base->kind) {
        case VALUE_STACK:
                error = atomic_stack(code, i, state, at, r, &old);
                break;
        case VALUE_ELEMENT:
                error = atomic_element(code, i, base, at, r, &old);
                break;
        default:
                return refuse(r, i, "an atomic operation on %s", value_name(base));
        }
        if (!error && insn->imm & BPF_FETCH)
                state->regs[insn->imm == BPF_CMPXCHG ? BPF_REG_0 : insn->src] = old;
        return error;
}
