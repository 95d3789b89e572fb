/* SPDX-License-Identifier: Apache-2.0 */
#include "util/pid_namespace.h"

#include <sys/stat.h>

/* Inode of the initial pid namespace, a constant of the kernel's ABI. */
#define INITIAL_PID_NAMESPACE 0xeffffffcu

static bool read_namespace(struct stat *ret_stat)
{
        return stat("/proc/self/ns/pid", ret_stat) == 0;
}

bool pid_namespace_is_initial(void)
{
        static int known = -1;
        struct stat st;

        if (known < 0)
                known = read_namespace(&st) && st.st_ino == INITIAL_PID_NAMESPACE;
        return known;
}

struct pid_namespace pid_namespace_other(void)
{
        struct stat st;

        if (!read_namespace(&st) || st.st_ino == INITIAL_PID_NAMESPACE)
                return (struct pid_namespace){0};
        return (struct pid_namespace){.device = st.st_dev, .inode = st.st_ino};
}
