/* SPDX-License-Identifier: Apache-2.0 */

/* What map helpers do to a flow state, and which calls are refused. */
#include "device/device_abi.h"
#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

bool flow_key(const struct flow_state *state, struct value *ret_key)
{
        const struct value *key = &state->regs[BPF_REG_2];

        if (!tnum_is_const(key->num) ||
            !flow_stack_read(state, (int64_t)key->num.value, 4, ret_key)) {
                *ret_key = value_number(tnum_of_size(4));
                ret_key->taint = flow_stack_taint(state);
        }
        return tnum_is_const(ret_key->num);
}

int flow_argument(size_t i, const struct flow_state *state, const struct value *address,
                  unsigned at, unsigned bytes, const char *what, struct refusal *r,
                  struct value *ret_value)
{
        struct tnum from_end = tnum_add(address->num, tnum_const(at));
        int error;

        if (address->kind != VALUE_STACK)
                return refuse(r, i, "the %s must be a variable on the stack", what);
        error = flow_check_stack(i, state, from_end, bytes, r);
        if (error)
                return error;
        if (!tnum_is_const(from_end)) {
                *ret_value = value_number(tnum_of_size(bytes));
                ret_value->taint = flow_stack_taint(state);
                ret_value->taint.varying |= address->taint.varying;
                return 0;
        }
        if (!flow_stack_read(state, (int64_t)from_end.value, bytes, ret_value) ||
            value_is_address(ret_value))
                return refuse(r, i, "the %s is part of an address", what);
        return 0;
}

unsigned flow_argument_part(const struct value *address, unsigned at, unsigned left)
{
        unsigned aligned = tnum_alignment(tnum_add(address->num, tnum_const(at)), 8);
        unsigned bytes = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;

        if (at && (at & -at) < aligned)
                aligned = at & -at;
        return bytes < aligned ? bytes : aligned;
}

static int find_map(const struct code *code, size_t i, const struct flow_state *state,
                    struct refusal *r, const struct device_map_info **ret_map)
{
        const struct value *map = &state->regs[BPF_REG_1];

        if (map->kind != VALUE_MAP)
                return refuse(r, i, "the map of a call differs between paths");
        *ret_map = &code->job->maps[map->map];
        if ((*ret_map)->type != BPF_MAP_TYPE_ARRAY && (*ret_map)->type != BPF_MAP_TYPE_HASH)
                return refuse(r, i, "map %s is not of a kind that can be looked up",
                              (*ret_map)->name);
        return 0;
}

/* Where an element begins: in which copy of a map, or slot of a hash, is not known here. */
static struct tnum element_distance(const struct device_map_info *map, struct tnum key)
{
        struct tnum stride = tnum_const(device_map_stride(map));
        struct tnum copy = tnum_const(map->bytes / device_spread_copies(map->spread));

        if (map->type == BPF_MAP_TYPE_HASH)
                return tnum_add(
                        tnum_mul(TNUM_UNKNOWN, stride),
                        tnum_const(sizeof(struct device_hash_head) + device_hash_value_at(map)));
        if (map->rule == DEVICE_RULE_SETTINGS)
                return tnum_add(tnum_mul(TNUM_UNKNOWN, tnum_const(DEVICE_SETTINGS_ALIGN)),
                                tnum_mul(key, stride));
        if (map->spread == DEVICE_SHARED)
                return tnum_mul(key, stride);
        return tnum_add(tnum_mul(tnum_of_size(4), copy), tnum_mul(key, stride));
}

/* The parts of an argument, as large as they can be; what they are made from. */
static int check_parts(size_t i, const struct flow_state *state, const struct value *address,
                       unsigned size, const char *what, struct refusal *r, struct taint *ret_taint)
{
        struct taint all = {};

        for (unsigned done = 0; done < size;) {
                unsigned bytes = flow_argument_part(address, done, size - done);
                struct value part;
                int error = flow_argument(i, state, address, done, bytes, what, r, &part);

                if (error)
                        return error;
                all = taint_join(all, part.taint);
                done += bytes;
        }
        *ret_taint = all;
        return 0;
}

/* The key of a call; what is not known of a long one is its number. */
static int find_key(size_t i, const struct flow_state *state, const struct device_map_info *map,
                    const char *what, struct refusal *r, struct value *ret_key)
{
        const struct value *address = &state->regs[BPF_REG_2];
        struct value key = value_number(TNUM_UNKNOWN);
        int error;

        if (!device_hash_words(map))
                return flow_argument(i, state, address, 0, map->key_size, what, r, ret_key);
        error = check_parts(i, state, address, map->key_size, what, r, &key.taint);
        if (!error)
                *ret_key = key;
        return error;
}

static int step_lookup(size_t i, struct flow_state *state, const struct device_map_info *map,
                       struct refusal *r)
{
        unsigned number = state->regs[BPF_REG_1].map;
        struct value key;
        int error = find_key(i, state, map, "key of a lookup", r, &key);

        if (error)
                return error;
        state->regs[BPF_REG_0] = (struct value){
                .kind = VALUE_ELEMENT,
                .map = (uint8_t)number,
                .maybe_null =
                        map->type == BPF_MAP_TYPE_HASH || tnum_max(key.num) >= map->max_entries,
                .taint.varying = key.taint.varying || map->spread == DEVICE_PER_THREAD ||
                                 map->type == BPF_MAP_TYPE_HASH,
                .num = element_distance(map, key.num),
        };
        return 0;
}

static void set_status(struct flow_state *state)
{
        state->regs[BPF_REG_0] = value_number(TNUM_UNKNOWN);
        state->regs[BPF_REG_0].taint.varying = true;
}

static int check_value(const struct code *code, size_t i, const struct flow_state *state,
                       const struct device_map_info *map, struct refusal *r)
{
        unsigned number = state->regs[BPF_REG_1].map;
        struct taint taint = {};
        int error = check_parts(i, state, &state->regs[BPF_REG_3], map->value_size,
                                "value of an update", r, &taint);

        if (!error && taint.maps >> number & 1 && !flow_is_private(code, number))
                return refuse(r, i,
                              "map %s is read, changed and written back, and another "
                              "thread may do so in between",
                              map->name);
        return error;
}

static int step_update(const struct code *code, size_t i, struct flow_state *state,
                       const struct device_map_info *map, struct refusal *r)
{
        const struct value *flags = &state->regs[BPF_REG_4];
        struct value key;
        int error = find_key(i, state, map, "key of an update", r, &key);

        if (!error && map->rule == DEVICE_RULE_SETTINGS)
                return refuse(r, i, "an update of map %s, whose settings come from the CPU",
                              map->name);
        if (!error)
                error = check_value(code, i, state, map, r);
        if (error)
                return error;
        if (flags->kind != VALUE_NUMBER || !tnum_is_const(flags->num) ||
            flags->num.value > (map->type == BPF_MAP_TYPE_HASH ? BPF_NOEXIST : BPF_ANY))
                return refuse(r, i,
                              "the flags of an update must be BPF_ANY, or BPF_NOEXIST for a hash");
        set_status(state);
        return 0;
}

static int step_delete(size_t i, struct flow_state *state, const struct device_map_info *map,
                       struct refusal *r)
{
        struct value key;
        int error = find_key(i, state, map, "key of a delete", r, &key);

        if (error)
                return error;
        if (map->type != BPF_MAP_TYPE_HASH)
                return refuse(r, i, "an element of array %s cannot be deleted", map->name);
        set_status(state);
        return 0;
}

int flow_step_map(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        const struct device_map_info *map = NULL;
        int error = find_map(code, i, state, r, &map);

        if (error)
                return error;
        switch (code->insns[i].imm) {
        case INSN_HELPER_MAP_UPDATE:
                return step_update(code, i, state, map, r);
        case INSN_HELPER_MAP_DELETE:
                return step_delete(i, state, map, r);
        }
        return step_lookup(i, state, map, r);
}
