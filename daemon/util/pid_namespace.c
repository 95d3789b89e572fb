/* SPDX-License-Identifier: Apache-2.0 */
#include "util/pid_namespace.h"

#include <sys/stat.h>

/* Inode of the initial pid namespace, a constant of the kernel's ABI. */
#define INITIAL_PID_NAMESPACE 0xeffffffcu

bool pid_namespace_is_initial(void)
{
        static int known = -1;
        struct stat st;

        if (known < 0)
                known = stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == INITIAL_PID_NAMESPACE;
        return known;
}
