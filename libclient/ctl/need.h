/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* What was allocated; ends the program when there was no memory for it. */
static inline void *need(void *p)
{
        if (!p) {
                fprintf(stderr, "gpuobsctl: out of memory\n");
                exit(1);
        }
        return p;
}
