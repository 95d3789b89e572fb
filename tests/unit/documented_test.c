/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Man pages have an entry for each cause of loss, for each setting, where it says whether that
 * may change while the daemon runs, and for each method.
 *   documented_test GPUOBSD.8 GPUOBSD.CONF.5 LIBGPUOBS.3
 */
#include <ctype.h>
#include <stdbool.h>

#include "libclient/schema.h"
#include "unit/test.h"
#include "util/config.h"
#include "util/ledger.h"
#include "util/macro.h"

/* Whether a line is one of macro .B or .BR that holds the word. */
static bool names(const char *line, const char *word)
{
        const char *at = strncmp(line, ".B", 2) == 0 ? strstr(line, word) : NULL;

        return at && at[-1] == ' ' && isspace((unsigned char)at[strlen(word)]);
}

static bool has_entry(FILE *page, const char *word)
{
        char line[256];

        rewind(page);
        while (fgets(line, sizeof(line), page))
                if (names(line, word))
                        return true;
        return false;
}

static void check_entry(FILE *page, const char *path, const char *word)
{
        if (has_entry(page, word))
                return;
        fprintf(stderr, "%s has no entry for %s\n", path, word);
        exit(1);
}

static void check_setting(const struct config_setting *s, const char *line, bool run_time)
{
        if (!names(line, s->name) || s->run_time == run_time)
                return;
        fprintf(stderr, "%s is among the settings that %s\n", s->name,
                run_time ? "may change" : "take effect with the next start");
        exit(1);
}

/* A section of this name has the settings that may, or may not, change while the daemon runs. */
static void check_section(FILE *page, const char *section, bool run_time)
{
        bool inside = false, found = false;
        char line[256];

        rewind(page);
        while (fgets(line, sizeof(line), page)) {
                if (strncmp(line, ".S", 2) == 0)
                        inside = strstr(line, section) != NULL;
                found |= inside;
                for (size_t i = 0; inside && i < config_setting_count; i++)
                        check_setting(&config_settings[i], line, run_time);
        }
        CHECK(found);
}

static const char *const methods[] = {
#define M(name, method, params, result, privilege, stream, doc) #name,
        GPUOBS_METHODS(M)
#undef M
};

int main(int argc, char **argv)
{
        FILE *pages[3];

        CHECK_EQ(argc, 4);
        for (int i = 0; i < 3; i++)
                CHECK((pages[i] = fopen(argv[i + 1], "re")));
        CHECK(!has_entry(pages[0], "no_such_cause"));
        for (int i = 0; i < LOSS_COUNT; i++)
                check_entry(pages[0], argv[1], ledger_loss_names[i]);
        for (size_t i = 0; i < config_setting_count; i++)
                check_entry(pages[1], argv[2], config_settings[i].name);
        check_section(pages[1], "take effect with the next start", false);
        check_section(pages[1], "may change while gpuobsd runs", true);
        for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
                check_entry(pages[2], argv[3], methods[i]);
        for (int i = 0; i < 3; i++)
                fclose(pages[i]);
        return 0;
}
