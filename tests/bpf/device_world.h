/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A device object with memory for its maps, whose programs the PTX interpreter runs. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/program.h"

#define WORLD_MAPS 8

struct world {
        struct device_object *object;
        void *memory[WORLD_MAPS];
        uint64_t now_ns;  /* %globaltimer; each reading moves it on by tick_ns */
        uint64_t tick_ns; /* 100 */
        uint64_t turns;   /* state of the random numbers */
};

/* One launch. Zeros mean 1 block, 32 threads, 1 of each in y, kernel id 1, 1 multiprocessor. */
struct world_launch {
        unsigned blocks, threads, blocks_y, threads_y;
        unsigned sms, first_sm;
        uint32_t kernel_id;
        uint64_t gridid;
        uint32_t context; /* number in the process */
        bool together;    /* all blocks are there at once and take turns */
        uint64_t turns;   /* together, each turn of a random length, by this seed; 0: thousands */
};

/* Load an object; zeroed maps. Skips the test where eBPF cannot be loaded, ends it on an error. */
void world_init(struct world *w, const char *object_path);
void world_done(struct world *w);

/* Maps as they begin: zeros, but for variables and constants. */
void world_clear(struct world *w);

/* A program by its name, and its fragment; ends the test when there is none. */
const struct device_program_info *world_program(const struct world *w, const char *program);
const char *world_fragment(const struct world *w, const char *program);

/* A map by its name, and its memory; ends the test when there is none. */
const struct device_map_info *world_map_info(const struct world *w, const char *map);
void *world_map(const struct world *w, const char *map);

/* Run a text with the tokens of fragments in it as the body of a kernel. */
void world_run(struct world *w, const char *body, const struct world_launch *launch);
