/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl.h"
#include "table.h"

int ctl_list_table(struct ctl *ctl, const struct table_column *columns, ctl_list_fn list,
                   const struct ctl_filter *filter)
{
        struct table *t;
        int r = ctl_connect(ctl);

        if (r)
                return r;
        t = table_new(columns);
        r = list(ctl, t, filter);
        if (!ctl->json && r == CTL_OK)
                table_flush(t);
        table_free(t);
        return r;
}

int ctl_list(struct ctl *ctl, const struct ctl_command *self, int argc, char **argv,
             const struct table_column *columns, ctl_list_fn list)
{
        static const struct option options[] = {
                CTL_COMMON_OPTIONS, {"pid", required_argument, NULL, OPTION_PID}, {0}};
        struct ctl_filter filter = {0};

        ctl_option(ctl, self, &filter, argc, argv, options);
        ctl_no_arguments(self, argc, argv);
        return ctl_list_table(ctl, columns, list, &filter);
}
