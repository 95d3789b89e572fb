/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which device programs the machine-code splicer takes, and why not the others: each
 * program of the objects is assembled as the agent does it and given to the splicer.
 *
 *   device_splice_test PTXAS OBJECT...
 *
 * docs/device-programs.md says the same in words. It is what ptxas 13.0 makes of them.
 */
#include <bpf/libbpf.h>
#include <sys/wait.h>

#include "agent/splice.h"
#include "agent/splice_probe.h"
#include "bpf/device_tools.h"
#include "device/device_abi.h"
#include "device/program.h"
#include "unit/test.h"
#include "util/macro.h"

/* Why a program is refused at its own place, as it begins; NULL when it is taken. */
static const struct {
        const char *name, *refusal;
} expected[] = {
        {"launch_start", NULL},
        {"launch_end", NULL},
        {"block_begins", NULL},
        {"block_ends", NULL},
        {"sm_block_begins", NULL},
        {"sm_block_ends", NULL},
        {"warp_begins", NULL},
        {"lanes_leave", NULL},
        {"scope_grid", NULL},
        {"scope_block", NULL},
        {"scope_warp", NULL},
        {"scope_thread", NULL},
        {"count_threads", NULL},
        {"count_blocks", NULL},
        {"count_warps", NULL},
        {"dice", NULL},
        {"mem_warp", NULL},
        {"mem_thread", NULL},
        {"global_access", NULL},
        {"touch", NULL},
        {"reserve", NULL},
        {"reserve_two", NULL},
        {"output", NULL},
        {"print", NULL},
        {"print_all", NULL},
        {"count_wides", NULL},
        {"weigh", NULL},
        {"cells", NULL},
        {"letters", NULL},
        {"weigh_exits", NULL},
        {"walk", NULL},
        {"together", NULL},
        {"weigh_accesses", NULL},
        {"indexed", "the probe needs a stack"},
        /* local memory would have to be found in the kernel's frame */
        {"stack_array", "the probe needs a stack"},
        /* the result of a vote is in a uniform register, which other lanes may need at an exit */
        {"warp_wide", "the probe's uniform registers depend on the lane"},
        /* so is the counter of a loop */
        {"overwrite", "the probe's uniform registers depend on the lane"},
        {"change", "the probe's uniform registers depend on the lane"},
        /* a loop that lanes leave at different times */
        {"count_places", "the probe calls or jumps in a way that cannot be moved"},
        {"count_pairs", "the probe calls or jumps in a way that cannot be moved"},
        {"count_numbers", "the probe calls or jumps in a way that cannot be moved"},
        {"drop_numbers", "the probe calls or jumps in a way that cannot be moved"},
        {"fill_up", "the probe calls or jumps in a way that cannot be moved"},
        {"count_crafted", "the probe calls or jumps in a way that cannot be moved"},
        {"fill_table", "the probe calls or jumps in a way that cannot be moved"},
        {"thin_table", "the probe calls or jumps in a way that cannot be moved"},
};

static unsigned checked;

static void write_text(const char *path, const struct device_program_info *program,
                       const struct device_object *object)
{
        uint64_t maps[8] = {};
        const struct device_values values = {.kernel_id = SPLICE_KERNEL_ID_NAME,
                                             .context = arch_sm90.grid.context,
                                             .queue = SPLICE_QUEUE,
                                             .address = SPLICE_ADDRESS_NAME,
                                             .access = SPLICE_ACCESS_NAME,
                                             .maps = maps};
        FILE *out = fopen(path, "w");
        char *fragment, *text;

        CHECK(out);
        for (size_t i = 0; i < device_object_map_count(object); i++)
                maps[i] = device_object_map(object, i)->placement == GPUOBS_PLACE_HOST
                                  ? DEVICE_RING_ADDRESS
                                  : UINT64_C(0x7f1234000000) + i * 0x100000000;
        CHECK(asprintf(&fragment, "%s%s", SPLICE_KERNEL_ID_PROLOGUE SPLICE_ACCESS_PROLOGUE,
                       program->ptx) > 0);
        text = device_make_kernel(fragment, "gpuobs_probe", &values, 1);
        fputs(text, out);
        CHECK(fclose(out) == 0);
        free(fragment);
        free(text);
}

static void assemble(const char *ptxas, const char *source, const char *cubin)
{
        pid_t pid = fork();
        int status;

        CHECK(pid >= 0);
        if (pid == 0) {
                execl(ptxas, ptxas, "-arch=sm_90", source, "-o", cubin, (char *)NULL);
                _exit(127);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 0);
}

static void compare(const char *program, const char *got)
{
        for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
                const char *want = expected[i].refusal;

                if (strcmp(expected[i].name, program) != 0)
                        continue;
                checked++;
                if (!want == !got && (!want || !strncmp(want, got, strlen(want))))
                        return;
                fprintf(stderr, "%s: expected \"%s\", got \"%s\"\n", program, want ? want : "taken",
                        got ? got : "taken");
                exit(1);
        }
        fprintf(stderr, "%s: nothing is expected of it\n", program);
        exit(1);
}

static void check_program(const char *ptxas, const char *folder, const struct device_object *object,
                          const struct device_program_info *program)
{
        char source[256], cubin[256];
        struct probe_code *code = NULL;
        const char *refusal = NULL;
        size_t bytes;
        char *data;

        snprintf(source, sizeof(source), "%s/probe.ptx", folder);
        snprintf(cubin, sizeof(cubin), "%s/probe.cubin", folder);
        write_text(source, program, object);
        assemble(ptxas, source, cubin);
        data = device_read_file(cubin, &bytes);
        CHECK(data);
        if (probe_code_extract(data, bytes, &code, &refusal) == 0)
                refusal = program->where == DEVICE_ENTRY ? NULL : code->exit_refusal;
        printf("%s: %s\n", program->name, refusal ? refusal : "taken");
        compare(program->name, refusal);
        probe_code_free(code);
        free(data);
        unlink(source);
        unlink(cubin);
}

static void check_object(const char *ptxas, const char *folder, const char *path)
{
        struct device_object *object = device_test_load(path);

        for (size_t i = 0; i < device_object_program_count(object); i++)
                check_program(ptxas, folder, object, device_object_program(object, i));
        device_object_free(object);
}

int main(int argc, char **argv)
{
        char folder[] = "/tmp/device_splice_XXXXXX";

        CHECK(argc > 2);
        if (access(argv[1], X_OK))
                test_skip("no ptxas here");
        libbpf_set_print(NULL);
        CHECK(mkdtemp(folder));
        for (int i = 2; i < argc; i++)
                check_object(argv[1], folder, argv[i]);
        rmdir(folder);
        CHECK_EQ(checked, ARRAY_SIZE(expected));
        return 0;
}
