/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "agent/agent_abi.h"
#include "device/compile.h"
#include "device/device_abi.h"
#include "device/insn.h"
#include "device/message.h"
#include "device/program.h"
#include "device/section.h"
#include "device/source_map.h"
#include "device/stand_in.h"
#include "device/verifier.h"
#include "device/verify.h"
#include "util/macro.h"

#define PROGRAM_MAX       8 /* what a blob may hold */
#define VERIFIER_LOG_SIZE (256 * 1024)

#define RING_SLOTS_MIN 16

#define DEVICE_MAP_BYTES_MAX (1ULL << 30)
#define TWICE_HASH_MAX       16384 /* read once a second, and merged key by key */

struct device_object {
        struct device_map_info maps[AGENT_MAP_MAX];
        size_t map_count;
        struct device_program_info programs[PROGRAM_MAX];
        struct text texts[PROGRAM_MAX];
        size_t program_count;
        struct messages *messages;
        int print_map; /* the ring of messages; -1 none */
};

/* What is needed while an object is loaded. */
struct loader {
        struct device_object *object;
        struct bpf_object *bpf;
        struct bpf_program *programs[PROGRAM_MAX];
        int map_fds[AGENT_MAP_MAX];
        struct source_map *sources;
        const struct device_options *options;
        char *log;
        char *error;
        size_t error_size;
        size_t current; /* program being compiled */
        char line[512];
};

DEFINE_CLEANUP(struct device_object *, device_object_free)

static int fail(struct loader *l, int code, const char *format, ...) _printf_(3, 4);

static int fail(struct loader *l, int code, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(l->error, l->error_size, format, args);
        va_end(args);
        return code;
}

/* A refusal at an instruction of program p, with its source line where that is known. */
static int fail_at(struct loader *l, size_t p, size_t insn, int code, const char *reason)
{
        const char *name = l->object->programs[p].name;
        const char *section = bpf_program__section_name(l->programs[p]);
        char position[160], text[200];

        if (source_map_find(l->sources, section, name, bpf_program__insns(l->programs[p]),
                            bpf_program__insn_cnt(l->programs[p]), insn, position, sizeof(position),
                            text, sizeof(text)))
                return fail(l, code, "%s, instruction %zu: %s", name, insn, reason);
        return fail(l, code, "%s: in %s: %s: %s (instruction %zu)", position, name, reason, text,
                    insn);
}

/* Maps */

static int check_shape(struct loader *l, const struct device_map_info *info)
{
        bool hash = info->type == BPF_MAP_TYPE_HASH;

        if (info->type != BPF_MAP_TYPE_ARRAY && !hash)
                return fail(l, -ENOTSUP, "map %s: a GPU has arrays, hashes and ring buffers only",
                            info->name);
        if (info->value_size == 0 || info->max_entries == 0)
                return fail(l, -EINVAL, "map %s has no size", info->name);
        if (hash && (!info->key_size || info->key_size % 4 || info->key_size > DEVICE_HASH_KEY_MAX))
                return fail(l, -ENOTSUP,
                            "map %s: the key of a hash has a multiple of 4 bytes, up to %d, not %u",
                            info->name, DEVICE_HASH_KEY_MAX, info->key_size);
        if (hash && info->spread != DEVICE_SHARED)
                return fail(l, -ENOTSUP, "map %s: a hash is there once, not per warp or thread",
                            info->name);
        if (device_map_bytes(info) > DEVICE_MAP_BYTES_MAX)
                return fail(l, -ENOTSUP, "map %s would take more than %llu MiB of GPU memory",
                            info->name, DEVICE_MAP_BYTES_MAX >> 20);
        return 0;
}

static int check_ring(struct loader *l, const struct device_map_info *info)
{
        if (info->spread != DEVICE_SHARED)
                return fail(l, -ENOTSUP, "ring %s: a ring is there once, not per warp or thread",
                            info->name);
        if (info->record_bytes > GPUOBS_RECORD_MAX)
                return fail(l, -ENOTSUP, "ring %s: a record has at most %d bytes, not %u",
                            info->name, GPUOBS_RECORD_MAX, info->record_bytes);
        if (device_ring_slots(info) < RING_SLOTS_MIN)
                return fail(l, -ENOTSUP, "ring %s has no room for %d records of %u bytes",
                            info->name, RING_SLOTS_MIN, info->record_bytes);
        if (device_map_bytes(info) > DEVICE_MAP_BYTES_MAX)
                return fail(l, -ENOTSUP, "ring %s would take more than %llu MiB", info->name,
                            DEVICE_MAP_BYTES_MAX >> 20);
        return 0;
}

static int check_duplicate(struct loader *l, const struct device_map_info *info, uint64_t extra)
{
        if (info->rule == DEVICE_RULE_NONE || info->rule > DEVICE_RULE_OR)
                return fail(l, -EINVAL,
                            "map %s is there twice and does not say what for: GPUOBS_SETTINGS, "
                            "GPUOBS_SUM, GPUOBS_MAX or GPUOBS_OR",
                            info->name);
        if ((extra & GPUOBS_PLACE_MASK) != GPUOBS_PLACE_DUPLICATE)
                return fail(l, -EINVAL,
                            "map %s has a rule, but is there once: "
                            "GPUOBS_PLACE_DUPLICATE",
                            info->name);
        if (info->type != BPF_MAP_TYPE_ARRAY && info->type != BPF_MAP_TYPE_HASH)
                return fail(l, -ENOTSUP, "map %s: only an array or a hash can be there twice",
                            info->name);
        if (info->type == BPF_MAP_TYPE_HASH && info->rule == DEVICE_RULE_SETTINGS)
                return fail(l, -ENOTSUP, "map %s: settings are an array, not a hash", info->name);
        if (info->type == BPF_MAP_TYPE_HASH && info->max_entries > TWICE_HASH_MAX)
                return fail(l, -ENOTSUP,
                            "map %s: a hash that is there twice has at most %d entries, not %u",
                            info->name, TWICE_HASH_MAX, info->max_entries);
        if (info->rule == DEVICE_RULE_SETTINGS && info->spread != DEVICE_SHARED)
                return fail(l, -ENOTSUP, "map %s: settings are the same for all", info->name);
        if (info->rule != DEVICE_RULE_SETTINGS && info->value_size % 8)
                return fail(l, -ENOTSUP,
                            "map %s: what is merged are words of 8 bytes, not %u bytes", info->name,
                            info->value_size);
        return 0;
}

static int check_map(struct loader *l, const struct device_map_info *info)
{
        if (info->placement != GPUOBS_PLACE_HOST && info->placement != GPUOBS_PLACE_DEVICE)
                return fail(l, -EINVAL,
                            "map %s does not say where it lives: __uint(map_extra, "
                            "GPUOBS_PLACE_HOST or GPUOBS_PLACE_DEVICE)",
                            info->name);
        if (info->type == BPF_MAP_TYPE_RINGBUF)
                return check_ring(l, info);
        if (info->placement == GPUOBS_PLACE_HOST &&
            (info->type != BPF_MAP_TYPE_ARRAY || info->spread != DEVICE_SHARED))
                return fail(l, -ENOTSUP,
                            "map %s: in host memory are only ring buffers and arrays that are "
                            "there once",
                            info->name);
        return check_shape(l, info);
}

/* Global variables: one element on the device, which constants never change. */
static int check_variables(struct loader *l, const struct bpf_map *map,
                           struct device_map_info *info)
{
        const char *section = strchrnul(bpf_map__name(map), '.'); /* behind the object's name */
        const uint8_t *bytes;
        size_t size = 0;

        snprintf(info->name, sizeof(info->name), "%s", section);
        info->placement = GPUOBS_PLACE_DEVICE;
        bytes = bpf_map__initial_value((struct bpf_map *)map, &size);
        if (!bytes || size < info->value_size)
                return fail(l, -ENOTSUP, "section %s holds variables of the kernel", section);
        info->initial = malloc(info->value_size);
        if (!info->initial)
                return fail(l, -ENOMEM, "out of memory");
        memcpy(info->initial, bytes, info->value_size);
        if (bpf_map__map_flags(map) & BPF_F_RDONLY_PROG)
                info->constant = info->initial;
        return 0;
}

static void describe_map(const struct bpf_map *map, struct device_map_info *ret_info)
{
        uint64_t extra = bpf_map__map_extra(map);

        *ret_info = (struct device_map_info){
                .placement = (uint32_t)(extra & GPUOBS_PLACE_MASK),
                .spread = (enum device_spread)(extra / GPUOBS_PER_SM & 3),
                .rule = (enum device_rule)(extra / GPUOBS_SETTINGS & 7),
                .type = bpf_map__type(map),
                .key_size = bpf_map__key_size(map),
                .value_size = bpf_map__value_size(map),
                .max_entries = bpf_map__max_entries(map),
                .record_bytes = (uint32_t)(extra >> GPUOBS_RECORD_SHIFT),
        };
        if (!ret_info->record_bytes)
                ret_info->record_bytes = GPUOBS_RECORD_DEFAULT;
        if (ret_info->placement == GPUOBS_PLACE_DUPLICATE)
                ret_info->placement = GPUOBS_PLACE_DEVICE;
        snprintf(ret_info->name, sizeof(ret_info->name), "%s", bpf_map__name(map));
}

static bool is_duplicate(const struct bpf_map *map)
{
        uint64_t extra = bpf_map__map_extra(map);

        return (extra & GPUOBS_PLACE_MASK) == GPUOBS_PLACE_DUPLICATE || extra & GPUOBS_RULE_MASK;
}

static int add_map(struct loader *l, struct bpf_map *map)
{
        struct device_object *o = l->object;
        struct device_map_info *info;
        int error;

        if (o->map_count == AGENT_MAP_MAX)
                return fail(l, -ENOTSUP, "more than %d maps", AGENT_MAP_MAX);
        info = &o->maps[o->map_count];
        describe_map(map, info);
        error = bpf_map__is_internal(map) ? check_variables(l, map, info) : check_map(l, info);
        if (!error && is_duplicate(map))
                error = check_duplicate(l, info, bpf_map__map_extra(map));
        if (error)
                return error;
        info->bytes = device_map_bytes(info);
        o->map_count++;
        /* The placement is for us; the kernel allows map_extra for other map types only. */
        return bpf_map__set_map_extra(map, 0);
}

/* A map that the object does not have itself. */
static int add_own_map(struct loader *l, const struct device_map_info *info)
{
        struct device_object *o = l->object;

        if (o->map_count == AGENT_MAP_MAX)
                return fail(l, -ENOTSUP, "more than %d maps with %s, which the compiler adds",
                            AGENT_MAP_MAX, info->name);
        o->maps[o->map_count] = *info;
        o->maps[o->map_count].bytes = device_map_bytes(info);
        l->map_fds[o->map_count++] = -1;
        return 0;
}

/* Rings in host memory have their heads together in a map on the device. */
static int add_heads(struct loader *l)
{
        struct device_object *o = l->object;
        struct device_map_info heads = {
                .name = ".heads",
                .placement = GPUOBS_PLACE_DEVICE,
                .type = BPF_MAP_TYPE_ARRAY,
                .key_size = 4,
                .value_size = sizeof(struct device_event_head),
        };

        for (size_t i = 0; i < o->map_count; i++) {
                if (o->maps[i].type != BPF_MAP_TYPE_RINGBUF)
                        continue;
                o->maps[i].head_map = (uint32_t)i;
                if (o->maps[i].placement != GPUOBS_PLACE_HOST)
                        continue;
                o->maps[i].head_map = (uint32_t)o->map_count;
                o->maps[i].head_offset = heads.max_entries++ * heads.value_size;
        }
        return heads.max_entries ? add_own_map(l, &heads) : 0;
}

static bool prints(const struct bpf_program *program)
{
        const struct bpf_insn *insns = bpf_program__insns(program);

        for (size_t i = 0; i < bpf_program__insn_cnt(program); i++)
                if (insn_is_call(insns[i].code) && insns[i].src_reg == 0 &&
                    insn_is_print(insns[i].imm))
                        return true;
        return false;
}

/* The ring for messages, if there are any. */
static int add_print_map(struct loader *l)
{
        struct device_object *o = l->object;
        struct device_map_info ring = {
                .name = ".printk",
                .placement = GPUOBS_PLACE_DEVICE,
                .type = BPF_MAP_TYPE_RINGBUF,
                .record_bytes = sizeof(struct device_print),
                .head_map = (uint32_t)o->map_count,
        };

        ring.max_entries = DEVICE_PRINT_ENTRIES * device_ring_slot_bytes(&ring);
        for (size_t p = 0; p < o->program_count; p++) {
                if (!prints(l->programs[p]))
                        continue;
                o->print_map = (int)o->map_count;
                return add_own_map(l, &ring);
        }
        return 0;
}

static int add_maps(struct loader *l)
{
        struct bpf_map *map;

        bpf_object__for_each_map(map, l->bpf)
        {
                int error = add_map(l, map);

                if (error)
                        return error;
        }
        return 0;
}

/* Programs */

static int add_program(struct loader *l, struct bpf_program *program)
{
        struct device_object *o = l->object;
        struct device_program_info *info;
        struct section section;
        int error;

        if (o->program_count == PROGRAM_MAX)
                return fail(l, -ENOTSUP, "more than %d programs", PROGRAM_MAX);
        info = &o->programs[o->program_count];
        error = section_parse(bpf_program__section_name(program), l->error, l->error_size,
                              &section);
        if (error)
                return error;
        info->where = section.where;
        info->scope = section.scope;
        snprintf(info->name, sizeof(info->name), "%s", bpf_program__name(program));
        l->programs[o->program_count++] = program;
        error = bpf_program__set_type(program, BPF_PROG_TYPE_SYSCALL);
        if (!error)
                error = bpf_program__set_flags(program, BPF_F_SLEEPABLE);
        if (!error)
                error = bpf_program__set_autoload(program, true);
        if (!error)
                error = bpf_program__set_log_buf(program, l->log, VERIFIER_LOG_SIZE);
        return error;
}

static int add_programs(struct loader *l)
{
        struct bpf_program *program;

        bpf_object__for_each_program(program, l->bpf)
        {
                int error = add_program(l, program);

                if (error)
                        return error;
        }
        if (l->object->program_count == 0)
                return fail(l, -EINVAL, "the object holds no device program");
        return 0;
}

/* The kernel's verdict */

static int explain_load_failure(struct loader *l, int code)
{
        char message[256], reason[sizeof(message) + 32];
        size_t insn, p = 0;

        if (code == -EPERM)
                return fail(l, code,
                            "the kernel does not let this process load eBPF programs: "
                            "it needs CAP_BPF or root");
        while (p + 1 < l->object->program_count && bpf_program__fd(l->programs[p]) >= 0)
                p++;
        if (verify_read_log(l->log, message, sizeof(message), &insn))
                return fail(l, code, "the kernel cannot load the object: %s", strerror(-code));
        snprintf(reason, sizeof(reason), "the kernel verifier: %s", message);
        return fail_at(l, p, insn, -EACCES, reason);
}

static int verify(struct loader *l)
{
        int error = bpf_object__load(l->bpf);
        size_t i = 0;
        struct bpf_map *map;

        if (error)
                return explain_load_failure(l, error);
        /* Without the types the kernel takes all functions for static (stand_in.h). */
        if (bpf_object__btf(l->bpf) && bpf_object__btf_fd(l->bpf) < 0)
                return fail(l, -EINVAL, "the kernel does not accept the object's BTF");
        bpf_object__for_each_map(map, l->bpf) l->map_fds[i++] = bpf_map__fd(map);
        return 0;
}

/* Compilation */

/* Map references of the loaded program hold descriptors; the compiler wants map numbers. */
static void number_maps(const struct loader *l, struct bpf_insn *insns, size_t count)
{
        for (size_t i = 0; i < count; i++) {
                int fd = insns[i].imm;

                if (insns[i].code != (BPF_LD | BPF_IMM | BPF_DW))
                        continue;
                if (insns[i].src_reg == BPF_PSEUDO_MAP_FD ||
                    insns[i].src_reg == BPF_PSEUDO_MAP_VALUE) {
                        insns[i].imm = -1;
                        for (size_t m = 0; m < l->object->map_count; m++)
                                if (l->map_fds[m] == fd)
                                        insns[i].imm = (int32_t)m;
                }
                i++;
        }
}

/* Tokens of a fragment are written with @, so source text must have none. */
static void hide_tokens(char *text)
{
        for (; *text; text++)
                if (*text == '@' || (unsigned char)*text < ' ' || (unsigned char)*text > '~')
                        *text = '?';
}

/* Comment for an instruction: once per line of source. */
static const char *comment(void *data, size_t insn)
{
        struct loader *l = data;
        const struct bpf_program *program = l->programs[l->current];
        char position[160], text[200], line[sizeof(l->line)];

        if (source_map_find(l->sources, bpf_program__section_name(program),
                            l->object->programs[l->current].name, bpf_program__insns(program),
                            bpf_program__insn_cnt(program), insn, position, sizeof(position), text,
                            sizeof(text)))
                return NULL;
        snprintf(line, sizeof(line), "%s %s", position, text);
        hide_tokens(line);
        if (!strcmp(line, l->line))
                return NULL;
        memcpy(l->line, line, sizeof(line));
        return l->line;
}

static unsigned stack_depth(void *data)
{
        struct loader *l = data;
        const struct bpf_program *program = l->programs[l->current];

        return verifier_stack_depth(bpf_program__fd(program), bpf_program__insns(program),
                                    bpf_program__insn_cnt(program), bpf_object__btf_fd(l->bpf));
}

static int compile(struct loader *l, size_t p)
{
        struct device_object *o = l->object;
        size_t count = bpf_program__insn_cnt(l->programs[p]);
        _cleanup_free_ struct bpf_insn *insns = calloc(count, sizeof(*insns));
        struct compile_job job = {
                .insns = insns,
                .count = count,
                .maps = o->maps,
                .map_count = o->map_count,
                .where = o->programs[p].where,
                .scope = o->programs[p].scope,
                .verified = verifier_insns(bpf_program__fd(l->programs[p])),
                .line = comment,
                .stack_depth = stack_depth,
                .data = l,
                .messages = o->print_map >= 0 ? o->messages : NULL,
                .print_map = (uint8_t)(o->print_map >= 0 ? o->print_map : 0),
        };
        struct device_cost budget = device_budget(job.where, job.scope);
        struct refusal refusal;
        int error;

        job.budget = l->options && l->options->budget ? l->options->budget : &budget;
        if (!insns)
                return fail(l, -ENOMEM, "out of memory");
        memcpy(insns, bpf_program__insns(l->programs[p]), count * sizeof(*insns));
        number_maps(l, insns, count);
        l->current = p;
        l->line[0] = 0;
        error = device_compile(&job, &refusal, &o->texts[p], &o->programs[p].cost);
        if (error == -ENOTSUP)
                return fail_at(l, p, refusal.insn, error, refusal.reason);
        if (error)
                return fail(l, error, "out of memory");
        o->programs[p].ptx = o->texts[p].data;
        o->programs[p].ptx_bytes = o->texts[p].size;
        return 0;
}

/* All steps; `error` holds a sentence when it was not only a lack of memory. */
static int load(struct loader *l, const void *elf, size_t elf_bytes)
{
        char name[64];
        int error = stand_in_check(elf, elf_bytes, name, sizeof(name));

        if (error)
                return fail(l, error,
                            "function %s stands for a helper of the GPU and must not be static",
                            name);
        error = add_maps(l);
        if (!error)
                error = add_programs(l);
        if (!error)
                error = source_map_new(elf, elf_bytes, bpf_object__btf(l->bpf), &l->sources);
        if (!error)
                error = verify(l);
        if (!error)
                error = add_heads(l);
        if (!error)
                error = add_print_map(l);
        for (size_t p = 0; !error && p < l->object->program_count; p++)
                error = compile(l, p);
        return error;
}

struct device_cost device_budget(enum device_where where, enum device_scope scope)
{
        /* Every access pays, not every thread once. */
        static const struct device_cost access_budgets[] = {
                [DEVICE_SCOPE_WARP] = {512, 64, 16},
                [DEVICE_SCOPE_THREAD] = {256, 32, 8},
        };
        static const struct device_cost budgets[] = {
                [DEVICE_SCOPE_GRID] = {65536, 2048, 256},
                [DEVICE_SCOPE_BLOCK] = {16384, 512, 128},
                [DEVICE_SCOPE_WARP] = {4096, 256, 64},
                [DEVICE_SCOPE_THREAD] = {2048, 128, 32},
        };

        return where == DEVICE_MEM ? access_budgets[scope] : budgets[scope];
}

int device_object_load(const void *elf, size_t elf_bytes, const struct device_options *options,
                       char *error, size_t error_size, struct device_object **ret_object)
{
        LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = "gpuobs_device");
        struct loader l = {.options = options, .error = error, .error_size = error_size};
        _cleanup_(device_object_freep) struct device_object *object = calloc(1, sizeof(*object));
        int result;

        l.object = object;
        l.log = calloc(1, VERIFIER_LOG_SIZE);
        if (object)
                object->messages = messages_new();
        if (!object || !object->messages || !l.log) {
                free(l.log);
                return fail(&l, -ENOMEM, "out of memory");
        }
        object->print_map = -1;
        snprintf(error, error_size, "out of memory");
        l.bpf = bpf_object__open_mem(elf, elf_bytes, &opts);
        if (l.bpf) {
                result = load(&l, elf, elf_bytes);
        } else {
                result = errno == ENOMEM
                                 ? -ENOMEM
                                 : fail(&l, -EINVAL, "not an eBPF object that libbpf can read");
        }
        source_map_free(l.sources);
        bpf_object__close(l.bpf);
        free(l.log);
        if (result)
                return result;
        error[0] = 0;
        *ret_object = TAKE_PTR(object);
        return 0;
}

struct device_object *device_object_free(struct device_object *o)
{
        if (!o)
                return NULL;
        for (size_t i = 0; i < PROGRAM_MAX; i++)
                text_done(&o->texts[i]);
        for (size_t i = 0; i < AGENT_MAP_MAX; i++)
                free(o->maps[i].initial);
        messages_free(o->messages);
        free(o);
        return NULL;
}

size_t device_object_program_count(const struct device_object *o)
{
        return o->program_count;
}

const struct device_program_info *device_object_program(const struct device_object *o, size_t i)
{
        return &o->programs[i];
}

size_t device_object_map_count(const struct device_object *o)
{
        return o->map_count;
}

const struct device_map_info *device_object_map(const struct device_object *o, size_t i)
{
        return &o->maps[i];
}

const struct messages *device_object_messages(const struct device_object *o)
{
        return o->messages;
}

int device_object_find_map(const struct device_object *o, const char *name)
{
        for (size_t i = 0; i < device_object_map_count(o); i++)
                if (strcmp(device_object_map(o, i)->name, name) == 0)
                        return (int)i;
        return -1;
}

int device_object_print_map(const struct device_object *o)
{
        return o->print_map;
}
