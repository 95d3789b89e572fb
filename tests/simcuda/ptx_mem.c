/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory. Global and generic addresses are host addresses, checked against the
 * regions the environment knows; the last few regions are kept so that the
 * question is asked once per array and not once per access. Shared and local
 * memory are windows of the machine's own memory.
 */
#include "ptx_mem.h"

static bool inside(uint64_t address, unsigned bytes, uint64_t start, uint64_t end)
{
        return address >= start && address < end && bytes <= end - address;
}

static const struct ptx_region *cached_region(struct ptx_machine *machine, uint64_t address)
{
        const uint64_t *generation = machine->env->region_generation;

        if (generation) {
                uint64_t now = __atomic_load_n(generation, __ATOMIC_ACQUIRE);

                if (now != machine->generation) {
                        memset(machine->regions, 0, sizeof(machine->regions));
                        machine->generation = now;
                }
        }
        for (unsigned i = 0; i < PTX_REGION_CACHE; i++) {
                if (inside(address, 1, machine->regions[i].start, machine->regions[i].end))
                        return &machine->regions[i];
        }
        return NULL;
}

static const struct ptx_region *find_region(struct ptx_machine *machine, uint64_t address)
{
        const struct ptx_region *known = cached_region(machine, address);
        struct ptx_region found;

        if (known)
                return known;
        if (!machine->env->find_region(machine->env->userdata, address, &found))
                return NULL;
        machine->regions[machine->next_region] = found;
        known = &machine->regions[machine->next_region];
        machine->next_region = (machine->next_region + 1) % PTX_REGION_CACHE;
        return known;
}

static bool drops_store(struct ptx_machine *machine, const struct ptx_region *region,
                        uint64_t address, unsigned bytes)
{
        return region->watched && machine->env->drop_store &&
               machine->env->drop_store(machine->env->userdata, address, bytes);
}

/* Where an access of this size goes, or NULL after setting the fault; *ret_drop: a lost store. */
static void *resolve_global(struct ptx_warp *warp, const struct ptx_insn *insn, uint64_t address,
                            unsigned bytes, bool write, bool *ret_drop)
{
        struct ptx_machine *machine = warp->machine;
        const struct ptx_region *region;

        if (!machine->env->find_region)
                return (void *)address;
        region = find_region(machine, address);
        if (!region || !inside(address, bytes, region->start, region->end) ||
            (write && region->read_only)) {
                ptx_set_fault(machine, PTX_FAULT_ADDRESS, address, insn->line);
                return NULL;
        }
        if (write && drops_store(machine, region, address, bytes))
                *ret_drop = true;
        return (void *)address;
}

static void *window(struct ptx_warp *warp, const struct ptx_insn *insn, uint8_t *base,
                    uint64_t window_bytes, uint64_t offset, unsigned bytes)
{
        if (inside(offset, bytes, 0, window_bytes))
                return base + offset;
        ptx_set_fault(warp->machine, PTX_FAULT_ADDRESS, offset, insn->line);
        return NULL;
}

static uint8_t *local_base(const struct ptx_warp *warp, unsigned lane)
{
        return warp->local + (size_t)lane * warp->local_bytes;
}

/* A generic address may lie in the block's shared or in the thread's local memory. */
static void *resolve_generic(struct ptx_warp *warp, const struct ptx_insn *insn, unsigned lane,
                             uint64_t address, unsigned bytes, bool write, bool *ret_drop)
{
        uint64_t shared = (uint64_t)warp->block->shared;
        uint64_t local = (uint64_t)local_base(warp, lane);

        if (inside(address, bytes, shared, shared + warp->block->shared_bytes) ||
            inside(address, bytes, local, local + warp->local_bytes))
                return (void *)address;
        return resolve_global(warp, insn, address, bytes, write, ret_drop);
}

static void *resolve_param(struct ptx_warp *warp, const struct ptx_insn *insn, unsigned lane,
                           uint64_t offset, unsigned bytes, bool write)
{
        struct ptx_machine *machine = warp->machine;
        uint64_t in_bank = offset + PTX_BANK_PARAMS; /* small when the offset is negative */

        if (!write && in_bank < PTX_BANK_PARAMS)
                return window(warp, insn, machine->bank, PTX_BANK_PARAMS, in_bank, bytes);
        if (offset >= PTX_REACHABLE)
                return window(warp, insn, local_base(warp, lane), warp->local_bytes,
                              offset - PTX_REACHABLE, bytes);
        if (write) {
                ptx_set_fault(machine, PTX_FAULT_ADDRESS, offset, insn->line);
                return NULL;
        }
        return window(warp, insn, (uint8_t *)machine->params, machine->param_bytes, offset, bytes);
}

static void *resolve(struct ptx_warp *warp, const struct ptx_insn *insn, unsigned lane,
                     uint64_t address, bool write, bool *ret_drop)
{
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type) * insn->vec;

        if (address & (bytes - 1)) {
                ptx_set_fault(warp->machine, PTX_FAULT_MISALIGNED, address, insn->line);
                return NULL;
        }
        switch ((enum ptx_space)insn->space) {
        case PTX_GLOBAL:
                return resolve_global(warp, insn, address, bytes, write, ret_drop);
        case PTX_SHARED:
                return window(warp, insn, warp->block->shared, warp->block->shared_bytes, address,
                              bytes);
        case PTX_LOCAL:
                return window(warp, insn, local_base(warp, lane), warp->local_bytes, address,
                              bytes);
        case PTX_PARAM:
                return resolve_param(warp, insn, lane, address, bytes, write);
        default:
                return resolve_generic(warp, insn, lane, address, bytes, write, ret_drop);
        }
}

static uint64_t address_of(const struct ptx_warp *warp, const struct ptx_insn *insn, unsigned lane)
{
        return ptx_read(warp, insn->src[0], lane) + (uint64_t)insn->offset;
}

/* Other threads and the CPU may look at the same words: no tearing. */
static uint64_t load(const void *p, unsigned bytes)
{
        switch (bytes) {
        case 1:
                return __atomic_load_n((const uint8_t *)p, __ATOMIC_RELAXED);
        case 2:
                return __atomic_load_n((const uint16_t *)p, __ATOMIC_RELAXED);
        case 4:
                return __atomic_load_n((const uint32_t *)p, __ATOMIC_RELAXED);
        default:
                return __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
        }
}

static void store(void *p, unsigned bytes, uint64_t value)
{
        switch (bytes) {
        case 1:
                __atomic_store_n((uint8_t *)p, (uint8_t)value, __ATOMIC_RELAXED);
                break;
        case 2:
                __atomic_store_n((uint16_t *)p, (uint16_t)value, __ATOMIC_RELAXED);
                break;
        case 4:
                __atomic_store_n((uint32_t *)p, (uint32_t)value, __ATOMIC_RELAXED);
                break;
        default:
                __atomic_store_n((uint64_t *)p, value, __ATOMIC_RELAXED);
                break;
        }
}

void ptx_op_ld(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type);
        bool extend = ptx_type_signed((enum ptx_type)insn->type);
        const int32_t *regs = insn->vec > 1 ? &warp->entry->vectors[insn->dst] : &insn->dst;

        PTX_LANES(mask, lane)
        {
                bool drop = false;
                const uint8_t *p =
                        resolve(warp, insn, lane, address_of(warp, insn, lane), false, &drop);

                if (!p)
                        return;
                for (unsigned i = 0; i < insn->vec; i++) {
                        uint64_t value = load(p + i * bytes, bytes);

                        ptx_dst(warp, regs[i])[lane] =
                                extend ? ptx_sign_extend(value, bytes) : value;
                }
        }
}

void ptx_op_st(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type);
        const int32_t *refs = insn->vec > 1 ? &warp->entry->vectors[insn->src[1]] : &insn->src[1];

        PTX_LANES(mask, lane)
        {
                bool drop = false;
                uint8_t *p = resolve(warp, insn, lane, address_of(warp, insn, lane), true, &drop);

                if (!p)
                        return;
                for (unsigned i = 0; i < insn->vec && !drop; i++)
                        store(p + i * bytes, bytes, ptx_read(warp, refs[i], lane));
        }
}

static uint64_t add_f32(uint64_t a, uint64_t b)
{
        uint32_t x = (uint32_t)a, y = (uint32_t)b;
        float fx, fy;

        memcpy(&fx, &x, sizeof(fx));
        memcpy(&fy, &y, sizeof(fy));
        fx += fy;
        memcpy(&x, &fx, sizeof(x));
        return x;
}

static uint64_t add_f64(uint64_t a, uint64_t b)
{
        double x, y;

        memcpy(&x, &a, sizeof(x));
        memcpy(&y, &b, sizeof(y));
        x += y;
        memcpy(&a, &x, sizeof(a));
        return a;
}

static bool less(const struct ptx_insn *insn, uint64_t a, uint64_t b)
{
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type);

        if (ptx_type_signed((enum ptx_type)insn->type))
                return (int64_t)ptx_sign_extend(a, bytes) < (int64_t)ptx_sign_extend(b, bytes);
        return a < b;
}

static uint64_t atomic_add(const struct ptx_insn *insn, uint64_t old, uint64_t operand)
{
        if (insn->type == PTX_F32)
                return add_f32(old, operand);
        if (insn->type == PTX_F64)
                return add_f64(old, operand);
        return old + operand;
}

/* What the memory holds after the operation. */
static uint64_t atomic_result(const struct ptx_insn *insn, uint64_t old, uint64_t b, uint64_t c)
{
        switch ((enum ptx_atomic)insn->sub) {
        case PTX_ATOM_ADD:
                return atomic_add(insn, old, b);
        case PTX_ATOM_MIN:
                return less(insn, b, old) ? b : old;
        case PTX_ATOM_MAX:
                return less(insn, old, b) ? b : old;
        case PTX_ATOM_AND:
                return old & b;
        case PTX_ATOM_OR:
                return old | b;
        case PTX_ATOM_XOR:
                return old ^ b;
        case PTX_ATOM_EXCH:
                return b;
        case PTX_ATOM_CAS:
                return old == b ? c : old;
        case PTX_ATOM_INC:
                return old >= b ? 0 : old + 1;
        case PTX_ATOM_DEC:
                return old == 0 || old > b ? b : old - 1;
        }
        return old;
}

static uint64_t atomic_32(const struct ptx_insn *insn, uint32_t *p, uint64_t b, uint64_t c)
{
        uint32_t old = __atomic_load_n(p, __ATOMIC_RELAXED), next;

        do {
                next = (uint32_t)atomic_result(insn, old, (uint32_t)b, (uint32_t)c);
        } while (!__atomic_compare_exchange_n(p, &old, next, true, __ATOMIC_ACQ_REL,
                                              __ATOMIC_RELAXED));
        return old;
}

static uint64_t atomic_64(const struct ptx_insn *insn, uint64_t *p, uint64_t b, uint64_t c)
{
        uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED), next;

        do {
                next = atomic_result(insn, old, b, c);
        } while (!__atomic_compare_exchange_n(p, &old, next, true, __ATOMIC_ACQ_REL,
                                              __ATOMIC_RELAXED));
        return old;
}

void ptx_op_atom(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        unsigned bytes = ptx_type_bytes((enum ptx_type)insn->type);

        PTX_LANES(mask, lane)
        {
                bool drop = false;
                void *p = resolve(warp, insn, lane, address_of(warp, insn, lane), true, &drop);
                uint64_t b, c, old;

                if (!p)
                        return;
                b = ptx_read(warp, insn->src[1], lane);
                c = insn->sub == PTX_ATOM_CAS ? ptx_read(warp, insn->src[2], lane) : 0;
                if (drop)
                        old = load(p, bytes);
                else
                        old = bytes == 4 ? atomic_32(insn, p, b, c) : atomic_64(insn, p, b, c);
                if (insn->dst >= 0)
                        ptx_dst(warp, insn->dst)[lane] = old;
        }
}

static uint64_t space_base(const struct ptx_warp *warp, enum ptx_space space, unsigned lane)
{
        switch (space) {
        case PTX_SHARED:
                return (uint64_t)warp->block->shared;
        case PTX_LOCAL:
                return (uint64_t)local_base(warp, lane);
        case PTX_PARAM:
                return (uint64_t)warp->machine->params;
        default:
                return 0;
        }
}

void ptx_op_cvta(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        PTX_LANES(mask, lane)
        {
                uint64_t base = space_base(warp, (enum ptx_space)insn->space, lane);
                uint64_t address = address_of(warp, insn, lane);

                ptx_dst(warp, insn->dst)[lane] = insn->sub ? address - base : address + base;
        }
}

void ptx_op_isspacep(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        PTX_LANES(mask, lane)
        {
                uint64_t address = ptx_read(warp, insn->src[0], lane);
                uint64_t shared = (uint64_t)warp->block->shared;
                uint64_t local = (uint64_t)local_base(warp, lane);
                bool in_shared = inside(address, 1, shared, shared + warp->block->shared_bytes);
                bool in_local = inside(address, 1, local, local + warp->local_bytes);
                bool result = insn->space == PTX_SHARED  ? in_shared
                              : insn->space == PTX_LOCAL ? in_local
                                                         : !in_shared && !in_local;

                ptx_dst(warp, insn->dst)[lane] = result;
        }
}
