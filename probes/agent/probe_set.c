/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arch.h"
#include "monotonic.h"
#include "probe_build.h"
#include "probe_set.h"
#include "splice.h"

#define OBJECTS_MAX  256 /* those that are gone but for their memory, too */
#define READINGS_MAX 4
#define PIECE_BYTES  (1u << 20) /* of a map that is being read */

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
        bool own_host; /* its host maps are its own, to be taken back */
        bool gone;     /* out of the list, only its memory is still there */
        struct built_program programs[AGENT_PROGRAMS_MAX];
        size_t program_count;
};

/* The objects of a list as it was at some time. */
struct generation {
        uint64_t ids[PROBE_LIST_MAX];
        size_t count;
};

struct probe_set {
        struct probe_set_options options;
        struct generation *generations; /* the first is number 1 */
        size_t generation_count;
        uint32_t generation; /* of the list now */
        struct object *objects[OBJECTS_MAX];
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

static void free_programs(struct object *o)
{
        for (size_t i = 0; i < o->program_count; i++) {
                free(o->programs[i].text);
                probe_code_free(o->programs[i].code);
        }
        o->program_count = 0;
}

static struct object *object_free(const struct probe_set *set, struct object *o)
{
        if (!o)
                return NULL;
        free_programs(o);
        for (int i = 0; i < AGENT_MAP_MAX; i++)
                if (o->own_host && o->maps.host[i])
                        host_map_remove(set->options.place.api, o->maps.address[i],
                                        o->maps.bytes[i]);
        gpu_maps_free(&set->options.place, &o->maps);
        free(o);
        return NULL;
}

struct probe_set *probe_set_free(struct probe_set *set)
{
        if (!set)
                return NULL;
        for (size_t i = 0; i < set->object_count; i++)
                object_free(set, set->objects[i]);
        free(set->generations);
        free(set);
        return NULL;
}

static struct object *find(const struct probe_set *set, uint64_t id)
{
        for (size_t i = 0; i < set->object_count; i++)
                if (set->objects[i]->id == id && !set->objects[i]->gone)
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

/* Without memory for another number the list has none that anything can be loaded with: 0. */
static void number_list(struct probe_set *set)
{
        struct generation now = {.count = 0}, *grown;
        size_t i = 0;

        for (size_t k = 0; k < set->object_count; k++)
                if (!set->objects[k]->gone)
                        now.ids[now.count++] = set->objects[k]->id;
        while (i < set->generation_count && memcmp(&set->generations[i], &now, sizeof(now)) != 0)
                i++;
        set->generation = 0;
        if (i == set->generation_count) {
                grown = reallocarray(set->generations, i + 1, sizeof(*grown));
                if (!grown)
                        return;
                set->generations = grown;
                set->generations[set->generation_count++] = now;
        }
        set->generation = (uint32_t)i + 1;
}

static void list_programs(struct probe_set *set)
{
        size_t n = 0;

        number_list(set);

        for (size_t i = 0; i < set->object_count; i++) {
                const struct object *o = set->objects[i];

                for (size_t k = 0; !o->gone && k < o->program_count; k++) {
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

        if (!arch_find(o->sm)) {
                snprintf(p->code_refusal, sizeof(p->code_refusal), "no instruction table for sm_%u",
                         o->sm);
                return;
        }
        r = probe_build(o->place.api, p->text, o->sm, o->layout, &p->code, p->code_refusal);
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
        o->own_host = object->id != 0; /* object 0 has the ring */
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
        if (set->object_count == OBJECTS_MAX)
                return refuse(reason, -ENOBUFS, "too many programs in this process");
        r = programs_parse(object->blob, object->blob_bytes, &programs);
        if (r < 0)
                return refuse(reason, r, "the daemon's programs cannot be read");
        o = calloc(1, sizeof(*o));
        r = o ? add(set, object, &programs, o, reason) : refuse(reason, -ENOMEM, "out of memory");
        programs_done(&programs);
        if (r < 0) {
                if (o)
                        o->own_host = false; /* they stay the caller's */
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

/* Only the memory stays. */
static void retire(struct object *o)
{
        free_programs(o);
        o->gone = true;
}

static void forget(struct probe_set *set, struct object *o)
{
        size_t i = 0;

        while (set->objects[i] != o)
                i++;
        memmove(&set->objects[i], &set->objects[i + 1],
                (--set->object_count - i) * sizeof(*set->objects));
        object_free(set, o);
}

int probe_set_remove(struct probe_set *set, uint64_t id, uint64_t *ret_kept_bytes)
{
        struct object *o = find(set, id);

        if (!o)
                return -ENOENT;
        *ret_kept_bytes = o->maps.size;
        retire(o);
        list_programs(set);
        return 0;
}

/* Whether the object was in a list that images or copies were rewritten with. */
static bool is_used(const struct probe_set *set, const struct object *o,
                    bool (*lives)(uint32_t generation))
{
        for (size_t i = 0; i < set->generation_count; i++) {
                const struct generation *g = &set->generations[i];

                for (size_t k = 0; k < g->count; k++)
                        if (g->ids[k] == o->id && lives((uint32_t)i + 1))
                                return true;
        }
        return false;
}

bool probe_set_sweep(struct probe_set *set, bool (*lives)(uint32_t generation), uint64_t *ret_id)
{
        for (size_t i = 0; i < set->object_count; i++) {
                struct object *o = set->objects[i];

                if (!o->gone || is_used(set, o, lives))
                        continue;
                *ret_id = o->id;
                forget(set, o);
                return true;
        }
        return false;
}

bool probe_set_has_gone(const struct probe_set *set)
{
        for (size_t i = 0; i < set->object_count; i++)
                if (set->objects[i]->gone)
                        return true;
        return false;
}

uint32_t probe_set_generation(const struct probe_set *set)
{
        return set->generation;
}

bool probe_set_remove_all(struct probe_set *set)
{
        bool any = false;
        uint64_t kept;

        for (size_t i = set->object_count; i-- > 0;)
                if (set->objects[i]->id && !set->objects[i]->gone)
                        any |= probe_set_remove(set, set->objects[i]->id, &kept) == 0;
        return any;
}

const char *probe_set_revive(struct probe_set *set)
{
        const char *refusal = NULL;

        for (size_t i = 0; i < set->object_count; i++) {
                const struct object *o = set->objects[i];

                for (int k = 0; k < AGENT_MAP_MAX && !refusal; k++)
                        if (o->own_host && o->maps.host[k])
                                refusal = host_map_register(set->options.place.api,
                                                            o->maps.address[k], o->maps.bytes[k]);
        }
        return refusal;
}

/* ---- reading ---- */

/* A piece of a map as it is now, and as it was at the reading before. */
struct pieces {
        uint8_t now[PIECE_BYTES], before[PIECE_BYTES];
};

/* Not from the application's heap, which would keep them. */
static struct pieces *pieces_new(void)
{
        void *p = mmap(NULL, sizeof(struct pieces), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

static int write_all(int fd, const uint8_t *bytes, size_t size, uint64_t offset)
{
        for (size_t done = 0; done < size;) {
                ssize_t n = pwrite(fd, bytes + done, size - done, (off_t)(offset + done));

                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                done += (size_t)n;
        }
        return 0;
}

static int read_all(int fd, uint8_t *to, size_t size, uint64_t offset)
{
        for (size_t done = 0; done < size;) {
                ssize_t n = pread(fd, to + done, size - done, (off_t)(offset + done));

                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                done += (size_t)n;
        }
        return 0;
}

/* One piece, written where it differs from what the file has. */
static int read_piece(const struct probe_set *set, const struct gpu_maps *m, uint32_t map,
                      uint64_t offset, size_t size, int fd, struct pieces *p, bool *changed)
{
        uint64_t from = m->address[map] + offset;
        int r;

        if (m->host[map])
                memcpy(p->now, (const void *)(uintptr_t)from, size);
        else if (gpu_read(set->options.place.api, p->now, from, size) != CUDA_OK)
                return -EIO;
        r = read_all(fd, p->before, size, offset);
        if (r < 0 || memcmp(p->now, p->before, size) == 0)
                return r;
        *changed = true;
        return write_all(fd, p->now, size, offset);
}

static int read_once(const struct probe_set *set, const struct gpu_maps *m, uint32_t map, int fd,
                     struct pieces *p, struct map_reading *reading)
{
        bool changed = false;
        int r = 0;

        reading->before_ns = now_ns();
        for (uint64_t at = 0; at < m->bytes[map] && r == 0; at += PIECE_BYTES) {
                uint64_t left = m->bytes[map] - at;

                r = read_piece(set, m, map, at, left < PIECE_BYTES ? left : PIECE_BYTES, fd, p,
                               &changed);
        }
        reading->after_ns = now_ns();
        reading->settled = !changed;
        return r;
}

int probe_set_read(const struct probe_set *set, uint64_t id, uint32_t map, int fd,
                   struct map_reading *ret_reading)
{
        const struct gpu_maps *m = probe_set_maps(set, id);
        struct map_reading reading = {0};
        struct pieces *p;
        int r;

        if (!m || map >= AGENT_MAP_MAX || !m->address[map])
                return -ENOENT;
        p = pieces_new();
        if (!p)
                return -ENOMEM;
        /* The first one has only the file's zeros to be compared with. */
        r = read_once(set, m, map, fd, p, &reading);
        reading.settled = false;
        for (int i = 0; i < READINGS_MAX && r == 0 && !reading.settled; i++)
                r = read_once(set, m, map, fd, p, &reading);
        munmap(p, sizeof(*p));
        if (r == 0)
                *ret_reading = reading;
        return r;
}

int probe_set_write(const struct probe_set *set, uint64_t id, uint32_t map, uint64_t offset,
                    const void *bytes, size_t size)
{
        const struct gpu_maps *m = probe_set_maps(set, id);

        if (!m || map >= AGENT_MAP_MAX || !m->address[map])
                return -ENOENT;
        if (offset > m->bytes[map] || size > m->bytes[map] - offset)
                return -ERANGE;
        if (m->host[map])
                memcpy((void *)(uintptr_t)(m->address[map] + offset), bytes, size);
        else if (gpu_write(set->options.place.api, m->address[map] + offset, bytes, size) !=
                 CUDA_OK)
                return -EIO;
        return 0;
}
