/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which device programs the machine-code splicer takes, and why not the others: each
 * program of the objects is assembled as the agent does it, given to the splicer, and put
 * into the kernels of an image.
 *
 *   device_splice_test PTXAS IMAGE OBJECT...
 *
 * docs/device-programs.md says the same in words. It is what ptxas 13.0 makes of them.
 */
#include <bpf/libbpf.h>
#include <sys/wait.h>

#include "agent/arch.h"
#include "agent/splice.h"
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
        {"indexed", NULL},
        {"filled", NULL},
        {"stack_array", NULL},
        {"full_array", NULL},
        /* an array too large for registers is in local memory, which code that is there has none of
         */
        {"wide_array", "the probe needs a stack: it indexes more than 160 bytes"},
        /* sums of a warp come in uniform registers */
        {"warp_wide", NULL},
        /* loops, also such as lanes leave at different times */
        {"overwrite", NULL},
        {"change", NULL},
        {"count_places", NULL},
        {"count_pairs", NULL},
        {"count_numbers", NULL},
        {"drop_numbers", NULL},
        {"fill_up", NULL},
        {"count_crafted", NULL},
        {"fill_table", NULL},
        {"thin_table", NULL},
        {"exit_loop", NULL},
        {"exit_loop_thread", NULL},
        {"exit_divide", NULL},
        {"exit_hash", NULL},
        {"exit_vote", NULL},
        {"entry_stack", NULL},
        {"exit_stack", NULL},
        {"mem_loop", NULL},
        {"mem_hash", NULL},
        {"mem_lanes", NULL},
        {"mem_vote", NULL},
        {"mem_stack", NULL},
};

static unsigned checked;
static char *image;
static size_t image_bytes;

static void write_text(const char *path, const struct device_program_info *program,
                       const struct device_object *object, bool loosen)
{
        uint64_t maps[8] = {};
        const struct device_values values = {.kernel_id = SPLICE_KERNEL_ID_NAME,
                                             .context = arch_sm90.grid.context,
                                             .queue = SPLICE_QUEUE,
                                             .address = SPLICE_ADDRESS_NAME,
                                             .access = SPLICE_ACCESS_NAME,
                                             .maps = maps,
                                             .loosen = loosen};
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

/* What the splicer makes of a program, with or without @O@; NULL and the reason: nothing. */
static struct probe_code *build(const char *ptxas, const char *folder,
                                const struct device_object *object,
                                const struct device_program_info *program, bool loosen,
                                const char **ret_refusal)
{
        char source[256], cubin[256];
        struct probe_code *code = NULL;
        size_t bytes;
        char *data;

        snprintf(source, sizeof(source), "%s/probe.ptx", folder);
        snprintf(cubin, sizeof(cubin), "%s/probe.cubin", folder);
        write_text(source, program, object, loosen);
        assemble(ptxas, source, cubin);
        data = device_read_file(cubin, &bytes);
        CHECK(data);
        *ret_refusal = NULL;
        if (probe_code_extract(data, bytes, &code, ret_refusal) == 0 &&
            program->where != DEVICE_ENTRY)
                *ret_refusal = probe_code_exit_refusal(code);
        free(data);
        unlink(source);
        unlink(cubin);
        return code;
}

static uint32_t agent_where(const struct device_program_info *program)
{
        switch (program->where) {
        case DEVICE_ENTRY:
                return AGENT_PROGRAM_ENTRY;
        case DEVICE_EXIT:
                return AGENT_PROGRAM_EXIT;
        default:
                return AGENT_PROGRAM_MEM;
        }
}

/* Why no kernel of the image takes it; NULL when some do. */
static const char *put_in(const struct probe_code *code, const struct device_program_info *program)
{
        const struct probe_program one = {
                .where = agent_where(program), .label = program->name, .code = code};
        const struct probe_list list = {.programs = &one, .count = 1};
        struct splice_result *r;
        const char *refusal;

        CHECK_EQ(splice_image(image, image_bytes, &list, 1, &r, NULL), 0);
        CHECK(r->kernel_count > 0);
        refusal = r->in_count ? NULL : r->kernels[0].outcomes->refusal;
        splice_result_free(r);
        return refusal;
}

static void check_program(const char *ptxas, const char *folder, const struct device_object *object,
                          const struct device_program_info *program)
{
        const char *refusal, *how = "taken";
        struct probe_code *code = build(ptxas, folder, object, program, false, &refusal);

        if (refusal && strstr(program->ptx, "@O@")) {
                probe_code_free(code);
                code = build(ptxas, folder, object, program, true, &refusal);
                how = "taken, with numbers kept out of uniform registers";
        }
        if (!refusal)
                refusal = put_in(code, program);
        printf("%s: %s\n", program->name, refusal ? refusal : how);
        compare(program->name, refusal);
        probe_code_free(code);
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

        CHECK(argc > 3);
        if (access(argv[1], X_OK))
                test_skip("no ptxas here");
        libbpf_set_print(NULL);
        CHECK(mkdtemp(folder));
        image = device_read_file(argv[2], &image_bytes);
        CHECK(image);
        for (int i = 3; i < argc; i++)
                check_object(argv[1], folder, argv[i]);
        rmdir(folder);
        free(image);
        CHECK_EQ(checked, ARRAY_SIZE(expected));
        return 0;
}
