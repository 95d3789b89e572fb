/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Man pages have an entry for each cause of loss and for each setting.
 *   documented_test GPUOBSD.8 GPUOBSD.CONF.5
 */
#include <ctype.h>
#include <stdbool.h>

#include "unit/test.h"
#include "util/config.h"
#include "util/ledger.h"

/* Whether a line of macro .B or .BR holds the word. */
static bool has_entry(FILE *page, const char *word)
{
        size_t length = strlen(word);
        char line[256];

        rewind(page);
        while (fgets(line, sizeof(line), page)) {
                const char *at = strncmp(line, ".B", 2) == 0 ? strstr(line, word) : NULL;

                if (at && at[-1] == ' ' && isspace((unsigned char)at[length]))
                        return true;
        }
        return false;
}

static void check_entry(FILE *page, const char *path, const char *word)
{
        if (has_entry(page, word))
                return;
        fprintf(stderr, "%s has no entry for %s\n", path, word);
        exit(1);
}

int main(int argc, char **argv)
{
        FILE *pages[2];

        CHECK_EQ(argc, 3);
        for (int i = 0; i < 2; i++)
                CHECK((pages[i] = fopen(argv[i + 1], "re")));
        CHECK(!has_entry(pages[0], "no_such_cause"));
        for (int i = 0; i < LOSS_COUNT; i++)
                check_entry(pages[0], argv[1], ledger_loss_names[i]);
        for (size_t i = 0; i < config_setting_count; i++)
                check_entry(pages[1], argv[2], config_settings[i].name);
        fclose(pages[0]);
        fclose(pages[1]);
        return 0;
}
