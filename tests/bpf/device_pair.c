/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <errno.h>
#include <unistd.h>

#include "bpf/device_pair.h"
#include "bpf/device_tools.h"
#include "device/compile.h"
#include "device/verifier.h"
#include "ptx_interp.h"
#include "unit/test.h"

static int map = -1, table = -1;
static struct ptx_machine *machine;

void pair_table_fill(uint8_t ret_bytes[PAIR_TABLE_BYTES])
{
        for (unsigned i = 0; i < PAIR_TABLE_BYTES; i++)
                ret_bytes[i] = pair_byte(i);
}

/* As libbpf makes .rodata. */
static int open_table(void)
{
        LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_RDONLY_PROG);
        uint8_t bytes[PAIR_TABLE_BYTES];
        uint32_t zero = 0;
        int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "constants", 4, sizeof(bytes), 1, &opts);

        pair_table_fill(bytes);
        CHECK(fd >= 0);
        CHECK_EQ(bpf_map_update_elem(fd, &zero, bytes, BPF_ANY), 0);
        CHECK_EQ(bpf_map_freeze(fd), 0);
        return fd;
}

int pair_open(void)
{
        machine = ptx_machine_new();
        CHECK(machine);
        map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "numbers", 4, 8 * PAIR_WORDS, PAIR_ENTRIES, NULL);
        if (map < 0 && errno == EPERM)
                test_skip("loading eBPF needs root");
        CHECK(map >= 0);
        table = open_table();
        return map;
}

int pair_table(void)
{
        return table;
}

void pair_close(void)
{
        ptx_machine_free(machine);
        close(map);
        close(table);
}

int pair_load(const struct bpf_insn *insns, size_t count, char *log, size_t log_size)
{
        LIBBPF_OPTS(bpf_prog_load_opts, opts, .log_buf = log, .log_size = (unsigned)log_size,
                    .log_level = log ? 1 : 0, .prog_flags = BPF_F_SLEEPABLE);
        int fd = bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "device_pair", "GPL", insns, count, &opts);

        return fd < 0 ? -errno : fd;
}

void pair_run_kernel(int program, const struct pair_input *in, struct pair_output *ret)
{
        struct gpuobs_kernel_ctx ctx = in->ctx;
        LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = &ctx, .ctx_size_in = sizeof(ctx));

        for (uint32_t e = 0; e < PAIR_ENTRIES; e++)
                CHECK_EQ(bpf_map_update_elem(map, &e, in->elements[e], BPF_ANY), 0);
        CHECK_EQ(bpf_prog_test_run_opts(program, &opts), 0);
        for (uint32_t e = 0; e < PAIR_ENTRIES; e++)
                CHECK_EQ(bpf_map_lookup_elem(map, &e, ret->elements[e]), 0);
}

/* The compiler wants the number of a map where the kernel wants its descriptor. */
static struct bpf_insn *number_maps(const struct bpf_insn *insns, size_t count)
{
        struct bpf_insn *copy = malloc(count * sizeof(*copy));

        CHECK(copy);
        memcpy(copy, insns, count * sizeof(*copy));
        for (size_t i = 0; i < count; i++) {
                if (copy[i].code != (BPF_LD | BPF_IMM | BPF_DW))
                        continue;
                if (copy[i].src_reg == BPF_PSEUDO_MAP_FD)
                        copy[i].imm = 0;
                else if (copy[i].src_reg == BPF_PSEUDO_MAP_VALUE)
                        copy[i].imm = 1;
        }
        return copy;
}

struct pair_known pair_known(int program, const struct bpf_insn *insns, size_t count)
{
        struct pair_known known = {.verified = verifier_insns(program),
                                   .depth = verifier_stack_depth(program, insns, count, -1)};

        CHECK(known.verified);
        return known;
}

static unsigned tell_depth(void *data)
{
        return ((const struct pair_known *)data)->depth;
}

char *pair_compile(const struct bpf_insn *insns, size_t count, enum device_where where,
                   const struct pair_known *known, struct device_cost *ret_cost)
{
        uint8_t constants[PAIR_TABLE_BYTES];
        const struct device_map_info maps[PAIR_MAPS] = {
                {.name = "numbers",
                 .placement = GPUOBS_PLACE_DEVICE,
                 .type = BPF_MAP_TYPE_ARRAY,
                 .key_size = 4,
                 .value_size = 8 * PAIR_WORDS,
                 .max_entries = PAIR_ENTRIES,
                 .bytes = 8 * PAIR_WORDS * PAIR_ENTRIES},
                {.name = "constants",
                 .placement = GPUOBS_PLACE_DEVICE,
                 .type = BPF_MAP_TYPE_ARRAY,
                 .key_size = 4,
                 .value_size = sizeof(constants),
                 .max_entries = 1,
                 .bytes = sizeof(constants),
                 .constant = constants},
        };
        struct bpf_insn *copy = number_maps(insns, count);
        struct pair_known all = known ? *known : (struct pair_known){};
        struct compile_job job = {.insns = copy,
                                  .count = count,
                                  .maps = maps,
                                  .map_count = PAIR_MAPS,
                                  .where = where,
                                  .alone = true,
                                  .verified = all.verified,
                                  .stack_depth = tell_depth,
                                  .data = &all,
                                  .scope = DEVICE_SCOPE_GRID};
        struct device_cost cost;
        struct refusal refusal;
        struct text text = {};

        pair_table_fill(constants);
        if (device_compile(&job, &refusal, &text, &cost)) {
                pair_print(insns, count);
                fprintf(stderr, "refused at %zu: %s\n", refusal.insn, refusal.reason);
                exit(1);
        }
        free(copy);
        if (ret_cost)
                *ret_cost = cost;
        return text.data;
}

static void count(void *userdata, uint64_t instructions)
{
        *(uint64_t *)userdata += instructions;
}

static uint64_t run_module(const char *text, const struct pair_input *in)
{
        uint64_t instructions = 0;
        struct ptx_env env = {.userdata = &instructions,
                              .charge = count,
                              .max_instructions = 10000000,
                              .sm_count = 132};
        struct ptx_launch launch = {
                .grid = {in->ctx.grid_x, in->ctx.grid_y, in->ctx.grid_z},
                .block = {in->ctx.block_dim_x, in->ctx.block_dim_y, in->ctx.block_dim_z},
                .gridid = in->ctx.gridid,
                .first_sm = in->ctx.smid,
                .context = in->ctx.context,
        };
        struct ptx_module *module;
        enum ptx_fault fault;
        char log[512];

        if (ptx_module_load(text, strlen(text), 0, log, sizeof(log), &module)) {
                fprintf(stderr, "%s\n%s\n", log, text);
                exit(1);
        }
        CHECK_EQ(ptx_run(machine, ptx_module_entry(module, 0), &launch, NULL, &env, &fault), 0);
        if (fault != PTX_FAULT_NONE)
                fprintf(stderr, "%s\n%s\n", ptx_fault_name(fault), text);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        ptx_module_free(module);
        return instructions;
}

uint64_t pair_run_ptx(const char *fragment, const struct pair_input *in, struct pair_output *ret)
{
        static _Alignas(256) uint64_t memory[PAIR_ENTRIES][PAIR_WORDS];
        static _Alignas(256) uint8_t constants[PAIR_TABLE_BYTES];
        const uint64_t maps[PAIR_MAPS] = {(uint64_t)(uintptr_t)memory,
                                          (uint64_t)(uintptr_t)constants};
        char id[16], queue[16], *text;
        const struct device_values values = {
                .kernel_id = id, .context = "%envreg6", .queue = queue, .maps = maps};
        uint64_t instructions;

        pair_table_fill(constants);
        snprintf(id, sizeof(id), "%u", in->ctx.kernel_id);
        snprintf(queue, sizeof(queue), "%u", in->ctx.queue);
        text = device_make_kernel(fragment, "probe", &values, 1);
        CHECK(text);
        memcpy(memory, in->elements, sizeof(memory));
        instructions = run_module(text, in);
        memcpy(ret->elements, memory, sizeof(memory));
        free(text);
        return instructions;
}

void pair_print(const struct bpf_insn *insns, size_t count)
{
        for (size_t n = 0; n < count; n++)
                fprintf(stderr, "%3zu: %02x r%u r%u %+d %d\n", n, insns[n].code, insns[n].dst_reg,
                        insns[n].src_reg, insns[n].off, insns[n].imm);
}
