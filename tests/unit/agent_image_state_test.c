/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which kernels may run from a second copy of their image.
 *
 *     agent_image_state_test DIRECTORY_WITH_CUBINS
 */
#include "agent/image_state.h"
#include "unit/test.h"

static const char *directory;

static void *read_file(const char *name, size_t *ret_size)
{
        char path[4096];
        void *bytes = malloc(1 << 20);
        FILE *f;

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        f = fopen(path, "rbe");
        CHECK(f && bytes);
        *ret_size = fread(bytes, 1, 1 << 20, f);
        fclose(f);
        return bytes;
}

static struct image_state *read_cubin(const char *name)
{
        struct image_state *s = image_state_new();
        size_t size;
        void *bytes = read_file(name, &size);

        CHECK_EQ(image_state_add_cubin(s, bytes, size), 0);
        free(bytes);
        return s;
}

static void kernels_without_state_may_be_copied(void)
{
        static const char *const free_ones[] = {
                "shared_barrier", "divergent_exits",       "predicated_exit", "device_function",
                "jump_table",     "calls_printf",          "launch_bounds",   "many_registers",
                "empty",          "_Z6familyILi2EEvPKfPfi"};
        struct image_state *s = read_cubin("kernels.cubin");

        for (size_t i = 0; i < sizeof(free_ones) / sizeof(free_ones[0]); i++) {
                const char *why = image_state_refusal(s, free_ones[i]);

                if (why)
                        fprintf(stderr, "%s: %s\n", free_ones[i], why);
                CHECK(!why);
        }
        CHECK(image_state_refusal(s, "not_there"));
        image_state_free(s);
}

static void those_with_module_variables_may_not(void)
{
        struct image_state *s = read_cubin("kernels.cubin");
        const char *why = image_state_refusal(s, "module_data");

        CHECK(why);
        CHECK(strstr(why, "__constant__") || strstr(why, "counter_in_module"));
        image_state_free(s);
        s = read_cubin("state.cubin");
        CHECK_STR(image_state_refusal(s, "reads_constant"),
                  "uses the module's __constant__ variables");
        CHECK_STR(image_state_refusal(s, "counts"), "uses the module's variable counter");
        CHECK_STR(image_state_refusal(s, "counts_in_function"),
                  "uses the module's variable counter");
        CHECK_STR(image_state_refusal(s, "looks_up"), "uses the module's variable table");
        CHECK(image_state_refusal(s, "calls_through_pointer"));
        CHECK(!image_state_refusal(s, "prints"));
        CHECK(!image_state_refusal(s, "sine"));
        CHECK(!image_state_refusal(s, "plain"));
        image_state_free(s);
}

static void old_cubins_are_understood(void)
{
        struct image_state *s = read_cubin("kernels_abi7.cubin");

        CHECK(!image_state_refusal(s, "shared_barrier"));
        CHECK(!image_state_refusal(s, "predicated_exit"));
        image_state_free(s);
}

static void what_is_not_understood_is_refused(void)
{
        struct image_state *s = image_state_new();

        CHECK(image_state_add_cubin(s, "no cubin at all", 15) < 0);
        CHECK(image_state_refusal(s, "anything"));
        image_state_refuse_all(s, "because");
        CHECK_STR(image_state_refusal(s, "anything"), "because");
        image_state_free(s);
}

static const char ptx[] =
        ".version 8.0\n.target sm_70\n.address_size 64\n"
        ".visible .global .align 4 .u32 counter = 5;\n"
        ".global .align 1 .b8 $str[4] = {104, 105, 10, 0};\n"
        ".const .align 4 .b8 weights[16], more[4];\n"
        ".global .texref picture;\n"
        ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
        ".extern .func (.param .b32 r) elsewhere (.param .b64 a);\n"
        ".func (.param .b32 r) helper (.param .b32 x) { .reg .b64 %rd<2>; mov.u64 %rd1, counter; "
        "ret; }\n"
        ".func again () { call helper, (1); ret; }\n"
        ".visible .entry plain (.param .u64 counter_) { .reg .b32 %r<2>; add.s32 %r1, %r1, 1; ret; "
        "}\n"
        ".visible .entry counts () { .reg .b32 %r<2>; red.global.add.u32 [counter+0], 1; ret; }\n"
        ".visible .entry weighs () { .reg .b32 %r<2>; ld.const.u32 %r1, [more]; ret; }\n"
        ".visible .entry looks () { tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [picture, {%r1}]; ret; }\n"
        ".visible .entry prints () { .reg .b64 %rd<2>; { mov.u64 %rd1, $str; call (r), vprintf, "
        "(a, b); } ret; }\n"
        ".visible .entry deep () { call again; ret; }\n"
        ".visible .entry far () { call (r), elsewhere, (a); ret; }\n"
        ".visible .entry pointer () { .reg .b64 %rd<2>; mov.u64 %rd1, helper; ret; }\n"
        ".visible .entry behind () { ret; }\n";

static void ptx_is_read_by_its_words(void)
{
        struct image_state *s = image_state_new();

        CHECK_EQ(image_state_add_ptx(s, ptx, strlen(ptx)), 0);
        CHECK(!image_state_refusal(s, "plain"));
        CHECK(!image_state_refusal(s, "prints"));
        CHECK(!image_state_refusal(s, "behind"));
        CHECK_STR(image_state_refusal(s, "counts"),
                  "through counter: uses the module's variable counter");
        CHECK(image_state_refusal(s, "weighs"));
        CHECK(image_state_refusal(s, "looks"));
        CHECK(image_state_refusal(s, "deep"));
        CHECK(image_state_refusal(s, "far"));
        CHECK(image_state_refusal(s, "pointer"));
        image_state_free(s);
        s = image_state_new();
        CHECK(image_state_add_ptx(s, ".entry a { ret; /* never closed", 31) < 0);
        image_state_free(s);
}

int main(int argc, char **argv)
{
        directory = argc > 1 ? argv[1] : ".";
        TEST(kernels_without_state_may_be_copied);
        TEST(those_with_module_variables_may_not);
        TEST(old_cubins_are_understood);
        TEST(what_is_not_understood_is_refused);
        TEST(ptx_is_read_by_its_words);
        return 0;
}
