/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Man pages have an entry for each cause of loss, for each setting, and for each method.
 *   documented_test GPUOBSD.8 GPUOBSD.CONF.5 LIBGPUOBS.3
 */
#include <ctype.h>
#include <stdbool.h>

#include "libclient/schema.h"
#include "unit/test.h"
#include "util/config.h"
#include "util/ledger.h"
#include "util/macro.h"

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
        for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
                check_entry(pages[2], argv[3], methods[i]);
        for (int i = 0; i < 3; i++)
                fclose(pages[i]);
        return 0;
}
