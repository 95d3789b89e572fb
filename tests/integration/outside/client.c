/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program of somebody else: built against what is installed, strict C99.
 *   client PID      prints the stored launches of a process, page by page
 */
#include <gpuobs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(struct gpuobs *g, const char *what)
{
        fprintf(stderr, "%s: %s\n", what, gpuobs_error(g)->message);
        gpuobs_free(g);
        return 1;
}

int main(int argc, char **argv)
{
        struct gpuobs_launches_params params = {0};
        struct gpuobs_set_params set = {"poll_ms", "5"};
        struct gpuobs_set_result *changed;
        struct gpuobs_launches *page;
        struct gpuobs *g;
        unsigned long launches = 0, exact = 0;
        int r;

        r = gpuobs_connect(NULL, 0, &g);
        if (r < 0) {
                fprintf(stderr, "connect: %s\n", strerror(-r));
                return 1;
        }
        params.has_pid = true;
        params.pid = (uint32_t)strtoul(argc > 1 ? argv[1] : "0", NULL, 10);
        params.has_limit = true;
        params.limit = 100;
        do {
                if (gpuobs_launches_query(g, &params, &page) < 0)
                        return failed(g, "launches.query");
                for (size_t i = 0; i < page->n_launches; i++) {
                        launches++;
                        exact += page->launches[i].match == GPUOBS_MATCH_EXACT;
                }
                params.has_cursor = page->has_next_cursor;
                params.cursor = page->next_cursor;
                gpuobs_launches_free(page);
        } while (params.has_cursor);
        if (gpuobs_settings_set(g, &set, &changed) < 0)
                return failed(g, "settings.set");
        gpuobs_set_result_free(changed);
        printf("%s launches %lu exact %lu\n", gpuobs_version(), launches, exact);
        gpuobs_free(g);
        return 0;
}
