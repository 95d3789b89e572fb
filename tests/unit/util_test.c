/* SPDX-License-Identifier: Apache-2.0 */

/* daemon/util: settings, interned strings, the ledger. */
#include <errno.h>
#include <syslog.h>

#include "unit/test.h"
#include "util/config.h"
#include "util/intern.h"
#include "util/ledger.h"

static void refuse(const char *text, int expected, const char *sentence)
{
        struct config c;
        char error[256] = "";

        CHECK_EQ(config_init(&c), 0);
        CHECK_EQ(c.agent_launches, true);
        CHECK_EQ(c.agent_clock, false);
        CHECK_EQ(config_parse(&c, text, strlen(text), error, sizeof(error)), expected);
        CHECK(strstr(error, sentence));
        config_done(&c);
}

static void config_reads_every_key(void)
{
        static const char text[] = "# a comment\n"
                                   "database = /srv/x.db   # trailing\n"
                                   "\n"
                                   "api_socket=/tmp/a\n"
                                   "agent_socket = /tmp/b\n"
                                   "device_program =\n"
                                   "library = /a/libcuda.so.1\n"
                                   "library = /b/libcuda.so.1\n"
                                   "retention_bytes = 2G\n"
                                   "retention_age = 36h\n"
                                   "ring_bytes = 1M\n"
                                   "poll_ms = 20\n"
                                   "agent_launches = no\n"
                                   "agent_clock = yes\n"
                                   "trace = /tmp/t\n"
                                   "managed_decisions = fentry\n"
                                   "log_level = debug";
        struct config c;
        char error[256] = "";

        CHECK_EQ(config_init(&c), 0);
        CHECK_EQ(config_parse(&c, text, strlen(text), error, sizeof(error)), 0);
        CHECK_STR(c.database, "/srv/x.db");
        CHECK_STR(c.api_socket, "/tmp/a");
        CHECK_STR(c.agent_socket, "/tmp/b");
        CHECK_STR(c.device_program, "");
        CHECK_EQ(c.library_count, 2);
        CHECK_STR(c.libraries[1], "/b/libcuda.so.1");
        CHECK_EQ(c.retention_bytes, 2LL << 30);
        CHECK_EQ(c.retention_age_s, 36 * 3600);
        CHECK_EQ(c.ring_bytes, 1 << 20);
        CHECK_EQ(c.poll_ms, 20);
        CHECK_EQ(c.agent_launches, false);
        CHECK_EQ(c.agent_clock, true);
        CHECK_STR(c.trace, "/tmp/t");
        CHECK_EQ(c.log_level, LOG_DEBUG);
        CHECK_EQ(c.managed_decisions, CONFIG_DECISIONS_FENTRY);
        config_done(&c);
}

/* What a setting says can be given back to it, and changes nothing. */
static void config_says_what_it_reads(void)
{
        char text[CONFIG_TEXT_MAX], again[CONFIG_TEXT_MAX], error[256];
        struct config c;

        CHECK_EQ(config_init(&c), 0);
        for (size_t i = 0; i < config_setting_count; i++) {
                const struct config_setting *s = &config_settings[i];

                CHECK(config_find(s->name) == s);
                config_get(&c, s, text, sizeof(text));
                if (strcmp(s->name, "library") == 0)
                        continue; /* is added to */
                CHECK_EQ(config_set(&c, s->name, text, error, sizeof(error)), 0);
                config_get(&c, s, again, sizeof(again));
                CHECK_STR(again, text);
        }
        CHECK_EQ(config_set(&c, "retention_bytes", "1536M", error, sizeof(error)), 0);
        config_get(&c, config_find("retention_bytes"), text, sizeof(text));
        CHECK_STR(text, "1536M");
        CHECK_EQ(config_set(&c, "retention_age", "86400", error, sizeof(error)), 0);
        config_get(&c, config_find("retention_age"), text, sizeof(text));
        CHECK_STR(text, "1d");
        CHECK_EQ(config_set(&c, "library", "/a", error, sizeof(error)), 0);
        CHECK_EQ(config_set(&c, "library", "/b", error, sizeof(error)), 0);
        config_get(&c, config_find("library"), text, sizeof(text));
        CHECK_STR(text, "/a /b");
        CHECK(!config_find("colour"));
        config_done(&c);
}

static void config_refuses_what_it_does_not_understand(void)
{
        refuse("\n\nnonsense\n", -EINVAL, "line 3");
        refuse("colour = red", -ENOENT, "no setting \"colour\"");
        refuse("database = relative", -EINVAL, "absolute path");
        refuse("retention_bytes = 5X", -EINVAL, "a size such as");
        refuse("retention_bytes = 99999999999999999999", -EINVAL, "a size such as");
        refuse("retention_bytes = 18446744073709551615T", -EINVAL, "a size such as");
        refuse("retention_age = -1", -EINVAL, "a time such as");
        refuse("ring_bytes = 100000", -EINVAL, "power of two");
        refuse("poll_ms = 0", -EINVAL, "1 to 1000");
        refuse("agent_launches = maybe", -EINVAL, "yes or no");
        refuse("agent_clock = sundial", -EINVAL, "yes or no");
        refuse("log_level = loud", -EINVAL, "give one of");
        refuse("log_level = crit", -EINVAL, "give one of");
        refuse("managed_decisions = kprobe", -EINVAL, "yes, no or fentry");
}

static void config_missing_file_is_told_apart(void)
{
        struct config c;
        char error[64] = "";

        CHECK_EQ(config_init(&c), 0);
        CHECK_EQ(config_load(&c, "/nonexistent/gpuobsd.conf", error, sizeof(error)), -ENOENT);
        CHECK_STR(error, "");
        config_done(&c);
}

static void intern_gives_one_id_per_text(void)
{
        struct intern *t = intern_new();
        const char *first;
        char name[32];

        CHECK(t);
        CHECK_EQ(intern_id(t, "vadd", 4), 1);
        first = intern_text(t, 1);
        for (int i = 0; i < 5000; i++) {
                snprintf(name, sizeof(name), "kernel_%d", i);
                CHECK_EQ(intern_id(t, name, strlen(name)), i + 2);
        }
        CHECK_EQ(intern_id(t, "vadd-not", 4), 1);
        CHECK_EQ(intern_count(t), 5001);
        CHECK(intern_text(t, 1) == first);
        CHECK_STR(intern_text(t, 5001), "kernel_4999");
        CHECK_STR(intern_text(t, 0), "");
        CHECK_STR(intern_text(t, 5002), "");
        intern_free(t);
}

static void ledger_counts_launch_losses_only(void)
{
        struct ledger a = {.produced = 10, .stored = 7}, sum = {0};

        a.lost[LOSS_cpu_ring_full] = 2;
        a.lost[LOSS_store_failed] = 1;
        a.lost[LOSS_device_ring_overrun] = 50;
        CHECK_EQ(ledger_lost_launches(&a), 3);
        ledger_add(&sum, &a);
        ledger_add(&sum, &a);
        CHECK_EQ(sum.produced, 20);
        CHECK_EQ(sum.lost[LOSS_device_ring_overrun], 100);
        for (int i = 0; i < LOSS_COUNT; i++)
                CHECK(ledger_loss_names[i] && ledger_loss_texts[i]);
}

int main(void)
{
        TEST(config_reads_every_key);
        TEST(config_says_what_it_reads);
        TEST(config_refuses_what_it_does_not_understand);
        TEST(config_missing_file_is_told_apart);
        TEST(intern_gives_one_id_per_text);
        TEST(ledger_counts_launch_losses_only);
        return 0;
}
