/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What helpers of ring buffers and messages do to a flow state, and which calls are
 * refused. A reserved record is memory of the thread's stack until it is submitted.
 */
#include <errno.h>

#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"
#include "device/message.h"

static int find_ring(const struct code *code, size_t i, const struct flow_state *state,
                     struct refusal *r, const struct device_map_info **ret_ring)
{
        const struct value *map = &state->regs[BPF_REG_1];

        if (map->kind != VALUE_MAP)
                return refuse(r, i, "the ring of a call differs between paths");
        *ret_ring = &code->job->maps[map->map];
        if ((*ret_ring)->type != BPF_MAP_TYPE_RINGBUF)
                return refuse(r, i, "map %s is not a ring buffer", (*ret_ring)->name);
        return 0;
}

static int check_size(size_t i, const struct device_map_info *ring, const struct value *size,
                      struct refusal *r)
{
        if (size->kind != VALUE_NUMBER || !tnum_is_const(size->num))
                return refuse(r, i, "the size of a record must be constant");
        if (size->num.value == 0 || size->num.value > ring->record_bytes)
                return refuse(r, i,
                              "a record of %llu bytes, but ring %s has room for 1 to %u in each; "
                              "see GPUOBS_RECORD_BYTES",
                              (unsigned long long)size->num.value, ring->name, ring->record_bytes);
        return 0;
}

/* Nobody may wake a reader, or ask not to: there is none that sleeps. */
static int check_flags(size_t i, const struct value *flags, struct refusal *r)
{
        if (flags->kind == VALUE_NUMBER && tnum_is_const(flags->num) && flags->num.value == 0)
                return 0;
        return refuse(r, i, "the flags of a ring buffer's helper must be 0");
}

/* Numbers only: an address of the GPU means nothing to the reader. */
static int check_record(size_t i, const struct flow_state *state, const struct value *address,
                        unsigned bytes, struct refusal *r)
{
        unsigned done = 0;

        while (done < bytes) {
                unsigned part = flow_argument_part(address, done, bytes - done);
                struct value ignored;
                int error = flow_argument(i, state, address, done, part, "record", r, &ignored);

                if (error)
                        return error;
                done += part;
        }
        return 0;
}

static int step_output(const struct code *code, size_t i, struct flow_state *state,
                       struct refusal *r)
{
        const struct value *size = &state->regs[BPF_REG_3];
        const struct device_map_info *ring = NULL;
        int error = find_ring(code, i, state, r, &ring);

        if (!error)
                error = check_size(i, ring, size, r);
        if (!error)
                error = check_flags(i, &state->regs[BPF_REG_4], r);
        if (!error)
                error = check_record(i, state, &state->regs[BPF_REG_2], (unsigned)size->num.value,
                                     r);
        state->regs[BPF_REG_0] = value_number(tnum_const(0));
        return error;
}

static int step_reserve(const struct code *code, size_t i, struct flow_state *state,
                        struct refusal *r)
{
        unsigned number = (unsigned)code->insns[i].off;
        const struct value *size = &state->regs[BPF_REG_2];
        int64_t start = code_record_start(code, number);
        const struct device_map_info *ring = NULL;
        int error = find_ring(code, i, state, r, &ring);

        if (!error)
                error = check_size(i, ring, size, r);
        if (!error)
                error = check_flags(i, &state->regs[BPF_REG_3], r);
        if (error)
                return error;
        if (state->records[number].live)
                return refuse(r, i,
                              "a record is reserved here again before the last one was submitted "
                              "or discarded");
        state->records[number] = (struct flow_record){.live = true,
                                                      .map = state->regs[BPF_REG_1].map,
                                                      .bytes = (uint16_t)size->num.value};
        flow_stack_forget(state, start, start + CODE_RECORD_BYTES);
        state->regs[BPF_REG_0] = (struct value){.kind = VALUE_STACK,
                                                .area = (uint8_t)FLOW_RECORD(number),
                                                .num = tnum_const((uint64_t)start)};
        return 0;
}

int flow_record_number(const struct code *code, const struct flow_state *state)
{
        const struct value *record = &state->regs[BPF_REG_1];

        if (record->kind != VALUE_STACK || !tnum_is_const(record->num))
                return -ENOENT;
        for (unsigned n = 0; n < code->records; n++)
                if (state->records[n].live &&
                    code_record_start(code, n) == (int64_t)record->num.value)
                        return (int)n;
        return -ENOENT;
}

static int step_release(const struct code *code, size_t i, struct flow_state *state,
                        struct refusal *r)
{
        int n = flow_record_number(code, state), error;

        if (n < 0)
                return refuse(r, i, "which record this is differs between paths");
        error = check_flags(i, &state->regs[BPF_REG_2], r);
        if (!error && code->insns[i].imm == INSN_HELPER_RINGBUF_SUBMIT)
                error = check_record(i, state, &state->regs[BPF_REG_1], state->records[n].bytes, r);
        state->records[n].live = false;
        state->regs[BPF_REG_0] = (struct value){};
        return error;
}

int flow_step_ring(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        switch (code->insns[i].imm) {
        case INSN_HELPER_RINGBUF_OUTPUT:
                return step_output(code, i, state, r);
        case INSN_HELPER_RINGBUF_RESERVE:
                return step_reserve(code, i, state, r);
        }
        return step_release(code, i, state, r);
}

/* Messages */

/* The format a call prints by: constant text, which is nowhere in the GPU's memory. */
static int find_format(const struct code *code, size_t i, const struct flow_state *state,
                       struct refusal *r, const char **ret_format, size_t *ret_bytes)
{
        const struct value *format = &state->regs[BPF_REG_1], *size = &state->regs[BPF_REG_2];
        const struct device_map_info *map;

        if (!code->job->messages)
                return refuse(r, i, "messages are not printed here");
        if (format->kind != VALUE_ELEMENT || !code->job->maps[format->map].constant ||
            !tnum_is_const(format->num) || size->kind != VALUE_NUMBER || !tnum_is_const(size->num))
                return refuse(r, i, "the format of a message must be a constant text");
        map = &code->job->maps[format->map];
        if (format->num.value >= map->value_size ||
            size->num.value > map->value_size - format->num.value)
                return refuse(r, i, "the format of a message is not inside its constant");
        *ret_format = (const char *)map->constant + format->num.value;
        *ret_bytes = size->num.value;
        return 0;
}

/* The arguments of bpf_trace_printk() are in registers. */
static int check_registers(size_t i, const struct flow_state *state, unsigned count,
                           struct refusal *r)
{
        if (count > 3)
                return refuse(r, i, "a message with %u conversions, but only 3 arguments", count);
        for (unsigned n = 0; n < count; n++) {
                const struct value *v = &state->regs[BPF_REG_3 + n];

                if (v->kind != VALUE_NUMBER)
                        return refuse(r, i, "%s is printed", value_name(v));
        }
        return 0;
}

/* Those of bpf_trace_vprintk() are an array on the stack. */
static int check_array(size_t i, const struct flow_state *state, unsigned count, struct refusal *r)
{
        const struct value *size = &state->regs[BPF_REG_4];

        if (size->kind != VALUE_NUMBER || !tnum_is_const(size->num))
                return refuse(r, i, "how many arguments a message has must be constant");
        if (count > size->num.value / 8)
                return refuse(r, i, "a message with %u conversions, but only %llu arguments", count,
                              (unsigned long long)size->num.value / 8);
        return count ? check_record(i, state, &state->regs[BPF_REG_3], 8 * count, r) : 0;
}

int flow_step_print(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        char reason[160];
        unsigned message, count;
        const char *format = NULL;
        size_t bytes = 0;
        int error = find_format(code, i, state, r, &format, &bytes);

        if (error)
                return error;
        error = messages_add(code->job->messages, format, bytes, reason, sizeof(reason), &message,
                             &count);
        if (error == -ENOMEM)
                return error;
        if (error)
                return refuse(r, i, "%s", reason);
        state->regs[BPF_REG_0] = value_number(tnum_of_size(8));
        state->regs[BPF_REG_0].taint.varying = true;
        return code->insns[i].imm == INSN_HELPER_TRACE_PRINTK ? check_registers(i, state, count, r)
                                                              : check_array(i, state, count, r);
}

unsigned flow_message(const struct code *code, const struct flow_state *state, unsigned *ret_count)
{
        const struct value *format = &state->regs[BPF_REG_1];
        const struct device_map_info *map = &code->job->maps[format->map];

        return messages_find(code->job->messages, (const char *)map->constant + format->num.value,
                             state->regs[BPF_REG_2].num.value, ret_count);
}
