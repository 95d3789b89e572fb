/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/object.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/verify.h"
#include "policy/vet.h"
#include "util/time.h"

#define VERIFIER_LOG_BYTES (256u * 1024)
#define SECTIONS           3

static const char *const event_names[POLICY_EVENT_COUNT] = {
#define X(name, value, item) [value] = #name,
        POLICY_EVENTS(X)
#undef X
};

/* Global variables of the object, mapped. */
static const char *const section_names[SECTIONS] = {".data", ".bss", ".rodata"};

struct section {
        void *memory;
        size_t bytes; /* of the mapping */
};

struct policy_object {
        struct bpf_object *bpf;
        int programs[POLICY_EVENT_COUNT]; /* descriptors of libbpf's, -1 none */
        struct section sections[SECTIONS];
        struct section batch;
        struct ring_buffer *ring;
        volatile uint64_t *unsaid;
        volatile uint32_t *steps; /* that the loops of a run have left, and one */
        void (*take)(void *data, const struct policy_action *action);
        void *data;
        uint32_t taken;
};

static int fail(char *error, size_t error_size, int code, const char *format, ...) _printf_(4, 5);

static int fail(char *error, size_t error_size, int code, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(error, error_size, format, args);
        va_end(args);
        return code;
}

/* ---- programs ---- */

static int event_of(const char *program)
{
        if (strncmp(program, "policy_", 7) != 0)
                return -ENOENT;
        for (int i = 0; i < POLICY_EVENT_COUNT; i++)
                if (strcmp(program + 7, event_names[i]) == 0)
                        return i;
        return -ENOENT;
}

static int find_programs(struct policy_object *o, char *error, size_t error_size)
{
        struct bpf_program *program;

        bpf_object__for_each_program(program, o->bpf)
        {
                const char *name = bpf_program__name(program);
                int event = event_of(name);

                if (event < 0)
                        return fail(
                                error, error_size, -EINVAL,
                                "program %s: there is no such event; the names are policy_fault, "
                                "policy_launch and so on (policy_abi.h)",
                                name);
                o->programs[event] = bpf_program__fd(program);
        }
        return 0;
}

/* ---- loading ---- */

static int explain(const char *log, int code, char *error, size_t error_size)
{
        char message[256];
        size_t insn;

        if (verify_read_log(log, message, sizeof(message), &insn) == 0)
                return fail(error, error_size, -EACCES,
                            "the kernel's verifier, instruction %zu: %s", insn, message);
        if (code == -EPERM)
                return fail(error, error_size, code,
                            "the kernel does not let this program load eBPF");
        return fail(error, error_size, code, "the kernel cannot load the object: %s",
                    strerror(-code));
}

/* One buffer for all programs: libbpf loads them in turn and stops at the first refusal. */
static int load(struct policy_object *o, char *error, size_t error_size)
{
        _cleanup_free_ char *log = calloc(1, VERIFIER_LOG_BYTES);
        struct bpf_program *program;
        int r;

        if (!log)
                return -ENOMEM;
        bpf_object__for_each_program(program, o->bpf)
                bpf_program__set_log_buf(program, log, VERIFIER_LOG_BYTES);
        r = bpf_object__load(o->bpf);
        bpf_object__for_each_program(program, o->bpf) bpf_program__set_log_buf(program, NULL, 0);
        return r < 0 ? explain(log, r, error, error_size) : 0;
}

static int map_memory(const struct bpf_map *map, bool writable, struct section *ret_section)
{
        size_t bytes = ((size_t)bpf_map__value_size(map) + 4095) & ~(size_t)4095;
        void *memory = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED,
                            bpf_map__fd(map), 0);

        if (memory == MAP_FAILED)
                return -errno;
        *ret_section = (struct section){memory, bytes};
        return 0;
}

static int map_sections(struct policy_object *o, char *error, size_t error_size)
{
        for (size_t i = 0; i < SECTIONS; i++) {
                const struct bpf_map *map = bpf_object__find_map_by_name(o->bpf, section_names[i]);
                int r = map ? map_memory(map, strcmp(section_names[i], ".rodata") != 0,
                                         &o->sections[i])
                            : 0;

                if (r < 0)
                        return fail(error, error_size, r, "section %s cannot be mapped: %s",
                                    section_names[i], strerror(-r));
        }
        return 0;
}

/* ---- what every policy has ---- */

/* The address of a global variable of the given size, NULL when there is none. */
static void *find_global(const struct policy_object *o, const char *section, const char *name,
                         size_t size)
{
        const struct btf *btf = bpf_object__btf(o->bpf);
        int id = btf ? btf__find_by_name_kind(btf, section, BTF_KIND_DATASEC) : -1;
        const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (__u32)id) : NULL;
        char *memory = policy_object_section(o, section);

        for (int i = 0; t && memory && i < btf_vlen(t); i++) {
                const struct btf_var_secinfo *v = btf_var_secinfos(t) + i;
                const struct btf_type *var = btf__type_by_id(btf, v->type);

                if (v->size == size && strcmp(btf__name_by_offset(btf, var->name_off), name) == 0)
                        return memory + v->offset;
        }
        return NULL;
}

static int on_action(void *data, void *bytes, size_t size)
{
        struct policy_object *o = data;
        struct policy_action action;
        bool is_whole = size == sizeof(action); /* else it was not written by gpuobs_policy.h */

        if (is_whole)
                memcpy(&action, bytes, sizeof(action));
        o->taken++;
        o->take(o->data, is_whole ? &action : NULL);
        return 0;
}

static int find_parts(struct policy_object *o, char *error, size_t error_size)
{
        const struct bpf_map *batch = bpf_object__find_map_by_name(o->bpf, "policy_batch");
        const struct bpf_map *ring = bpf_object__find_map_by_name(o->bpf, "policy_actions");
        const uint32_t *abi = find_global(o, ".rodata", "policy_abi", sizeof(*abi));
        int r;

        if (!batch || !ring || bpf_map__type(ring) != BPF_MAP_TYPE_RINGBUF)
                return fail(error, error_size, -EINVAL,
                            "this is not a policy: it does not include gpuobs_policy.h");
        o->steps = find_global(o, ".bss", "policy_steps", sizeof(*o->steps));
        if (!abi || *abi != POLICY_ABI_VERSION || !o->steps ||
            bpf_map__value_size(batch) != sizeof(struct policy_batch))
                return fail(error, error_size, -EINVAL,
                            "the policy was built for another version; build it again with this "
                            "version's gpuobs_policy.h (%d)",
                            POLICY_ABI_VERSION);
        o->unsaid = find_global(o, ".bss", "policy_unsaid", sizeof(*o->unsaid));
        r = map_memory(batch, true, &o->batch);
        if (r < 0)
                return fail(error, error_size, r, "its batch cannot be mapped: %s", strerror(-r));
        o->ring = ring_buffer__new(bpf_map__fd(ring), on_action, o, NULL);
        return o->ring ? 0 : fail(error, error_size, -errno, "its ring cannot be mapped");
}

static int load_object(struct policy_object *o, const void *bytes, size_t size, char *error,
                       size_t error_size)
{
        LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "policy");
        int r;

        if (size == 0 || size > POLICY_OBJECT_BYTES_MAX)
                return fail(error, error_size, -EINVAL, "a policy has 1 to %u bytes",
                            POLICY_OBJECT_BYTES_MAX);
        o->bpf = bpf_object__open_mem(bytes, size, &options);
        if (!o->bpf)
                return fail(error, error_size, -EINVAL, "not an eBPF object that libbpf can read");
        r = vet_parts(o->bpf, error, error_size);
        /* Before the kernel sees instructions that it may not know, and with all functions in. */
        if (r == 0)
                r = vet_instructions(o->bpf, error, error_size);
        if (r == 0)
                r = load(o, error, error_size);
        if (r == 0)
                r = vet_instructions(o->bpf, error, error_size);
        if (r == 0)
                r = map_sections(o, error, error_size);
        if (r == 0)
                r = find_parts(o, error, error_size);
        return r < 0 ? r : find_programs(o, error, error_size);
}

/* ---- rehearsal ---- */

#define REHEARSAL_SECONDS 10

static _Noreturn void rehearse(struct policy_object *o, const void *bytes, size_t size)
{
        const struct rlimit none = {0, 0};
        char error[256];

        signal(SIGALRM, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        (void)setrlimit(RLIMIT_CORE, &none);
        alarm(REHEARSAL_SECONDS);
        (void)load_object(o, bytes, size, error, sizeof(error));
        _exit(0);
}

/*
 * libbpf believes what an object says of itself: a damaged one can crash it. So a
 * child loads it first; what the child survives, the daemon does too.
 */
static int check_harmless(struct policy_object *o, const void *bytes, size_t size, char *error,
                          size_t error_size)
{
        pid_t child = fork();
        int status, r;

        if (child < 0)
                return fail(error, error_size, -errno, "it cannot be tried out: %s",
                            strerror(errno));
        if (child == 0)
                rehearse(o, bytes, size);
        do
                r = waitpid(child, &status, 0);
        while (r < 0 && errno == EINTR);
        if (r < 0)
                return fail(error, error_size, -errno, "it cannot be tried out: %s",
                            strerror(errno));
        return WIFEXITED(status) ? 0
                                 : fail(error, error_size, -EINVAL,
                                        "the object is damaged: libbpf cannot read it");
}

int policy_object_load(const void *bytes, size_t size, char *error, size_t error_size,
                       struct policy_object **ret_object)
{
        _cleanup_(policy_object_freep) struct policy_object *o = calloc(1, sizeof(*o));
        libbpf_print_fn_t print;
        int r;

        if (!o)
                return fail(error, error_size, -ENOMEM, "out of memory");
        for (int i = 0; i < POLICY_EVENT_COUNT; i++)
                o->programs[i] = -1;
        print = libbpf_set_print(NULL); /* what it would print is in error[] */
        r = check_harmless(o, bytes, size, error, error_size);
        if (r == 0)
                r = load_object(o, bytes, size, error, error_size);
        libbpf_set_print(print);
        if (r < 0)
                return r;
        *ret_object = TAKE_PTR(o);
        return 0;
}

static void unmap(struct section *s)
{
        if (s->memory)
                munmap(s->memory, s->bytes);
}

struct policy_object *policy_object_free(struct policy_object *o)
{
        if (!o)
                return NULL;
        ring_buffer__free(o->ring);
        unmap(&o->batch);
        for (size_t i = 0; i < SECTIONS; i++)
                unmap(&o->sections[i]);
        bpf_object__close(o->bpf);
        free(o);
        return NULL;
}

/* ---- running ---- */

bool policy_object_wants(const struct policy_object *o, enum policy_event_type type)
{
        return o->programs[type] >= 0;
}

struct policy_batch *policy_object_batch(const struct policy_object *o)
{
        return o->batch.memory;
}

int policy_object_run(struct policy_object *o, const struct policy_event *event,
                      void (*take)(void *data, const struct policy_action *action), void *data,
                      struct policy_run *ret_run)
{
        struct policy_event context = *event; /* the kernel writes it back */
        LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &context, .ctx_size_in = sizeof(context));
        uint64_t unsaid = o->unsaid ? *o->unsaid : 0, began_ns = now_ns();
        int r;

        *o->steps = POLICY_STEPS_MAX + 1; /* 0 is left by one that wanted more */
        r = bpf_prog_test_run_opts(o->programs[event->type], &options);
        if (r < 0)
                return r;
        *ret_run = (struct policy_run){.value = (int)options.retval,
                                       .run_ns = now_ns() - began_ns,
                                       .overran = *o->steps == 0,
                                       .unsaid = o->unsaid ? *o->unsaid - unsaid : 0};
        o->take = take;
        o->data = data;
        o->taken = 0;
        r = ring_buffer__consume(o->ring);
        ret_run->actions = o->taken;
        return r < 0 ? r : 0;
}

struct bpf_object *policy_object_bpf(const struct policy_object *o)
{
        return o->bpf;
}

void *policy_object_section(const struct policy_object *o, const char *section)
{
        for (size_t i = 0; i < SECTIONS; i++)
                if (strcmp(section_names[i], section) == 0)
                        return o->sections[i].memory;
        return NULL;
}
