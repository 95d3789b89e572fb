/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Room for one more element, doubling from 16. False: no memory, and the array is as it was. */
static inline bool grow(void **array, size_t count, size_t element)
{
        void *p;

        if (count && (count < 16 || (count & (count - 1))))
                return true;
        p = realloc(*array, (count < 16 ? 16 : 2 * count) * element);
        if (p)
                *array = p;
        return p != NULL;
}
