/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe_build.h"
#include "probe_set.h"
#include "splice.h"

#define NO_SPLICING "this architecture's machine code is not understood"

struct built_program {
        uint32_t where;
        char label[64];
        char *text; /* bound */
        struct probe_code *code;
        char code_refusal[PROBE_ERROR_BYTES];
};

struct object {
        uint64_t id;
        char kernels[PROBE_SET_GLOB_BYTES]; /* "": all */
        struct gpu_maps maps;
        struct built_program programs[AGENT_PROGRAMS_MAX];
        size_t program_count;
};

struct probe_set {
        struct probe_set_options options;
        struct object *objects[PROBE_LIST_MAX];
        size_t object_count;
        struct probe_program programs[PROBE_LIST_MAX];
        struct probe_list list;
};

struct probe_set *probe_set_new(const struct probe_set_options *options)
{
        struct probe_set *set = calloc(1, sizeof(*set));

        if (set) {
                set->options = *options;
                set->list.programs = set->programs;
        }
        return set;
}

static struct object *object_free(const struct probe_set *set, struct object *o)
{
        if (!o)
                return NULL;
        for (size_t i = 0; i < o->program_count; i++) {
                free(o->programs[i].text);
                probe_code_free(o->programs[i].code);
        }
        gpu_maps_free(&set->options.place, &o->maps);
        free(o);
        return NULL;
}

static struct object *find(const struct probe_set *set, uint64_t id)
{
        for (size_t i = 0; i < set->object_count; i++)
                if (set->objects[i]->id == id)
                        return set->objects[i];
        return NULL;
}

static uint64_t free_map_bytes(const struct probe_set *set)
{
        uint64_t used = 0;

        for (size_t i = 0; i < set->object_count; i++)
                used += set->objects[i]->maps.size;
        return used < set->options.map_bytes ? set->options.map_bytes - used : 0;
}

static void list_programs(struct probe_set *set)
{
        size_t n = 0;

        for (size_t i = 0; i < set->object_count; i++) {
                const struct object *o = set->objects[i];

                for (size_t k = 0; k < o->program_count; k++) {
                        const struct built_program *p = &o->programs[k];

                        set->programs[n++] = (struct probe_program){
                                .where = p->where,
                                .times = !o->id,
                                .label = p->label,
                                .kernels = o->kernels[0] ? o->kernels : NULL,
                                .text = p->text,
                                .code = p->code,
                                .code_refusal = p->code_refusal,
                        };
                }
        }
        set->list.count = n;
}

/* Without machine code the program still goes into PTX. */
static void build_code(const struct probe_set *set, struct built_program *p)
{
        const struct probe_set_options *o = &set->options;
        int r;

        if (o->sm != SPLICE_SM) {
                snprintf(p->code_refusal, sizeof(p->code_refusal), "%s", NO_SPLICING);
                return;
        }
        r = probe_build(o->place.api, p->text, o->sm, o->layout != NULL, &p->code, p->code_refusal);
        if (r < 0 && !p->code_refusal[0])
                snprintf(p->code_refusal, sizeof(p->code_refusal),
                         "the program cannot be compiled: %s",
                         r == -ENOSYS ? "the driver has no linker" : strerror(-r));
}

/* The daemon's own are called by their place: coverage speaks of starts and ends. */
static void label_program(const struct object *o, const struct program *from,
                          struct built_program *p)
{
        if (o->id)
                snprintf(p->label, sizeof(p->label), "%s", from->name);
        else
                snprintf(p->label, sizeof(p->label), "%s",
                         p->where == AGENT_PROGRAM_ENTRY ? "entry" : "exit");
}

static int build(const struct probe_set *set, const struct programs *programs, struct object *o)
{
        for (size_t i = 0; i < programs->count; i++) {
                struct built_program *p = &o->programs[o->program_count++];
                int r;

                p->where = programs->at[i].where;
                label_program(o, &programs->at[i], p);
                r = fragment_bind(programs->at[i].text, o->maps.address, &p->text);
                if (r < 0)
                        return r;
                build_code(set, p);
        }
        return 0;
}

static int refuse(char *reason, int error, const char *sentence)
{
        snprintf(reason, PROBE_SET_REASON_BYTES, "%s", sentence);
        return error;
}

static int add(struct probe_set *set, const struct probe_object *object,
               const struct programs *programs, struct object *o, char *reason)
{
        const char *refusal;

        if (set->list.count + programs->count > PROBE_LIST_MAX)
                return refuse(reason, -ENOBUFS, "too many programs in this process");
        o->id = object->id;
        snprintf(o->kernels, sizeof(o->kernels), "%s", object->kernels ?: "");
        refusal = gpu_maps_place(&set->options.place, programs->maps, object->blob, object->host,
                                 free_map_bytes(set), &o->maps);
        if (refusal)
                return refuse(reason, -ENOTSUP, refusal);
        if (build(set, programs, o) < 0)
                return refuse(reason, -EINVAL, "the daemon's programs cannot be completed");
        return 0;
}

int probe_set_add(struct probe_set *set, const struct probe_object *object,
                  char reason[PROBE_SET_REASON_BYTES])
{
        struct programs programs;
        struct object *o;
        int r;

        if (find(set, object->id))
                return refuse(reason, -EEXIST, "these programs are there already");
        r = programs_parse(object->blob, object->blob_bytes, &programs);
        if (r < 0)
                return refuse(reason, r, "the daemon's programs cannot be read");
        o = calloc(1, sizeof(*o));
        r = o ? add(set, object, &programs, o, reason) : refuse(reason, -ENOMEM, "out of memory");
        programs_done(&programs);
        if (r < 0) {
                object_free(set, o);
                return r;
        }
        set->objects[set->object_count++] = o;
        list_programs(set);
        return 0;
}

const struct probe_list *probe_set_list(const struct probe_set *set)
{
        return &set->list;
}

const char *probe_set_code_refusal(const struct probe_set *set, uint64_t id)
{
        const struct object *o = find(set, id);

        for (size_t i = 0; o && i < o->program_count; i++)
                if (!o->programs[i].code)
                        return o->programs[i].code_refusal;
        return NULL;
}

const struct gpu_maps *probe_set_maps(const struct probe_set *set, uint64_t id)
{
        const struct object *o = find(set, id);

        return o ? &o->maps : NULL;
}
