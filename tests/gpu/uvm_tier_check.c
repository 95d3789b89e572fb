/* SPDX-License-Identifier: Apache-2.0 */

/*
 * On a machine with the real nvidia_uvm: which of its functions the probes inside the
 * driver would take, whether its BTF tells their arguments and has the fields that
 * the eBPF programs read, and whether the kernel accepts the programs relocated to it.
 * Needs no kprobes and attaches nothing. Exit 1 when something that is relied on is
 * not as expected, 77 without the module.
 */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "probe/uvm_probes.h"
#include "probe/uvm_trace.h"
#include "uvm.skel.h"

static const char *const point_names[UVM_POINT_COUNT] = {"batch", "prefetch", "pick", "evict",
                                                         "move"};
static const char *const role_names[UVM_ROLE_COUNT] = {
        "gpu", "faults", "block", "processor", "region", "hint", "chunk", "asker", "cause"};

static const struct {
        const char *type, *members[5];
} fields[] = {
        {"uvm_va_block_struct", {"start", "end"}},
        {"uvm_va_range_struct", {"va_space"}},
        {"uvm_va_space_struct", {"va_space_mm"}},
        {"uvm_va_space_mm_struct", {"mm"}},
        {"uvm_parent_gpu_struct", {"uuid"}},
        {"uvm_gpu_struct", {"uuid"}},
        {"uvm_fault_service_batch_context_struct",
         {"num_cached_faults", "num_coalesced_faults", "num_duplicate_faults", "batch_id"}},
        {"uvm_perf_prefetch_hint_t", {"prefetch_pages_mask", "residency"}},
        {"uvm_processor_id_t", {"val"}},
        {"uvm_gpu_root_chunk_struct", {"chunk"}},
        {"uvm_gpu_chunk_struct", {"address", "state"}},
};

static unsigned failures;

static void result(bool good, const char *what, const char *detail)
{
        printf("%s %s%s%s\n", good ? "ok  " : "FAIL", what, detail[0] ? ": " : "", detail);
        failures += !good;
}

/* ---- functions ---- */

static unsigned show_points(const struct uvm_symbols *s)
{
        unsigned found = 0;

        for (int i = 0; i < UVM_POINT_COUNT; i++) {
                const struct uvm_symbol *p = &s->points[i];
                char detail[256], what[32];
                int n = snprintf(detail, sizeof(detail), "%s%s", p->name,
                                 p->exact ? "" : " (changed by the compiler)");

                for (int role = 0; role < UVM_ROLE_COUNT; role++)
                        if (p->arguments[role] != UVM_ARGUMENT_NONE)
                                n += snprintf(detail + n, sizeof(detail) - (size_t)n, ", %s %u",
                                              role_names[role], p->arguments[role]);
                if (p->has_prototype)
                        snprintf(detail + n, sizeof(detail) - (size_t)n, ", of %u", p->parameters);
                snprintf(what, sizeof(what), "point %s", point_names[i]);
                if (!p->name[0]) {
                        printf("note %s: no function of its own in this build\n", what);
                        continue;
                }
                found++;
                result(!p->exact || p->has_arguments, what, detail);
        }
        return found;
}

/* ---- fields ---- */

static bool has_member(const struct btf *btf, const struct btf_type *t, const char *name, int depth)
{
        const struct btf_member *m = btf_members(t);

        for (uint32_t i = 0; i < btf_vlen(t); i++) {
                const char *own = btf__name_by_offset(btf, m[i].name_off);
                const struct btf_type *inner = btf__type_by_id(btf, m[i].type);

                if (strcmp(own, name) == 0)
                        return true;
                if (!own[0] && inner && btf_is_composite(inner) && depth < 8 &&
                    has_member(btf, inner, name, depth + 1))
                        return true;
        }
        return false;
}

/* Of a struct, by its own name or by a typedef's. */
static bool has_field(const struct btf *btf, const char *type, const char *member)
{
        int id = btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT);
        const struct btf_type *t;

        if (id <= 0)
                id = btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF);
        t = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
        if (t && btf_is_typedef(t))
                t = btf__type_by_id(btf, t->type);
        return t && btf_is_struct(t) && has_member(btf, t, member, 0);
}

static void check_fields(const struct btf *btf)
{
        char what[128];

        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
                for (size_t k = 0; k < 5 && fields[i].members[k]; k++) {
                        snprintf(what, sizeof(what), "field %s.%s", fields[i].type,
                                 fields[i].members[k]);
                        result(has_field(btf, fields[i].type, fields[i].members[k]), what, "");
                }
        result(has_field(btf, "uvm_va_block_struct", "managed_range") ||
                       has_field(btf, "uvm_va_block_struct", "va_range"),
               "field uvm_va_block_struct.managed_range or va_range", "");
}

static unsigned known_values(const uint8_t numbers[UVM_ENUM_MAX])
{
        unsigned n = 0;

        for (int i = 0; i < UVM_ENUM_MAX; i++)
                n += numbers[i] != 0;
        return n;
}

static void check_enums(const struct uvm_symbols *s)
{
        char detail[128];

        snprintf(detail, sizeof(detail), "%u causes, %u askers, %u states of chunks",
                 known_values(s->causes), known_values(s->askers), known_values(s->chunk_states));
        result(known_values(s->causes) >= 4 && known_values(s->askers) == 2 &&
                       known_values(s->chunk_states) == 4,
               "enums", detail);
}

/* ---- programs ---- */

static void check_load(const struct uvm_symbols *s)
{
        struct uvm_bpf *bpf = uvm_bpf__open();
        int r = bpf ? 0 : -errno;

        for (int i = 0; bpf && i < UVM_POINT_COUNT; i++) {
                memcpy((void *)bpf->rodata->arguments[i], s->points[i].arguments,
                       sizeof(s->points[i].arguments));
                ((uint8_t *)bpf->rodata->gpu_type)[i] = s->points[i].gpu_type;
        }
        if (r == 0)
                r = uvm_bpf__load(bpf);
        result(r == 0, "the kernel accepts the programs", r ? strerror(-r) : "");
        uvm_bpf__destroy(bpf);
}

static struct bpf_program *find_program(const struct uvm_bpf *bpf, const char *point,
                                        const char *which)
{
        char name[64];

        snprintf(name, sizeof(name), "%s_%s_traced", point, which);
        return bpf_object__find_program_by_name(bpf->obj, name);
}

static int load_traced(const char *point, const char *function)
{
        struct uvm_bpf *bpf = uvm_bpf__open();
        struct bpf_program *programs[2], *program;
        int r = bpf ? 0 : -errno;

        if (r < 0)
                return r;
        bpf_object__for_each_program(program, bpf->obj)(void)
                bpf_program__set_autoload(program, false);
        programs[0] = find_program(bpf, point, "enter");
        programs[1] = find_program(bpf, point, "leave");
        for (int i = 0; i < 2 && r == 0; i++) {
                (void)bpf_program__set_autoload(programs[i], true);
                r = bpf_program__set_attach_target(programs[i], 0, function);
        }
        if (r == 0)
                r = uvm_bpf__load(bpf);
        uvm_bpf__destroy(bpf);
        return r;
}

/* Kernels differ in what they allow: only said. */
static void show_fentry(const struct uvm_symbols *s)
{
        for (int i = 0; i < UVM_POINT_COUNT; i++) {
                const struct uvm_symbol *p = &s->points[i];
                int r = uvm_trace_check(p);
                char why[128] = "the kernel accepts its programs";

                if (r == 0)
                        r = load_traced(point_names[i], p->name);
                if (r < 0)
                        uvm_trace_explain(p, r, why, sizeof(why));
                printf("%s fentry on %s: %s\n", r < 0 ? "note" : "ok  ", point_names[i], why);
        }
}

int main(void)
{
        struct uvm_symbols symbols;
        struct uvm_btf btf;
        char ops[256];
        unsigned found;

        setvbuf(stdout, NULL, _IOLBF, 0);
        if (!uvm_probes_module()) {
                printf("SKIP: nvidia_uvm is not loaded\n");
                return 77;
        }
        uvm_btf_read(&btf);
        (void)uvm_probes_find_symbols(&btf, &symbols);
        found = show_points(&symbols);
        result(found > 0, "functions", found ? "" : "none is known");
        result(btf.module, "BTF of the module", btf.module ? "" : "the kernel has none");
        if (btf.module) {
                check_fields(btf.module);
                check_enums(&symbols);
        }
        check_load(&symbols);
        show_fentry(&symbols);
        printf("%s kprobes: %s\n", uvm_probes_kprobes() ? "ok  " : "note",
               uvm_probes_kprobes() ? "the kernel has them" : "the kernel has none");
        printf("note struct_ops: %s\n",
               uvm_probes_struct_ops(&btf, ops, sizeof(ops)) ? ops : "none");
        printf("uvm_tier_check: %u of %d points, %u failures\n", found, UVM_POINT_COUNT, failures);
        uvm_btf_done(&btf);
        return failures ? 1 : 0;
}
