/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/*
 * Whether processes have the ids for us that the kernel itself, and so the NVIDIA
 * driver, calls them by. In another pid namespace than the initial one they have not.
 */
bool pid_namespace_is_initial(void);
