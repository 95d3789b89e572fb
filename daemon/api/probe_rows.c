/* SPDX-License-Identifier: Apache-2.0 */
#include "api/probe_rows.h"

#include <linux/bpf.h>
#include <string.h>

#include "api/internal.h"
#include "api/rows.h"
#include "device/device_abi.h"
#include "device/program.h"

static enum gpuobs_map_kind kind_of(const struct device_map_info *map)
{
        switch (map->type) {
        case BPF_MAP_TYPE_HASH:
                return GPUOBS_MAP_KIND_HASH;
        case BPF_MAP_TYPE_RINGBUF:
                return GPUOBS_MAP_KIND_RING;
        default:
                return GPUOBS_MAP_KIND_ARRAY;
        }
}

void probe_map_row(const struct device_map_info *map, struct gpuobs_probe_map *ret_row)
{
        *ret_row = (struct gpuobs_probe_map){
                .name = map->name,
                .kind = kind_of(map),
                .place = map->placement == GPUOBS_PLACE_HOST ? GPUOBS_MAP_PLACE_HOST
                                                             : GPUOBS_MAP_PLACE_DEVICE,
                .spread = (enum gpuobs_map_spread)map->spread, /* in the same order */
                .key_bytes = map->key_size,
                .value_bytes = map->value_size,
                .entries = map->max_entries,
                .bytes = map->bytes,
        };
}

static void program_row(const struct device_program_info *p, bool ptx,
                        struct gpuobs_probe_program *row)
{
        *row = (struct gpuobs_probe_program){
                .name = p->name,
                .event = (enum gpuobs_probe_event)(p->where - DEVICE_ENTRY),
                .scope = (enum gpuobs_probe_scope)(p->scope - DEVICE_SCOPE_GRID),
                .instructions = p->cost.instructions,
                .memory = p->cost.memory,
                .atomics = p->cost.atomics,
                .ptx = ptx ? p->ptx : NULL,
        };
}

struct attached {
        struct api_call *call;
        struct gpuobs_probe_attachment *rows;
        size_t count, room;
        bool failed;
};

static int count_attachment(void *data, const struct api_attachment *a)
{
        struct attached *g = data;

        g->room += api_call_sees(g->call, a->process);
        return 0;
}

static int add_attachment(void *data, const struct api_attachment *a)
{
        struct attached *g = data;
        char *comm;

        if (!api_call_sees(g->call, a->process))
                return 0;
        comm = codec_arena_alloc(&g->call->arena, 17);
        if (!comm) {
                g->failed = true;
                return 1;
        }
        rows_comm(comm, a->process);
        g->rows[g->count++] = (struct gpuobs_probe_attachment){
                .pid = a->process->pid,
                .start_ticks = a->process->start_ticks,
                .comm = comm,
                .state = a->state,
                .code = a->code,
                .gpu_bytes = a->gpu_bytes,
                .reason = a->reason,
        };
        return g->count == g->room;
}

static bool add_attachments(struct api_call *call, uint64_t id, struct gpuobs_probe *row)
{
        struct api_server *s = call->server;
        struct attached g = {.call = call};

        s->backend->attachments(s->data, id, count_attachment, &g);
        g.rows = codec_arena_alloc(&call->arena, (g.room + 1) * sizeof(*g.rows));
        if (!g.rows)
                return false;
        if (g.room)
                s->backend->attachments(s->data, id, add_attachment, &g);
        row->attached = g.rows;
        row->n_attached = g.count;
        return !g.failed;
}

struct search {
        const char *name;
        struct api_probe *found;
        bool is_found;
};

static int look_for(void *data, const struct api_probe *p)
{
        struct search *s = data;

        if (strcmp(p->name, s->name) != 0)
                return 0;
        *s->found = *p;
        s->is_found = true;
        return 1;
}

bool probe_find(struct api_call *call, const char *name, struct api_probe *ret_probe)
{
        struct search search = {.name = name, .found = ret_probe};
        struct api_server *s = call->server;

        s->backend->probes(s->data, look_for, &search);
        return search.is_found;
}

bool probe_row(struct api_call *call, const struct api_probe *p, bool ptx,
               struct gpuobs_probe *ret_row)
{
        size_t programs = device_object_program_count(p->object);
        size_t maps = device_object_map_count(p->object);
        struct gpuobs_probe row = {
                .name = p->name,
                .builtin = p->builtin,
                .loaded_ns = p->loaded_ns,
                .all = p->all,
                .process = p->comm,
                .kernels = p->kernels,
                .programs = codec_arena_alloc(&call->arena, (programs + 1) * sizeof(*row.programs)),
                .n_programs = programs,
                .maps = codec_arena_alloc(&call->arena, (maps + 1) * sizeof(*row.maps)),
                .n_maps = maps,
        };

        if (!row.programs || !row.maps)
                return false;
        for (size_t i = 0; i < programs; i++)
                program_row(device_object_program(p->object, i), ptx, &row.programs[i]);
        for (size_t i = 0; i < maps; i++)
                probe_map_row(device_object_map(p->object, i), &row.maps[i]);
        if (!add_attachments(call, p->id, &row))
                return false;
        *ret_row = row;
        return true;
}
