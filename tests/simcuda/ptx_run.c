/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs grids. The lanes of a warp that are at the same instruction run it
 * together; of several such groups the one with the lowest program counter goes
 * first, which brings branches together again where they join. A warp runs for
 * a quantum, then the next warp of the block has its turn, so that warps may
 * wait for each other in memory. Within a diverged warp every other quantum
 * goes to the highest group, so that lanes may wait for each other too.
 */
#include <errno.h>
#include <stdlib.h>

#include "ptx_ir.h"

#define QUANTUM       4096 /* warp instructions */
#define SHORT_QUANTUM 256
#define MAX_THREADS   1024
#define ARENA_ALIGN   256
#define POISON        0xa5 /* what memory that nobody wrote reads as */

/* Lanes that are at the same instruction. */
struct group {
        uint32_t mask;
        uint32_t pc;
        uint32_t next; /* stop there: other lanes wait */
        unsigned budget;
};

static bool pick_group(const struct ptx_warp *warp, struct group *group)
{
        uint32_t runnable = warp->live & ~warp->at_barrier & ~warp->at_sync;
        uint32_t low = UINT32_MAX, high = 0, second = UINT32_MAX;
        uint32_t mask = 0;

        PTX_LANES(runnable, lane)
        {
                uint32_t pc = warp->pc[lane];

                if (pc < low) {
                        second = low;
                        low = pc;
                } else if (pc > low && pc < second) {
                        second = pc;
                }
                high = pc > high ? pc : high;
        }
        if (!runnable)
                return false;
        group->pc = low;
        group->next = second;
        if (warp->turns % 2 && high != low) {
                group->pc = high;
                group->next = UINT32_MAX;
                group->budget = group->budget < SHORT_QUANTUM ? group->budget : SHORT_QUANTUM;
        }
        PTX_LANES(runnable, lane)
        mask |= (uint32_t)(warp->pc[lane] == group->pc) << lane;
        group->mask = mask;
        return true;
}

static void set_pc(struct ptx_warp *warp, uint32_t mask, uint32_t pc)
{
        PTX_LANES(mask, lane)
        warp->pc[lane] = pc;
}

static uint32_t guard_lanes(const struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        const uint64_t *predicate = ptx_src(warp, insn->guard);
        uint32_t result = 0;

        PTX_LANES(mask, lane)
        result |= (uint32_t)((predicate[lane] & 1) ^ insn->guard_negated) << lane;
        return result;
}

static uint64_t reduction_result(const struct ptx_barrier *barrier)
{
        switch ((enum ptx_barrier_mode)barrier->insn->sub) {
        case PTX_BARRIER_AND:
                return barrier->votes == barrier->arrived;
        case PTX_BARRIER_OR:
                return barrier->votes != 0;
        default:
                return barrier->votes;
        }
}

static void release_barrier(struct ptx_block *block, unsigned id)
{
        struct ptx_barrier *barrier = &block->barriers[id];

        for (uint32_t i = 0; i < block->warp_count; i++) {
                struct ptx_warp *warp = &block->warps[i];
                uint32_t lanes = warp->barrier_lanes[id];

                if (barrier->insn) {
                        PTX_LANES(lanes, lane)
                        ptx_dst(warp, barrier->insn->dst)[lane] = reduction_result(barrier);
                }
                warp->at_barrier &= ~lanes;
                warp->barrier_lanes[id] = 0;
        }
        memset(barrier, 0, sizeof(*barrier));
        block->waiting &= ~(1u << id);
}

static void check_barrier(struct ptx_block *block, unsigned id)
{
        const struct ptx_barrier *barrier = &block->barriers[id];

        if (barrier->arrived >= block->live_threads ||
            (barrier->expected && barrier->arrived >= barrier->expected))
                release_barrier(block, id);
}

/* src0 the barrier, src1 the thread count, src2 the predicate of a reduction. */
static void arrive(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        unsigned first = (unsigned)__builtin_ctz(mask);
        unsigned id = (unsigned)ptx_read(warp, insn->src[0], first) % PTX_BARRIERS;
        struct ptx_barrier *barrier = &warp->block->barriers[id];

        barrier->arrived += (uint32_t)__builtin_popcount(mask);
        barrier->expected = (uint32_t)ptx_read(warp, insn->src[1], first);
        warp->block->waiting |= 1u << id;
        if (insn->sub >= PTX_BARRIER_POPC) {
                barrier->insn = insn;
                PTX_LANES(mask, lane)
                barrier->votes += (uint32_t)((ptx_read(warp, insn->src[2], lane) & 1) ^ insn->sub2);
        }
        if (insn->sub != PTX_BARRIER_ARRIVE) {
                warp->at_barrier |= mask;
                warp->barrier_lanes[id] |= mask;
        }
        check_barrier(warp->block, id);
}

static void end_threads(struct ptx_warp *warp, uint32_t mask)
{
        struct ptx_block *block = warp->block;

        warp->live &= ~mask;
        warp->at_sync = 0; /* those who wait for these lanes look again */
        block->live_threads -= (uint32_t)__builtin_popcount(mask);
        for (uint32_t ids = block->waiting; ids; ids &= ids - 1)
                check_barrier(block, (unsigned)__builtin_ctz(ids));
}

/*
 * Lanes that name each other in their masks run the instruction together, when
 * all of them have come. Returns the lanes that ran it.
 */
static uint32_t run_together(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask,
                             uint32_t pc)
{
        uint32_t here = mask, done = 0;

        PTX_LANES(warp->at_sync, lane)
        here |= (uint32_t)(warp->pc[lane] == pc) << lane;
        for (uint32_t left = here; left;) {
                unsigned first = (unsigned)__builtin_ctz(left);
                uint32_t named = (uint32_t)ptx_read(warp, insn->src[insn->sync_mask], first);
                uint32_t wanted = (named | 1u << first) & warp->live;

                if ((wanted & ~left) == 0) {
                        insn->fn(warp, insn, wanted);
                        done |= wanted;
                }
                left &= ~wanted;
        }
        set_pc(warp, here, pc);
        warp->at_sync = (warp->at_sync | here) & ~done;
        return done;
}

/* A computed branch; each lane goes its own way. */
static void branch_table(struct ptx_warp *warp, const struct ptx_insn *insn, uint32_t mask)
{
        PTX_LANES(mask, lane)
        {
                uint64_t index = (uint32_t)ptx_read(warp, insn->src[0], lane);

                if (index >= (uint64_t)insn->offset) {
                        ptx_set_fault(warp->machine, PTX_FAULT_TRAP, 0, insn->line);
                        return;
                }
                warp->pc[lane] = (uint32_t)warp->entry->vectors[insn->dst + (int32_t)index];
        }
}

/*
 * An instruction that changes who runs. active: the lanes whose guard holds.
 * Returns the lanes that go on to the next instruction.
 */
static uint32_t run_control(struct ptx_warp *warp, const struct ptx_insn *insn, struct group *group,
                            uint32_t active)
{
        uint32_t others = group->mask & ~active;

        if (!active)
                return others;
        switch ((enum ptx_kind)insn->kind) {
        case PTX_KIND_EXIT:
                end_threads(warp, active);
                return others;
        case PTX_KIND_BARRIER:
                set_pc(warp, active, group->pc + 1);
                arrive(warp, insn, active);
                return insn->sub == PTX_BARRIER_ARRIVE ? group->mask : others;
        case PTX_KIND_SYNC:
                return others | run_together(warp, insn, active, group->pc);
        case PTX_KIND_TABLE:
                branch_table(warp, insn, active);
                set_pc(warp, others, group->pc + 1);
                return 0;
        case PTX_KIND_YIELD:
                group->budget = 0;
                return group->mask;
        default:
                ptx_set_fault(warp->machine, PTX_FAULT_TRAP, 0, insn->line);
                return 0;
        }
}

/* Run until the group ends, splits, meets other lanes, faults, or its budget is spent. */
static void run_group(struct ptx_warp *warp, struct group *group)
{
        struct ptx_machine *machine = warp->machine;
        const struct ptx_insn *code = warp->entry->code;

        while (group->pc < group->next && group->budget) {
                const struct ptx_insn *insn = &code[group->pc];
                uint32_t active = insn->guard == PTX_NO_GUARD
                                          ? group->mask
                                          : guard_lanes(warp, insn, group->mask);

                machine->instructions++;
                group->budget--;
                switch ((enum ptx_kind)insn->kind) {
                case PTX_KIND_ALU:
                        if (active)
                                insn->fn(warp, insn, active);
                        break;
                case PTX_KIND_MEMORY:
                        if (active)
                                insn->fn(warp, insn, active);
                        if (machine->fault)
                                return;
                        break;
                case PTX_KIND_BRANCH:
                        if (active == group->mask) {
                                group->pc = (uint32_t)insn->offset;
                                continue;
                        }
                        if (active) {
                                set_pc(warp, active, (uint32_t)insn->offset);
                                set_pc(warp, group->mask & ~active, group->pc + 1);
                                return;
                        }
                        break;
                default:
                        group->mask = run_control(warp, insn, group, active);
                        if (machine->fault || !group->mask)
                                return;
                        break;
                }
                group->pc++;
        }
        set_pc(warp, group->mask, group->pc);
}

/* Give a warp its turn. Whether it had anything to do. */
static bool run_warp(struct ptx_warp *warp)
{
        const struct ptx_env *env = warp->machine->env;
        struct group group = {.budget = env->turn ? env->turn(env->userdata) : QUANTUM};
        bool any = false;

        while (group.budget && !warp->machine->fault && pick_group(warp, &group)) {
                any = true;
                run_group(warp, &group);
        }
        warp->turns++;
        return any;
}

static bool over_limit(const struct ptx_machine *machine)
{
        return machine->env->max_instructions &&
               machine->instructions > machine->env->max_instructions;
}

/* One turn for every warp of every resident block, until all threads ended. */
static void run_blocks(struct ptx_machine *machine, size_t count)
{
        bool alive = true;

        while (alive && !machine->fault) {
                bool progress = false;

                alive = false;
                for (size_t b = 0; b < count; b++) {
                        struct ptx_block *block = &machine->blocks[b];

                        for (uint32_t w = 0; w < block->warp_count && block->live_threads; w++)
                                progress |= run_warp(&block->warps[w]);
                        alive |= block->live_threads > 0;
                }
                if (alive && !progress)
                        ptx_set_fault(machine, PTX_FAULT_DEADLOCK, 0, 0);
                if (alive && over_limit(machine))
                        ptx_set_fault(machine, PTX_FAULT_LIMIT, 0, 0);
        }
}

/* Sizes of what a block needs, each a multiple of ARENA_ALIGN. */
struct layout {
        uint32_t threads;
        uint32_t warps;
        uint32_t shift;
        size_t warp_bytes;
        size_t register_bytes; /* of one warp */
        size_t local_bytes;    /* of one warp */
        size_t shared_bytes;
        size_t block_bytes;
};

static size_t align_up(size_t bytes)
{
        return (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
}

static void plan(const struct ptx_entry *entry, const struct ptx_launch *launch,
                 struct layout *ret_layout)
{
        uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
        uint32_t lanes = threads < PTX_WARP ? threads : PTX_WARP;
        struct layout l = {.threads = threads, .warps = (threads + PTX_WARP - 1) / PTX_WARP};

        while ((1u << l.shift) < lanes)
                l.shift++;
        l.warp_bytes = align_up(l.warps * sizeof(struct ptx_warp));
        l.register_bytes = align_up(((size_t)entry->register_count << l.shift) * sizeof(uint64_t));
        l.local_bytes = align_up((size_t)lanes * entry->info.local_bytes);
        l.shared_bytes = align_up((size_t)entry->info.shared_bytes + launch->shared_bytes);
        l.block_bytes =
                l.warp_bytes + l.warps * (l.register_bytes + l.local_bytes) + l.shared_bytes;
        *ret_layout = l;
}

static int reserve(struct ptx_machine *machine, const struct layout *layout, size_t blocks)
{
        size_t bytes = blocks * layout->block_bytes;

        if (blocks > machine->block_count) {
                struct ptx_block *more = realloc(machine->blocks, blocks * sizeof(*more));

                if (!more)
                        return -ENOMEM;
                machine->blocks = more;
                machine->block_count = blocks;
        }
        if (bytes > machine->arena_bytes) {
                uint8_t *arena = aligned_alloc(ARENA_ALIGN, bytes);

                if (!arena)
                        return -ENOMEM;
                free(machine->arena);
                machine->arena = arena;
                machine->arena_bytes = bytes;
        }
        return 0;
}

static void init_warp(struct ptx_warp *warp, struct ptx_block *block, uint32_t index,
                      const struct layout *layout, uint8_t *memory)
{
        uint32_t first = index * PTX_WARP, lanes = layout->threads - first;

        memset(warp, 0, sizeof(*warp));
        warp->regs = (uint64_t *)memory;
        warp->local = memory + layout->register_bytes;
        warp->local_bytes = block->entry->info.local_bytes;
        warp->imms = block->entry->imms;
        warp->shift = layout->shift;
        warp->live = lanes >= PTX_WARP ? UINT32_MAX : (1u << lanes) - 1;
        warp->index = index;
        warp->block = block;
        warp->machine = block->machine;
        warp->entry = block->entry;
        memset(warp->regs, POISON, ((size_t)block->entry->register_count << layout->shift) * 8);
}

/* Put block number `number` of the grid into a slot of the machine. */
static void init_block(struct ptx_machine *machine, const struct ptx_entry *entry,
                       const struct layout *layout, size_t slot, uint64_t number)
{
        const struct ptx_launch *launch = machine->launch;
        struct ptx_block *block = &machine->blocks[slot];
        uint8_t *memory = machine->arena + slot * layout->block_bytes;
        unsigned sm_count = machine->env->sm_count ? machine->env->sm_count : 1;

        memset(block, 0, sizeof(*block));
        block->machine = machine;
        block->entry = entry;
        block->warps = (struct ptx_warp *)memory;
        block->warp_count = layout->warps;
        block->live_threads = layout->threads;
        block->index[0] = (uint32_t)(number % launch->grid[0]);
        block->index[1] = (uint32_t)(number / launch->grid[0] % launch->grid[1]);
        block->index[2] = (uint32_t)(number / launch->grid[0] / launch->grid[1]);
        block->smid = (uint32_t)((launch->first_sm + number) % sm_count);
        memory += layout->warp_bytes;
        for (uint32_t w = 0; w < layout->warps; w++) {
                init_warp(&block->warps[w], block, w, layout, memory);
                memory += layout->register_bytes + layout->local_bytes;
        }
        block->shared = memory;
        block->shared_bytes = entry->info.shared_bytes + launch->shared_bytes;
        memset(block->shared, POISON, block->shared_bytes);
}

static bool is_possible(const struct ptx_entry *entry, const struct ptx_launch *launch)
{
        uint64_t threads = 1;

        for (int i = 0; i < 3; i++) {
                if (launch->grid[i] == 0 || launch->block[i] == 0 || launch->block[i] > MAX_THREADS)
                        return false;
                if (entry->info.required[i] && entry->info.required[i] != launch->block[i])
                        return false;
                threads *= launch->block[i];
        }
        return threads <= entry->info.max_threads &&
               launch->shared_bytes <= UINT32_MAX - entry->info.shared_bytes;
}

static void run_grid(struct ptx_machine *machine, const struct ptx_entry *entry)
{
        const struct ptx_launch *launch = machine->launch;
        uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
        uint64_t resident = launch->cooperative ? blocks : 1;
        struct layout layout;

        plan(entry, launch, &layout);
        if (reserve(machine, &layout, resident) < 0) {
                ptx_set_fault(machine, PTX_FAULT_MEMORY, 0, 0);
                return;
        }
        for (uint64_t b = 0; b < blocks && !machine->fault; b += resident) {
                for (size_t slot = 0; slot < resident; slot++)
                        init_block(machine, entry, &layout, slot, b + slot);
                run_blocks(machine, resident);
        }
}

static void fill_bank(struct ptx_machine *machine, const struct ptx_launch *launch)
{
        memset(machine->bank, 0, sizeof(machine->bank));
        memcpy(machine->bank + PTX_BANK_GRIDID, &launch->gridid, sizeof(launch->gridid));
        memcpy(machine->bank + PTX_BANK_QUEUE, &launch->queue, sizeof(launch->queue));
        memcpy(machine->bank + PTX_BANK_CONTEXT, &launch->context, sizeof(launch->context));
}

int ptx_run(struct ptx_machine *machine, const struct ptx_entry *entry,
            const struct ptx_launch *launch, const void *params, const struct ptx_env *env,
            enum ptx_fault *ret_fault)
{
        if (!is_possible(entry, launch))
                return -EINVAL;
        machine->env = env;
        machine->launch = launch;
        machine->params = params;
        machine->param_bytes = entry->info.param_bytes;
        fill_bank(machine, launch);
        machine->fault = PTX_FAULT_NONE;
        machine->fault_address = 0;
        machine->fault_line = 0;
        machine->instructions = 0;
        machine->charged = 0;
        if (!env->region_generation)
                memset(machine->regions, 0, sizeof(machine->regions));
        run_grid(machine, entry);
        ptx_charge(machine);
        *ret_fault = machine->fault;
        return 0;
}

struct ptx_machine *ptx_machine_new(void)
{
        return calloc(1, sizeof(struct ptx_machine));
}

struct ptx_machine *ptx_machine_free(struct ptx_machine *machine)
{
        if (machine) {
                free(machine->blocks);
                free(machine->arena);
                free(machine);
        }
        return NULL;
}

uint64_t ptx_machine_fault_address(const struct ptx_machine *machine)
{
        return machine->fault_address;
}

uint32_t ptx_machine_fault_line(const struct ptx_machine *machine)
{
        return machine->fault_line;
}

const char *ptx_fault_name(enum ptx_fault fault)
{
        static const char *const names[] = {
                [PTX_FAULT_NONE] = "none",
                [PTX_FAULT_ADDRESS] = "illegal address",
                [PTX_FAULT_MISALIGNED] = "misaligned address",
                [PTX_FAULT_TRAP] = "trap",
                [PTX_FAULT_DEADLOCK] = "deadlock",
                [PTX_FAULT_LIMIT] = "instruction limit",
                [PTX_FAULT_MEMORY] = "out of memory",
        };

        return names[fault];
}
