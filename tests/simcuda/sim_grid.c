/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the driver tells a grid (device_abi.h): grid ids that grow through all the
 * contexts of a device, and the addresses of launch descriptors. There is nothing
 * at these addresses here; only that they differ, and how, is of interest.
 */
#include <stdlib.h>

#include "sim.h"

#define SLOT_BYTES    0x800
#define SLOTS         8
#define NODE_BYTES    0x200
#define BLOCK_BYTES   0x4000
#define FIRST_ADDRESS 0x7f2e00200000ULL /* 0 in the low half would mean: not known */

/* Blocks that were given back, the last one on top. */
static struct {
        pthread_mutex_t lock;
        uint64_t *free;
        size_t free_count, room;
        uint64_t next;
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER, .next = FIRST_ADDRESS};

static uint64_t take_blocks(uint64_t count)
{
        uint64_t address;

        pthread_mutex_lock(&blocks.lock);
        if (count == 1 && blocks.free_count) {
                address = blocks.free[--blocks.free_count];
        } else {
                address = blocks.next;
                blocks.next += count * BLOCK_BYTES;
        }
        pthread_mutex_unlock(&blocks.lock);
        return address;
}

/* Without memory for the list a block is just not used again. */
static void give_block(uint64_t address)
{
        pthread_mutex_lock(&blocks.lock);
        if (blocks.free_count == blocks.room) {
                size_t room = blocks.room ? 2 * blocks.room : 64;
                uint64_t *more = realloc(blocks.free, room * sizeof(*more));

                if (more) {
                        blocks.free = more;
                        blocks.room = room;
                }
        }
        if (blocks.free_count < blocks.room)
                blocks.free[blocks.free_count++] = address;
        pthread_mutex_unlock(&blocks.lock);
}

static uint64_t node_blocks(size_t nodes)
{
        return (nodes * NODE_BYTES + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

void sim_descriptors_of_stream(struct sim_descriptors *d)
{
        *d = (struct sim_descriptors){
                .address = take_blocks(1), .step = SLOT_BYTES, .count = SLOTS};
}

void sim_descriptors_of_nodes(struct sim_descriptors *d, size_t nodes)
{
        *d = (struct sim_descriptors){.step = NODE_BYTES, .count = nodes};
        if (nodes)
                d->address = take_blocks(node_blocks(nodes));
}

void sim_descriptors_done(struct sim_descriptors *d)
{
        uint64_t bytes = d->count * d->step;

        for (uint64_t at = 0; at < bytes; at += BLOCK_BYTES)
                give_block(d->address + at);
        d->count = 0;
}

/* What a driver with another layout might have where ours are read. */
static void garble(struct ptx_launch *launch)
{
        uint64_t noise = (launch->gridid + 1) * 0x9e3779b97f4a7c15ULL;

        launch->context ^= (uint32_t)(noise >> 40);
        launch->queue ^= noise;
}

static void tell(struct ptx_launch *launch, const struct sim_context *context, uint64_t descriptor)
{
        if (sim_driver.config.grid_words == SIM_GRID_WORDS_NONE)
                return;
        launch->context = (uint32_t)context->id;
        launch->queue = descriptor;
        if (sim_driver.config.grid_words == SIM_GRID_WORDS_GARBLED)
                garble(launch);
}

static bool is_grid(const struct sim_command *command)
{
        return command->kind == SIM_COMMAND_KERNEL ||
               (command->kind == SIM_COMMAND_COPY && command->copy.is_grid) ||
               (command->kind == SIM_COMMAND_SET && command->set.is_grid);
}

void sim_assign_grid(struct sim_context *context, struct sim_descriptors *descriptors,
                     struct sim_command *command)
{
        struct ptx_launch *launch = &command->kernel.launch;
        uint64_t gridid, descriptor;

        if (!is_grid(command))
                return;
        gridid = atomic_fetch_add(&sim_driver.grids[context->device], 1) + 1;
        descriptor = descriptors->address +
                     descriptors->taken++ % descriptors->count * descriptors->step;
        if (command->kind != SIM_COMMAND_KERNEL)
                return; /* the ids are taken; nobody runs that could read them */
        launch->gridid = gridid;
        launch->first_sm = atomic_fetch_add(&context->next_sm, 1);
        tell(launch, context, descriptor);
}

void sim_skip_grid(struct sim_context *context)
{
        atomic_fetch_add(&sim_driver.grids[context->device], 1);
}
