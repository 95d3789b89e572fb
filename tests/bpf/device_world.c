/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/libbpf.h>

#include "bpf/device_tools.h"
#include "bpf/device_world.h"
#include "ptx_interp.h"
#include "unit/test.h"
#include "util/macro.h"

#define INSTRUCTIONS_MAX 50000000
#define TURN_MAX         40

void world_init(struct world *w, const char *object_path)
{
        libbpf_set_print(NULL);
        *w = (struct world){
                .object = device_test_load(object_path), .now_ns = 1000000, .tick_ns = 100};
        world_clear(w);
}

void world_done(struct world *w)
{
        for (size_t i = 0; i < WORLD_MAPS; i++)
                free(w->memory[i]);
        device_object_free(w->object);
        *w = (struct world){};
}

void world_clear(struct world *w)
{
        for (size_t i = 0; i < device_object_map_count(w->object); i++) {
                const struct device_map_info *info = device_object_map(w->object, i);
                size_t bytes = (info->bytes + 255) / 256 * 256;

                free(w->memory[i]);
                w->memory[i] = aligned_alloc(256, bytes);
                CHECK(w->memory[i]);
                memset(w->memory[i], 0, bytes);
                if (info->initial)
                        memcpy(w->memory[i], info->initial, info->value_size);
        }
}

const struct device_program_info *world_program(const struct world *w, const char *program)
{
        for (size_t i = 0; i < device_object_program_count(w->object); i++)
                if (!strcmp(device_object_program(w->object, i)->name, program))
                        return device_object_program(w->object, i);
        CHECK(!"no such program");
}

const char *world_fragment(const struct world *w, const char *program)
{
        return world_program(w, program)->ptx;
}

static size_t find_map(const struct world *w, const char *map)
{
        for (size_t i = 0; i < device_object_map_count(w->object); i++)
                if (!strcmp(device_object_map(w->object, i)->name, map))
                        return i;
        CHECK(!"no such map");
}

const struct device_map_info *world_map_info(const struct world *w, const char *map)
{
        return device_object_map(w->object, find_map(w, map));
}

void *world_map(const struct world *w, const char *map)
{
        return w->memory[find_map(w, map)];
}

static uint64_t read_clock(void *userdata)
{
        struct world *w = userdata;

        w->now_ns += w->tick_ns;
        return w->now_ns;
}

/* A warp may stand anywhere while others go on. */
static unsigned take_turn(void *userdata)
{
        struct world *w = userdata;

        return 1 + (unsigned)(test_random(&w->turns) % TURN_MAX);
}

/* The body as the only kernel of a module. */
static struct ptx_module *make_module(const struct world *w, const char *body, uint32_t kernel_id)
{
        uint64_t maps[WORLD_MAPS];
        char id[16], log[256] = "", *text;
        const struct device_values values = {
                .kernel_id = id, .context = "%envreg6", .queue = "0", .maps = maps};
        struct ptx_module *module;

        snprintf(id, sizeof(id), "%u", kernel_id ? kernel_id : 1);
        for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
                maps[i] = (uint64_t)(uintptr_t)w->memory[i];
        text = device_make_kernel(body, "kernel", &values, 1);
        CHECK(text);
        ptx_module_load(text, strlen(text), 0, log, sizeof(log), &module);
        CHECK_STR(log, "");
        free(text);
        return module;
}

void world_run(struct world *w, const char *body, const struct world_launch *l)
{
        struct ptx_launch launch = {
                .grid = {l->blocks ? l->blocks : 1, l->blocks_y ? l->blocks_y : 1, 1},
                .block = {l->threads ? l->threads : 32, l->threads_y ? l->threads_y : 1, 1},
                .gridid = l->gridid,
                .context = l->context,
                .first_sm = l->first_sm,
                .cooperative = l->together || l->turns,
        };
        struct ptx_env env = {
                .userdata = w,
                .globaltimer = read_clock,
                .turn = l->turns ? take_turn : NULL,
                .sm_count = l->sms,
                .max_instructions = INSTRUCTIONS_MAX,
        };
        struct ptx_module *module = make_module(w, body, l->kernel_id);
        struct ptx_machine *machine = ptx_machine_new();
        enum ptx_fault fault;

        w->turns = l->turns;
        CHECK_EQ(ptx_run(machine, ptx_module_entry(module, 0), &launch, NULL, &env, &fault), 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        ptx_module_free(module);
        ptx_machine_free(machine);
}
