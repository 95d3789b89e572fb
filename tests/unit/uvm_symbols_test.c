/* SPDX-License-Identifier: Apache-2.0 */

/* Functions of the managed-memory driver, found in lists of symbols and in BTF made here. */
#include <bpf/btf.h>

#include <errno.h>

#include "probe/uvm_symbols.h"
#include "probe/uvm_trace.h"
#include "unit/test.h"

/* What a kernel with the module lists, among others. */
static const char listing[] = "ffffffff81000000 T _stext\n"
                              "ffffffff81000100 t service_fault_batch\n" /* somebody else's */
                              "ffffffffc0001000 t service_fault_batch\t[nvidia_uvm]\n"
                              "ffffffffc0001100 t service_fault_batch_block\t[nvidia_uvm]\n"
                              "ffffffffc0001200 t evict_root_chunk.isra.0\t[nvidia_uvm]\n"
                              "ffffffffc0001280 t evict_root_chunk.cold\t[nvidia_uvm]\n"
                              "ffffffffc0001300 d uvm_va_block_evict_chunks\t[nvidia_uvm]\n"
                              "ffffffffc0001400 t block_copy_resident_pages\t[nvidia_uvm]\n"
                              "ffffffffc0001500 T uvm_va_block_make_resident\t[nvidia_uvm]\n"
                              "ffffffffc0001600 T uvm_perf_prefetch_get_hint\t[nvidia_uvm]\n"
                              "ffffffffc0002000 t uvm_va_block_evict_chunks\t[other]\n";

static struct uvm_symbols find(const char *text, const struct btf *btf)
{
        FILE *f = fmemopen((void *)text, strlen(text), "r");
        struct uvm_symbols s;

        CHECK(f);
        uvm_symbols_find(f, btf, &s);
        fclose(f);
        return s;
}

/* ---- BTF as the driver's ---- */

static int pointer_to(struct btf *b, int type)
{
        int id = btf__add_ptr(b, type);

        CHECK(id > 0);
        return id;
}

static int add_struct(struct btf *b, const char *name)
{
        int id = btf__add_struct(b, name, 8);

        CHECK(id > 0);
        return id;
}

struct parameter {
        const char *name;
        int type;
};

static void add_function(struct btf *b, const char *name, int returned,
                         const struct parameter *parameters)
{
        int proto = btf__add_func_proto(b, returned);

        CHECK(proto > 0);
        for (; parameters->name; parameters++)
                CHECK_EQ(btf__add_func_param(b, parameters->name, parameters->type), 0);
        CHECK(btf__add_func(b, name, BTF_FUNC_STATIC, proto) > 0);
}

static int add_enum(struct btf *b, const char *name, const char *const *values, int first)
{
        int id = btf__add_enum(b, NULL, 4);

        CHECK(id > 0);
        for (; *values; values++)
                CHECK_EQ(btf__add_enum_value(b, *values, first++), 0);
        id = btf__add_typedef(b, name, id);
        CHECK(id > 0);
        return id;
}

/* As of release 580, with its enums numbered from 1. */
static struct btf *driver_btf(void)
{
        static const char *const causes[] = {"UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT",
                                             "UVM_MAKE_RESIDENT_CAUSE_OF_LATER",
                                             "UVM_MAKE_RESIDENT_CAUSE_EVICTION", NULL};
        static const char *const states[] = {"UVM_PMM_GPU_CHUNK_STATE_FREE",
                                             "UVM_PMM_GPU_CHUNK_STATE_ALLOCATED", NULL};
        struct btf *b = btf__new_empty();
        int u32, cause, block, parent, batch, processor, region;

        CHECK(b);
        u32 = btf__add_int(b, "unsigned int", 4, 0);
        block = pointer_to(
                b, btf__add_typedef(b, "uvm_va_block_t", add_struct(b, "uvm_va_block_struct")));
        parent = pointer_to(b, add_struct(b, "uvm_parent_gpu_struct"));
        batch = pointer_to(b, btf__add_const(b, add_struct(b, "uvm_fault_service_batch_context_"
                                                              "struct")));
        processor = btf__add_typedef(b, "uvm_processor_id_t", add_struct(b, NULL));
        region = btf__add_typedef(b, "uvm_va_block_region_t", add_struct(b, NULL));
        cause = add_enum(b, "uvm_make_resident_cause_t", causes, 1);
        add_enum(b, "uvm_pmm_gpu_chunk_state_t", states, 1);
        add_function(b, "service_fault_batch", u32,
                     (struct parameter[]){
                             {"parent_gpu", parent}, {"mode", u32}, {"batch_context", batch}, {0}});
        add_function(b, "uvm_va_block_make_resident", u32,
                     (struct parameter[]){{"retry", pointer_to(b, pointer_to(b, u32))},
                                          {"dest", pointer_to(b, processor)},
                                          {"va_block", block},
                                          {"dest_id", processor},
                                          {"region", region},
                                          {"page_mask", u32},
                                          {"prefetch", u32},
                                          {"cause", cause},
                                          {0}});
        /* The compiler changed this one: its arguments are not these. */
        add_function(
                b, "evict_root_chunk", u32,
                (struct parameter[]){
                        {"root", pointer_to(b, add_struct(b, "uvm_gpu_root_chunk_struct"))}, {0}});
        /* Returned in memory, whose address goes in the first argument's place. */
        add_function(b, "uvm_perf_prefetch_get_hint",
                     btf__add_typedef(b, "uvm_perf_prefetch_hint_t", add_struct(b, NULL)),
                     (struct parameter[]){{"va_block", block}, {0}});
        return b;
}

/* ---- tests ---- */

static void the_best_function_is_taken(void)
{
        struct uvm_symbols s = find(listing, NULL);

        CHECK_STR(s.points[UVM_POINT_BATCH].name, "service_fault_batch");
        CHECK(s.points[UVM_POINT_BATCH].exact);
        CHECK_STR(s.points[UVM_POINT_PICK].name, "evict_root_chunk.isra.0");
        CHECK(!s.points[UVM_POINT_PICK].exact);
        CHECK_STR(s.points[UVM_POINT_EVICT].name, ""); /* data, and another module's */
        CHECK_STR(s.points[UVM_POINT_MOVE].name, "uvm_va_block_make_resident");
        CHECK_STR(s.points[UVM_POINT_PREFETCH].name, "uvm_perf_prefetch_get_hint");
        for (int i = 0; i < UVM_POINT_COUNT; i++)
                CHECK(!s.points[i].has_arguments);
}

static void a_machine_without_the_module_has_none(void)
{
        struct uvm_symbols s = find("ffffffff81000100 t service_fault_batch\n", NULL);

        for (int i = 0; i < UVM_POINT_COUNT; i++)
                CHECK_STR(s.points[i].name, "");
}

static void arguments_are_found_by_type(void)
{
        struct btf *b = driver_btf();
        struct uvm_symbols s = find(listing, b);
        const struct uvm_symbol *batch = &s.points[UVM_POINT_BATCH];
        const struct uvm_symbol *move = &s.points[UVM_POINT_MOVE];

        CHECK(batch->has_arguments && batch->gpu_type == UVM_GPU_PARENT);
        CHECK_EQ(batch->arguments[UVM_ROLE_GPU], 0);
        CHECK_EQ(batch->arguments[UVM_ROLE_FAULTS], 2);
        CHECK_EQ(batch->arguments[UVM_ROLE_BLOCK], UVM_ARGUMENT_NONE);
        CHECK_EQ(move->arguments[UVM_ROLE_BLOCK], 2);
        CHECK_EQ(move->arguments[UVM_ROLE_PROCESSOR], 3); /* not the pointer to one */
        CHECK_EQ(move->arguments[UVM_ROLE_REGION], 4);
        CHECK_EQ(move->arguments[UVM_ROLE_CAUSE], 7);
        CHECK(!s.points[UVM_POINT_PICK].has_arguments);
        CHECK(!s.points[UVM_POINT_PREFETCH].has_arguments);
        btf__free(b);
}

static int check_trace(const char *text, const struct btf *btf, unsigned point)
{
        struct uvm_symbols s = find(text, btf);

        return uvm_trace_check(&s.points[point]);
}

/* By its name and its BTF alone: both must be right. */
static void fentry_needs_the_function_itself(void)
{
        static const char alone[] = "ffffffff81000000 T _stext\n"
                                    "ffffffffc0001000 t service_fault_batch\t[nvidia_uvm]\n"
                                    "ffffffffc0001100 t service_fault_batch_block\t[other]\n";
        static const char twice[] = "ffffffffc0001000 t service_fault_batch\t[nvidia_uvm]\n"
                                    "ffffffffc0002000 d service_fault_batch\t[nvidia_uvm]\n";
        static const char other[] = "ffffffffc0001000 t service_fault_batch\t[nvidia_uvm]\n"
                                    "ffffffffc0002000 t service_fault_batch\t[other]\n";
        struct btf *b = driver_btf();

        CHECK_EQ(check_trace(alone, b, UVM_POINT_BATCH), 0);
        CHECK_EQ(check_trace(alone, NULL, UVM_POINT_BATCH), -ENODATA);
        CHECK_EQ(check_trace(alone, b, UVM_POINT_MOVE), -ENOENT);
        CHECK_EQ(check_trace(twice, b, UVM_POINT_BATCH), -ENOTUNIQ);
        CHECK_EQ(check_trace(other, b, UVM_POINT_BATCH), -ENOTUNIQ);
        CHECK_EQ(check_trace(listing, b, UVM_POINT_BATCH), -ENOTUNIQ); /* the kernel's own */
        CHECK_EQ(check_trace(listing, b, UVM_POINT_PICK), -EILSEQ);
        CHECK_EQ(check_trace(listing, b, UVM_POINT_PREFETCH), -ENODATA); /* returns a struct */
        CHECK_EQ(check_trace(listing, b, UVM_POINT_MOVE), 0);
        btf__free(b);
}

static void fentry_that_cannot_be_is_explained(void)
{
        struct btf *b = driver_btf();
        struct uvm_symbols s = find(listing, b);
        char text[128];

        uvm_trace_explain(&s.points[UVM_POINT_MOVE], -UVM_TRACE_ENOTSUPP, text, sizeof(text));
        CHECK_STR(text, "no fentry: of 8 arguments (Linux 6.6 has it up to 12)");
        uvm_trace_explain(&s.points[UVM_POINT_BATCH], -UVM_TRACE_ENOTSUPP, text, sizeof(text));
        CHECK_STR(text, "no fentry: the kernel has none on functions of modules");
        uvm_trace_explain(&s.points[UVM_POINT_PICK], -EILSEQ, text, sizeof(text));
        CHECK_STR(text, "no fentry: the compiler changed the function's arguments");
        uvm_trace_explain(&s.points[UVM_POINT_PICK], -EBUSY, text, sizeof(text));
        CHECK_STR(text, "no fentry: Device or resource busy");
        btf__free(b);
}

static void numbers_are_known_by_name(void)
{
        struct btf *b = driver_btf();
        struct uvm_symbols s = find(listing, b);
        struct uvm_probe_event e = {.point = UVM_POINT_MOVE, .has = UVM_PROBE_HAS_CAUSE};

        e.cause = 1;
        CHECK_EQ(uvm_symbols_cause(&s, &e), UVM_CAUSE_FAULT);
        e.cause = 2;
        CHECK_EQ(uvm_symbols_cause(&s, &e), UVM_CAUSE_NONE);
        e.cause = 3;
        CHECK_EQ(uvm_symbols_cause(&s, &e), UVM_CAUSE_EVICTION);
        e.cause = UINT32_MAX;
        CHECK_EQ(uvm_symbols_cause(&s, &e), UVM_CAUSE_NONE);
        e.cause = 3;
        e.has = 0;
        CHECK_EQ(uvm_symbols_cause(&s, &e), UVM_CAUSE_NONE);
        e.has = UVM_PROBE_HAS_CHUNK;
        e.state = 2;
        CHECK_EQ(uvm_symbols_state(&s, &e), UVM_CHUNK_ALLOCATED);
        e.state = 16;
        CHECK_EQ(uvm_symbols_state(&s, &e), UVM_CHUNK_UNKNOWN);
        btf__free(b);
}

static void struct_ops_are_noticed(void)
{
        struct btf *b = driver_btf();
        char text[64];

        CHECK_EQ(uvm_symbols_struct_ops(b, text, sizeof(text)), 0);
        CHECK_STR(text, "");
        add_struct(b, "gpu_mem_ops");
        add_struct(b, "bpf_struct_ops_gpu_sched_ops");
        CHECK_EQ(uvm_symbols_struct_ops(b, text, sizeof(text)), 2);
        CHECK_STR(text, "gpu_mem_ops, bpf_struct_ops_gpu_sched_ops");
        CHECK_EQ(uvm_symbols_struct_ops(b, text, 8), 2); /* cut */
        CHECK_STR(text, "gpu_mem");
        btf__free(b);
}

int main(void)
{
        TEST(the_best_function_is_taken);
        TEST(a_machine_without_the_module_has_none);
        TEST(arguments_are_found_by_type);
        TEST(fentry_needs_the_function_itself);
        TEST(fentry_that_cannot_be_is_explained);
        TEST(numbers_are_known_by_name);
        TEST(struct_ops_are_noticed);
        return 0;
}
