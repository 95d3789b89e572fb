/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether processes have the ids for us that the kernel itself, and so the NVIDIA
 * driver, calls them by. In another pid namespace than the initial one they have not.
 */
bool pid_namespace_is_initial(void);

/*
 * The pid namespace whose ids we know processes by, for programs in the kernel that are
 * to name them likewise. All zero: the initial one, or /proc does not tell.
 */
struct pid_namespace {
        uint64_t device;
        uint64_t inode;
};
struct pid_namespace pid_namespace_other(void);
