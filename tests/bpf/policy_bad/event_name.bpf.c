/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: there is no such event */
#include "gpuobs_policy.h"

POLICY(sunrise)
{
        return 0;
}
