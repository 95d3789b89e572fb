/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: the object holds no program */
#include "gpuobs_policy.h"
