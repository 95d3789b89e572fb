/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

int refuse(struct refusal *r, size_t insn, const char *format, ...)
{
        va_list args;

        r->insn = insn;
        va_start(args, format);
        vsnprintf(r->reason, sizeof(r->reason), format, args);
        va_end(args);
        return -ENOTSUP;
}

/* What an address is, for messages. */
static const char *kind_name(const struct value *v)
{
        switch (v->kind) {
        case VALUE_NONE:
                return "a register that was never written";
        case VALUE_NUMBER:
                return "a number";
        case VALUE_CONTEXT:
                return "the context pointer";
        case VALUE_STACK:
                return "a stack address";
        case VALUE_MAP:
                return "a map";
        case VALUE_ELEMENT:
                return "the address of a map element";
        }
        return "something that differs between paths";
}

static bool valid_registers(const struct bpf_insn *insn)
{
        return insn->dst_reg < FLOW_REGISTERS && insn->src_reg < FLOW_REGISTERS;
}

struct value flow_operand(const struct compile_job *job, size_t i, const struct flow_state *state)
{
        const struct bpf_insn *insn = &job->insns[i];

        if (insn_uses_register(insn))
                return state->regs[insn->src_reg];
        return value_number(tnum_const((uint64_t)(int64_t)insn->imm));
}

/* Arithmetic */

static int64_t shift_amount(struct tnum b, unsigned width)
{
        return tnum_is_const(b) ? (int64_t)(b.value & (width - 1)) : -1;
}

static struct tnum divide(uint8_t op, struct tnum a, struct tnum b)
{
        if (!tnum_is_const(a) || !tnum_is_const(b)) {
                /* A remainder by a power of two is a mask: keys are often made this way. */
                if (op == BPF_MOD && tnum_is_const(b) && b.value && !(b.value & (b.value - 1)))
                        return tnum_and(a, tnum_const(b.value - 1));
                return TNUM_UNKNOWN;
        }
        if (op == BPF_DIV)
                return tnum_const(b.value ? a.value / b.value : 0);
        return tnum_const(b.value ? a.value % b.value : a.value);
}

/* What is known of the result; operands of 32-bit operations come zero-extended. */
static struct tnum number_result(uint8_t op, unsigned width, struct tnum a, struct tnum b)
{
        int64_t shift = shift_amount(b, width);

        switch (op) {
        case BPF_ADD:
                return tnum_add(a, b);
        case BPF_SUB:
                return tnum_sub(a, b);
        case BPF_MUL:
                return tnum_mul(a, b);
        case BPF_DIV:
        case BPF_MOD:
                return divide(op, a, b);
        case BPF_AND:
                return tnum_and(a, b);
        case BPF_OR:
                return tnum_or(a, b);
        case BPF_XOR:
                return tnum_xor(a, b);
        case BPF_NEG:
                return tnum_sub(tnum_const(0), a);
        case BPF_MOV:
                return b;
        case BPF_LSH:
                return shift < 0 ? TNUM_UNKNOWN : tnum_lsh(a, (unsigned)shift);
        case BPF_RSH:
                return shift < 0 ? TNUM_UNKNOWN : tnum_rsh(a, (unsigned)shift);
        }
        return TNUM_UNKNOWN;
}

static bool known_operation(const struct bpf_insn *insn)
{
        switch (BPF_OP(insn->code)) {
        case BPF_ADD:
        case BPF_SUB:
        case BPF_MUL:
        case BPF_DIV:
        case BPF_MOD:
        case BPF_AND:
        case BPF_OR:
        case BPF_XOR:
        case BPF_NEG:
        case BPF_MOV:
        case BPF_LSH:
        case BPF_RSH:
        case BPF_ARSH:
                return true;
        case BPF_END:
                return BPF_CLASS(insn->code) == BPF_ALU &&
                       (insn->imm == 16 || insn->imm == 32 || insn->imm == 64);
        }
        return false;
}

/* Address arithmetic: moves, additions and subtractions of 64 bits; *ret_done when it was that. */
static int step_address(const struct compile_job *job, size_t i, struct flow_state *state,
                        struct refusal *r, bool *ret_done)
{
        const struct bpf_insn *insn = &job->insns[i];
        struct value *dst = &state->regs[insn->dst_reg], src = flow_operand(job, i, state);
        uint8_t op = BPF_OP(insn->code);
        bool wide = BPF_CLASS(insn->code) == BPF_ALU64;

        if (op == BPF_MOV && wide && value_is_address(&src) && insn->off == 0) {
                *dst = src;
                *ret_done = true;
                return 0;
        }
        if (op == BPF_MOV && !value_is_address(&src))
                return 0;
        if (!value_is_address(&src) && !value_is_address(dst))
                return 0;
        if (op == BPF_NEG || op == BPF_END)
                src = value_number(tnum_const(0));
        *ret_done = true;
        if (wide && op == BPF_ADD && dst->kind == VALUE_NUMBER &&
            (src.kind == VALUE_ELEMENT || src.kind == VALUE_STACK)) {
                src.num = tnum_add(src.num, dst->num);
                *dst = src;
                return 0;
        }
        if (wide && (op == BPF_ADD || op == BPF_SUB) && src.kind == VALUE_NUMBER &&
            (dst->kind == VALUE_ELEMENT || dst->kind == VALUE_STACK ||
             dst->kind == VALUE_CONTEXT)) {
                dst->num =
                        op == BPF_ADD ? tnum_add(dst->num, src.num) : tnum_sub(dst->num, src.num);
                return 0;
        }
        if (wide && op == BPF_SUB && dst->kind == VALUE_ELEMENT && src.kind == VALUE_ELEMENT &&
            dst->map == src.map) {
                *dst = value_number(TNUM_UNKNOWN);
                return 0;
        }
        return refuse(r, i, "%s is used as a number",
                      kind_name(value_is_address(dst) && op != BPF_MOV ? dst : &src));
}

static int step_alu(const struct compile_job *job, size_t i, struct flow_state *state,
                    struct refusal *r)
{
        const struct bpf_insn *insn = &job->insns[i];
        struct value *dst = &state->regs[insn->dst_reg], src = flow_operand(job, i, state);
        unsigned width = BPF_CLASS(insn->code) == BPF_ALU64 ? 64 : 32;
        uint8_t op = BPF_OP(insn->code);
        bool done = false;
        int error;

        if (!known_operation(insn))
                return refuse(r, i, "unknown arithmetic instruction 0x%02x", insn->code);
        if (insn->off != 0)
                return refuse(r, i, "signed division and sign-extending moves are not supported");
        if (op != BPF_MOV && dst->kind == VALUE_NONE)
                return refuse(r, i, "r%u is used before it is written", insn->dst_reg);
        if (src.kind == VALUE_NONE && op != BPF_NEG && op != BPF_END)
                return refuse(r, i, "r%u is used before it is written", insn->src_reg);
        error = step_address(job, i, state, r, &done);
        if (error || done)
                return error;
        if (op == BPF_END) {
                *dst = value_number(tnum_of_size((unsigned)insn->imm / 8));
        } else if (width == 32) {
                *dst = value_number(tnum_low32(
                        number_result(op, 32, tnum_low32(dst->num), tnum_low32(src.num))));
        } else {
                *dst = value_number(number_result(op, 64, dst->num, src.num));
        }
        return 0;
}

/* Memory */

/* Check an access of `bytes` bytes at distance `from_end` of the stack. */
static int check_stack(size_t i, struct tnum from_end, unsigned bytes, struct refusal *r)
{
        int64_t at = (int64_t)from_end.value;

        if (!tnum_is_const(from_end))
                return 0;
        if (at < -FLOW_STACK_BYTES || at + (int64_t)bytes > 0)
                return refuse(r, i, "access outside the stack");
        if (at & (bytes - 1))
                return refuse(r, i, "unaligned access to the stack");
        return 0;
}

static struct tnum distance(const struct value *base, const struct bpf_insn *insn)
{
        return tnum_add(base->num, tnum_const((uint64_t)(int64_t)insn->off));
}

static int load_context(size_t i, struct tnum at, unsigned bytes, struct refusal *r,
                        struct value *ret_value)
{
        if (!tnum_is_const(at))
                return refuse(r, i, "the context is read at an offset that is not constant");
        if (at.value >= sizeof(struct gpuobs_kernel_ctx) ||
            at.value + bytes > sizeof(struct gpuobs_kernel_ctx) || at.value & (bytes - 1))
                return refuse(r, i, "the context has no field at offset %llu of %u bytes",
                              (unsigned long long)at.value, bytes);
        *ret_value = value_number(tnum_of_size(bytes));
        return 0;
}

static int load_stack(size_t i, const struct flow_state *state, struct tnum at, unsigned bytes,
                      struct refusal *r, struct value *ret_value)
{
        int error = check_stack(i, at, bytes, r);

        if (error)
                return error;
        *ret_value = value_number(tnum_of_size(bytes));
        if (tnum_is_const(at) && !flow_stack_read(state, (int64_t)at.value, bytes, ret_value))
                return refuse(r, i, "part of an address is read from the stack");
        return 0;
}

static int step_load(const struct compile_job *job, size_t i, struct flow_state *state,
                     struct refusal *r)
{
        const struct bpf_insn *insn = &job->insns[i];
        const struct value *base = &state->regs[insn->src_reg];
        struct value result = value_number(tnum_of_size(insn_size(insn)));
        struct tnum at = distance(base, insn);
        int error = 0;

        switch (base->kind) {
        case VALUE_CONTEXT:
                error = load_context(i, at, insn_size(insn), r, &result);
                break;
        case VALUE_STACK:
                error = load_stack(i, state, at, insn_size(insn), r, &result);
                break;
        case VALUE_ELEMENT:
                break;
        default:
                error = refuse(r, i, "a load through %s", kind_name(base));
        }
        if (!error)
                state->regs[insn->dst_reg] = result;
        return error;
}

static int store_stack(size_t i, struct flow_state *state, struct tnum at, unsigned bytes,
                       const struct value *v, struct refusal *r)
{
        int error = check_stack(i, at, bytes, r);

        if (error)
                return error;
        if (!tnum_is_const(at)) {
                if (value_is_address(v))
                        return refuse(r, i, "%s is stored at a stack address that varies",
                                      kind_name(v));
                flow_stack_clobber(state);
                return 0;
        }
        if (!flow_stack_write(state, (int64_t)at.value, bytes, *v))
                return refuse(r, i, "part of an address is stored");
        return 0;
}

static int step_store(const struct compile_job *job, size_t i, struct flow_state *state,
                      struct refusal *r)
{
        const struct bpf_insn *insn = &job->insns[i];
        const struct value *base = &state->regs[insn->dst_reg];
        struct value v = BPF_CLASS(insn->code) == BPF_STX
                                 ? state->regs[insn->src_reg]
                                 : value_number(tnum_const((uint64_t)(int64_t)insn->imm));

        if (v.kind == VALUE_NONE)
                return refuse(r, i, "r%u is stored before it is written", insn->src_reg);
        switch (base->kind) {
        case VALUE_STACK:
                return store_stack(i, state, distance(base, insn), insn_size(insn), &v, r);
        case VALUE_ELEMENT:
                if (value_is_address(&v))
                        return refuse(r, i, "%s is stored in a map", kind_name(&v));
                return 0;
        case VALUE_CONTEXT:
                return refuse(r, i, "the context cannot be written");
        }
        return refuse(r, i, "a store through %s", kind_name(base));
}

static bool known_atomic(const struct bpf_insn *insn)
{
        if (insn_size(insn) < 4)
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

static int check_atomic(const struct compile_job *job, size_t i, const struct flow_state *state,
                        struct refusal *r)
{
        const struct bpf_insn *insn = &job->insns[i];
        const struct value *base = &state->regs[insn->dst_reg];

        if (!known_atomic(insn))
                return refuse(r, i, "unknown atomic instruction 0x%x", insn->imm);
        if (base->kind != VALUE_ELEMENT)
                return refuse(r, i, "an atomic operation on %s; only map elements can be shared",
                              kind_name(base));
        if (job->maps[base->map].placement == GPUOBS_PLACE_HOST)
                return refuse(r, i,
                              "an atomic operation on map %s, which lives in host memory: it would "
                              "wait for the PCIe bus in every kernel; count in a map placed on the "
                              "device",
                              job->maps[base->map].name);
        if (state->regs[insn->src_reg].kind != VALUE_NUMBER)
                return refuse(r, i, "%s is stored in a map",
                              kind_name(&state->regs[insn->src_reg]));
        if (insn->imm == BPF_CMPXCHG && state->regs[BPF_REG_0].kind != VALUE_NUMBER)
                return refuse(r, i, "%s is compared with a map value",
                              kind_name(&state->regs[BPF_REG_0]));
        return 0;
}

static int step_atomic(const struct compile_job *job, size_t i, struct flow_state *state,
                       struct refusal *r)
{
        const struct bpf_insn *insn = &job->insns[i];
        int error = check_atomic(job, i, state, r);

        if (error)
                return error;
        if (insn->imm & BPF_FETCH)
                state->regs[insn->imm == BPF_CMPXCHG ? BPF_REG_0 : insn->src_reg] =
                        value_number(tnum_of_size(insn_size(insn)));
        return 0;
}

static int step_wide(const struct compile_job *job, size_t i, struct flow_state *state,
                     struct refusal *r)
{
        const struct bpf_insn *insn = &job->insns[i];
        struct value *dst = &state->regs[insn->dst_reg];

        switch (insn->src_reg) {
        case 0:
                *dst = value_number(tnum_const(insn_wide_constant(insn)));
                return 0;
        case BPF_PSEUDO_MAP_FD:
                if (insn->imm < 0 || (size_t)insn->imm >= job->map_count)
                        return refuse(r, i, "reference to an unknown map");
                *dst = (struct value){.kind = VALUE_MAP, .map = (uint8_t)insn->imm};
                return 0;
        }
        return refuse(r, i, "global variables and function addresses are not supported");
}

/* Helpers */

#define HELPER_NAME(name) [BPF_FUNC_##name] = #name
static const char *const helper_names[] = {__BPF_FUNC_MAPPER(HELPER_NAME)};
#undef HELPER_NAME

static int refuse_helper(size_t i, const struct bpf_insn *insn, struct refusal *r)
{
        if (insn->src_reg == BPF_PSEUDO_CALL)
                return refuse(r, i,
                              "calls between functions are not supported; use "
                              "__always_inline");
        if (insn->src_reg != 0)
                return refuse(r, i, "kernel functions cannot be called on a GPU");
        if (insn->imm > 0 && (size_t)insn->imm < ARRAY_SIZE(helper_names) &&
            helper_names[insn->imm])
                return refuse(r, i, "helper bpf_%s() is not available on a GPU",
                              helper_names[insn->imm]);
        return refuse(r, i, "helper %d is not available on a GPU", insn->imm);
}

bool flow_key(const struct flow_state *state, struct tnum *ret_key)
{
        const struct value *key = &state->regs[BPF_REG_2];
        struct value v;

        *ret_key = tnum_of_size(4);
        if (!tnum_is_const(key->num) || !flow_stack_read(state, (int64_t)key->num.value, 4, &v))
                return false;
        *ret_key = v.num;
        return tnum_is_const(v.num);
}

static int step_lookup(const struct compile_job *job, size_t i, struct flow_state *state,
                       struct refusal *r)
{
        const struct value *map = &state->regs[BPF_REG_1], *key = &state->regs[BPF_REG_2];
        const struct device_map_info *info;
        struct value ignored;
        struct tnum index;
        int error;

        if (map->kind != VALUE_MAP)
                return refuse(r, i, "the map of a lookup differs between paths");
        if (key->kind != VALUE_STACK)
                return refuse(r, i, "the key of a lookup must be a variable on the stack");
        error = check_stack(i, key->num, 4, r);
        if (error)
                return error;
        if (tnum_is_const(key->num) &&
            !flow_stack_read(state, (int64_t)key->num.value, 4, &ignored))
                return refuse(r, i, "the key of a lookup is part of an address");
        flow_key(state, &index);
        info = &job->maps[map->map];
        state->regs[BPF_REG_0] = (struct value){
                .kind = VALUE_ELEMENT,
                .map = map->map,
                .maybe_null = tnum_max(index) >= info->max_entries,
                .num = tnum_mul(index, tnum_const(info->bytes / info->max_entries)),
        };
        return 0;
}

static int step_call(const struct compile_job *job, size_t i, struct flow_state *state,
                     struct refusal *r)
{
        const struct bpf_insn *insn = &job->insns[i];
        int error = 0;

        if (insn->src_reg != 0)
                return refuse_helper(i, insn, r);
        switch (insn->imm) {
        case INSN_HELPER_MAP_LOOKUP:
                error = step_lookup(job, i, state, r);
                break;
        case INSN_HELPER_KTIME_GET_NS:
                state->regs[BPF_REG_0] = value_number(TNUM_UNKNOWN);
                break;
        case INSN_HELPER_GET_SMP_PROCESSOR_ID:
                state->regs[BPF_REG_0] = value_number(tnum_of_size(4));
                break;
        default:
                return refuse_helper(i, insn, r);
        }
        for (unsigned reg = BPF_REG_1; reg <= BPF_REG_5; reg++)
                state->regs[reg] = (struct value){};
        return error;
}

int flow_step(const struct compile_job *job, size_t i, struct flow_state *state, struct refusal *r)
{
        const struct bpf_insn *insn = &job->insns[i];

        if (!valid_registers(insn))
                return refuse(r, i, "unknown register");
        if (insn_is_wide(insn))
                return step_wide(job, i, state, r);
        if (insn_is_alu(insn))
                return step_alu(job, i, state, r);
        if (insn_is_load(insn))
                return step_load(job, i, state, r);
        if (insn_is_store(insn))
                return step_store(job, i, state, r);
        if (insn_is_atomic(insn))
                return step_atomic(job, i, state, r);
        if (insn_is_call(insn))
                return step_call(job, i, state, r);
        return refuse(r, i, "unknown instruction 0x%02x", insn->code);
}

bool flow_stack_is_unknown(const struct compile_job *job, size_t i, const struct flow_state *state)
{
        const struct value *dst = &state->regs[job->insns[i].dst_reg];

        return dst->kind == VALUE_STACK && !tnum_is_const(dst->num);
}
