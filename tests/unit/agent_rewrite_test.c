/* SPDX-License-Identifier: Apache-2.0 */

/* One image the application loads, and what becomes of its kernels. */
#include "agent/rewrite.h"
#include "device/device_abi.h"
#include "unit/test.h"

#define PTX                                                                                        \
        ".version 8.0\n.target sm_80\n.address_size 64\n.entry one { ret; }\n.entry two { ret; "   \
        "}\n"

static const struct probe_program programs[] = {{.where = AGENT_PROGRAM_ENTRY,
                                                 .times = true,
                                                 .label = "entry",
                                                 .text = "{PROBE @K@}",
                                                 .code_refusal = "no probes for it"}};
static const struct rewrite_probes probes = {.sm = 90, .list = {.programs = programs, .count = 1}};

static struct rewrite rewrite(const char *image, uint32_t *next_kernel_id)
{
        struct rewrite r;

        rewrite_image(image, strlen(image), &probes, next_kernel_id, &r);
        return r;
}

static void ids_are_given_in_order(void)
{
        uint32_t next = 7;
        struct rewrite r = rewrite(PTX, &next);

        CHECK(r.image);
        CHECK_EQ(r.kernel_count, 2);
        CHECK_EQ(r.kernels[0].kernel_id, 7);
        CHECK_EQ(r.kernels[1].kernel_id, 8);
        CHECK_EQ(next, 9);
        CHECK(strstr(r.image, "{PROBE 8}"));
        rewrite_done(&r);
}

/* A record has room for so many: the last image that fits is rewritten, none after it. */
static void ids_run_out(void)
{
        uint32_t next = DEVICE_KERNEL_ID_MAX - 1;
        struct rewrite r = rewrite(PTX, &next);

        CHECK(r.image);
        CHECK_EQ(r.kernels[1].kernel_id, DEVICE_KERNEL_ID_MAX);
        rewrite_done(&r);
        for (int i = 0; i < 2; i++) {
                r = rewrite(PTX, &next);
                CHECK(!r.image);
                CHECK_STR(r.reason, "the process has more kernels than can be told apart");
                CHECK_EQ(next, DEVICE_KERNEL_ID_MAX + 1);
                rewrite_done(&r);
        }
        next = DEVICE_KERNEL_ID_MAX;
        r = rewrite(PTX, &next); /* one fits, two do not */
        CHECK(!r.image);
        CHECK_EQ(next, DEVICE_KERNEL_ID_MAX);
        rewrite_done(&r);
}

/* What a rule leaves alone as a whole is not even read: this text has no end of a comment. */
static void an_image_that_a_rule_excludes(void)
{
        static const char unfinished[] = ".version 8.0\n/*";
        struct rewrite_probes excluding = probes;
        struct probe_rules rules;
        struct rewrite r;
        uint32_t next = 1;

        excluding.list.rules = &rules;
        excluding.list.path = "/lib/libfoo.so";
        probe_rules_parse("-image:*/libfoo.so", &rules);
        rewrite_image(unfinished, strlen(unfinished), &excluding, &next, &r);
        CHECK(!r.image);
        CHECK_STR(r.reason, "excluded by a rule (probe_rules)");
        CHECK_EQ(r.kernel_count, 0);
        CHECK_EQ(next, 1);
        rewrite_done(&r);
        excluding.list.path = "/lib/libbar.so";
        rewrite_image(PTX, strlen(PTX), &excluding, &next, &r);
        CHECK(r.image);
        rewrite_done(&r);
}

static void what_is_no_image(void)
{
        uint32_t next = 1;
        struct rewrite r = rewrite("no image at all", &next);

        CHECK(!r.image);
        CHECK(r.reason[0]);
        CHECK_EQ(next, 1);
        rewrite_done(&r);
}

int main(void)
{
        TEST(ids_are_given_in_order);
        TEST(ids_run_out);
        TEST(an_image_that_a_rule_excludes);
        TEST(what_is_no_image);
        return 0;
}
