/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Device objects on a real GPU: memory for their maps, their programs put into kernels, as
 * PTX and as machine code, the way the agent does it. Everything ends the program with a
 * sentence when it fails. One thread.
 */
#include <stdbool.h>

#include "agent/ptx_inject.h"
#include "device/program.h"
#include "splice_device.h"

/* A device object with memory for its maps and programs bound to it. */
struct gpu_world {
        const char *name;
        struct device_object *object;
        uint64_t maps[AGENT_MAP_MAX];
        struct probe_program programs[PROBE_LIST_MAX];
        size_t count;
};

/* Kernels with some programs in them. */
struct gpu_kernels {
        void *module;
        size_t wanted, in;   /* programs, over all kernels */
        const char *refusal; /* of the first that is not in */
        struct {
                char name[32];
                uint32_t id;
        } kernels[8];
        size_t count;
};

/*
 * Load an object (root: the kernel verifies it), zero its maps; machine: make machine code
 * of its programs.
 */
void gpu_world_init(struct gpu_world *w, const char *path, const char *name, bool machine);
void gpu_world_done(struct gpu_world *w);
void gpu_world_clear(const struct gpu_world *w);

/* What a map holds, to free(); ret_info may be NULL. */
void *gpu_world_read(const struct gpu_world *w, const char *map,
                     const struct device_map_info **ret_info);

/* Machine code of a PTX text by the driver's linker, to free(). */
void *gpu_assemble(const char *ptx, size_t *ret_size);

/*
 * Kernels from a PTX text, or from its machine code, with the programs of a world (NULL:
 * none) whose name begins with `program` ("": all).
 */
void gpu_kernels_load(const char *ptx, const void *cubin, size_t cubin_size, bool machine,
                      const struct gpu_world *w, const char *program,
                      struct gpu_kernels *ret_kernels);
void gpu_kernels_unload(struct gpu_kernels *k);

uint32_t gpu_kernel_id(const struct gpu_kernels *k, const char *kernel);
void *gpu_kernel_function(const struct gpu_kernels *k, const char *kernel);
