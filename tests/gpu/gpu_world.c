/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fragment.h"
#include "bpf/device_tools.h"
#include "gpu_world.h"
#include "util/macro.h"

#define FIRST_ID 1u
#define LINK_PTX 1

static void *need(void *p)
{
        if (!p)
                splice_die("malloc", "out of memory");
        return p;
}

static uint32_t agent_where(enum device_where where)
{
        return where == DEVICE_ENTRY  ? AGENT_PROGRAM_ENTRY
               : where == DEVICE_EXIT ? AGENT_PROGRAM_EXIT
                                      : AGENT_PROGRAM_MEM;
}

static void bind_program(struct gpu_world *w, const struct device_program_info *info, bool machine)
{
        static const struct probe_memory none;
        struct probe_program *p = &w->programs[w->count++];
        char *text;

        *p = (struct probe_program){.where = agent_where(info->where), .label = info->name};
        if (fragment_bind(info->ptx, w->maps, &text))
                splice_die(info->name, "the fragment cannot be bound");
        p->text = text;
        if (machine)
                p->code = splice_build_probe(&none, info->name, text, NULL, NULL);
}

void gpu_world_init(struct gpu_world *w, const char *path, const char *name, bool machine)
{
        char error[1024];
        size_t bytes;
        _cleanup_free_ char *elf = device_read_file(path, &bytes);

        if (!elf)
                splice_die(path, "cannot be read");
        *w = (struct gpu_world){.name = name};
        if (device_object_load(elf, bytes, NULL, error, sizeof(error), &w->object))
                splice_die(path, error);
        for (size_t i = 0; i < device_object_map_count(w->object); i++) {
                device_address address;

                splice_must(cuMemAlloc_v2(&address, device_object_map(w->object, i)->bytes),
                            "cuMemAlloc");
                w->maps[i] = address;
        }
        gpu_world_clear(w);
        for (size_t i = 0; i < device_object_program_count(w->object); i++)
                bind_program(w, device_object_program(w->object, i), machine);
}

void gpu_world_done(struct gpu_world *w)
{
        for (size_t i = 0; i < w->count; i++) {
                free((char *)(uintptr_t)w->programs[i].text);
                probe_code_free((struct probe_code *)(uintptr_t)w->programs[i].code);
        }
        for (size_t i = 0; i < device_object_map_count(w->object); i++)
                splice_must(cuMemFree_v2(w->maps[i]), "cuMemFree");
        device_object_free(w->object);
}

void gpu_world_clear(const struct gpu_world *w)
{
        for (size_t i = 0; i < device_object_map_count(w->object); i++)
                splice_must(
                        cuMemsetD32_v2(w->maps[i], 0, device_object_map(w->object, i)->bytes / 4),
                        "cuMemsetD32");
        splice_must(cuCtxSynchronize(), "cuCtxSynchronize");
}

void *gpu_world_read(const struct gpu_world *w, const char *map,
                     const struct device_map_info **ret_info)
{
        for (size_t i = 0; i < device_object_map_count(w->object); i++) {
                const struct device_map_info *info = device_object_map(w->object, i);
                void *data;

                if (strcmp(info->name, map) != 0)
                        continue;
                data = need(malloc(info->bytes));
                splice_must(cuMemcpyDtoH_v2(data, w->maps[i], info->bytes), "cuMemcpyDtoH");
                if (ret_info)
                        *ret_info = info;
                return data;
        }
        splice_die(map, "no such map");
}

void *gpu_assemble(const char *ptx, size_t *ret_size)
{
        void *link, *cubin = NULL, *copy;

        splice_must(cuLinkCreate_v2(0, NULL, NULL, &link), "cuLinkCreate");
        splice_must(cuLinkAddData_v2(link, LINK_PTX, (void *)(uintptr_t)ptx, strlen(ptx) + 1,
                                     "kernels", 0, NULL, NULL),
                    "cuLinkAddData");
        splice_must(cuLinkComplete(link, &cubin, ret_size), "cuLinkComplete");
        copy = need(malloc(*ret_size));
        memcpy(copy, cubin, *ret_size);
        splice_must(cuLinkDestroy(link), "cuLinkDestroy");
        return copy;
}

/* Note what became of the programs at one kernel. */
static void add_kernel(struct gpu_kernels *k, const char *name, uint32_t id,
                       const struct probe_outcome *outcomes, size_t count)
{
        if (k->count == ARRAY_SIZE(k->kernels))
                splice_die(name, "too many kernels");
        snprintf(k->kernels[k->count].name, sizeof(k->kernels[k->count].name), "%s", name);
        k->kernels[k->count++].id = id;
        for (size_t i = 0; i < count; i++) {
                k->wanted += outcomes[i].wanted;
                k->in += outcomes[i].in;
                if (outcomes[i].wanted && !outcomes[i].in && !k->refusal)
                        k->refusal = outcomes[i].refusal ?: "not in, without a reason";
        }
}

static void load_ptx(const char *ptx, const struct probe_list *list, struct gpu_kernels *k)
{
        const struct ptx_probes probes = {.list = *list};
        const char *why = "out of memory";
        struct ptx_result *r;

        if (ptx_inject(ptx, strlen(ptx), &probes, FIRST_ID, &r, &why))
                splice_die("PTX", why);
        for (size_t i = 0; i < r->kernel_count; i++)
                add_kernel(k, r->kernels[i].name, r->kernels[i].kernel_id, r->kernels[i].outcomes,
                           list->count);
        splice_must(cuModuleLoadData(&k->module, r->text), "cuModuleLoadData");
        ptx_result_free(r);
}

static void load_machine(const void *cubin, size_t size, const struct probe_list *list,
                         struct gpu_kernels *k)
{
        const char *why = "out of memory";
        struct splice_result *r;

        if (splice_image(cubin, size, list, FIRST_ID, &r, &why))
                splice_die("machine code", why);
        for (size_t i = 0; i < r->kernel_count; i++)
                add_kernel(k, r->kernels[i].name, r->kernels[i].kernel_id, r->kernels[i].outcomes,
                           list->count);
        splice_must(cuModuleLoadData(&k->module, r->image), "cuModuleLoadData");
        splice_result_free(r);
}

void gpu_kernels_load(const char *ptx, const void *cubin, size_t cubin_size, bool machine,
                      const struct gpu_world *w, const char *program,
                      struct gpu_kernels *ret_kernels)
{
        struct probe_program chosen[PROBE_LIST_MAX];
        struct probe_list list = {.programs = chosen, .count = 0};

        for (size_t i = 0; w && i < w->count; i++)
                if (!strncmp(w->programs[i].label, program, strlen(program)))
                        chosen[list.count++] = w->programs[i];
        *ret_kernels = (struct gpu_kernels){};
        if (!w)
                splice_must(
                        cuModuleLoadData(&ret_kernels->module, machine ? cubin : (const void *)ptx),
                        "cuModuleLoadData");
        else if (machine)
                load_machine(cubin, cubin_size, &list, ret_kernels);
        else
                load_ptx(ptx, &list, ret_kernels);
}

void gpu_kernels_unload(struct gpu_kernels *k)
{
        splice_must(cuModuleUnload(k->module), "cuModuleUnload");
        *k = (struct gpu_kernels){};
}

uint32_t gpu_kernel_id(const struct gpu_kernels *k, const char *kernel)
{
        for (size_t i = 0; i < k->count; i++)
                if (!strcmp(k->kernels[i].name, kernel))
                        return k->kernels[i].id;
        splice_die(kernel, "no such kernel");
}

void *gpu_kernel_function(const struct gpu_kernels *k, const char *kernel)
{
        void *function;

        splice_must(cuModuleGetFunction(&function, k->module, kernel), kernel);
        return function;
}
