/* SPDX-License-Identifier: Apache-2.0 */

/* Which kernels are left alone. */
#include "agent/probe_rules.h"
#include "unit/test.h"

static struct probe_rules rules;

static bool excludes(const char *text, const char *path, const char *kernel)
{
        probe_rules_parse(text, &rules);
        return probe_rules_exclude(&rules, path, kernel);
}

static void the_first_that_matches(void)
{
        CHECK(!excludes("", "/lib/libfoo.so", "k"));
        CHECK(!probe_rules_exclude(NULL, "/lib/libfoo.so", "k"));
        CHECK(excludes("-image:*/libfoo.so*", "/lib/libfoo.so.3", "k"));
        CHECK(!excludes("-image:*/libfoo.so*", "/lib/libbar.so", "k"));
        CHECK(!excludes("-image:*/libfoo.so*", "", "k"));
        CHECK(excludes("  +kernel:a*\t-kernel:*", "", "b"));
        CHECK(!excludes("+kernel:a* -kernel:*", "", "ab"));
        CHECK(excludes("-kernel:* +kernel:a*", "", "ab"));
        CHECK(!excludes("+kernel:good -image:*/libfoo.so", "/libfoo.so", "good"));
        CHECK(excludes("+kernel:good -image:*/libfoo.so", "/libfoo.so", "other"));
}

static bool excludes_image(const char *text, const char *path)
{
        probe_rules_parse(text, &rules);
        return probe_rules_exclude_image(&rules, path);
}

/* Only where no kernel can be meant, whatever it is called. */
static void images_as_a_whole(void)
{
        CHECK(!excludes_image("", "/lib/libfoo.so"));
        CHECK(!probe_rules_exclude_image(NULL, "/lib/libfoo.so"));
        CHECK(excludes_image("-image:*/libfoo.so*", "/lib/libfoo.so.3"));
        CHECK(!excludes_image("-image:*/libfoo.so*", "/lib/libbar.so"));
        CHECK(!excludes_image("-image:*/libfoo.so*", ""));
        CHECK(excludes_image("-kernel:a* -image:*/libfoo.so", "/libfoo.so"));
        CHECK(!excludes_image("+kernel:a* -image:*/libfoo.so", "/libfoo.so"));
        CHECK(!excludes_image("+image:*/libfoo.so -image:*", "/libfoo.so"));
        CHECK(excludes_image("+image:*/libfoo.so -image:*", "/libbar.so"));
        CHECK(excludes_image("+image:*/libfoo.so -kernel:*", ""));
        CHECK(!excludes_image("-kernel:a*", "/libfoo.so"));
}

static void what_is_no_rule(void)
{
        probe_rules_parse("kernel:* -kernel: -what:* - + -image:", &rules);
        CHECK_EQ(rules.count, 0);
        probe_rules_parse("x -kernel:k", &rules);
        CHECK_EQ(rules.count, 1);
}

static void too_many(void)
{
        char text[AGENT_RULES_MAX + 100] = "";

        for (int i = 0; i < PROBE_RULES_MAX + 8; i++)
                strcat(text, "-kernel:k ");
        probe_rules_parse(text, &rules);
        CHECK_EQ(rules.count, PROBE_RULES_MAX);
        memset(text, 'x', sizeof(text) - 1);
        probe_rules_parse(text, &rules);
        CHECK_EQ(rules.count, 0);
}

int main(void)
{
        TEST(the_first_that_matches);
        TEST(images_as_a_whole);
        TEST(what_is_no_rule);
        TEST(too_many);
        return 0;
}
