/* SPDX-License-Identifier: Apache-2.0 */
#include "arch.h"

static const struct arch *const tables[] = {&arch_sm90};

const struct arch *arch_find(uint32_t sm)
{
        for (size_t k = 0; k < sizeof(tables) / sizeof(tables[0]); k++)
                if (tables[k]->sm == sm)
                        return tables[k];
        return NULL;
}

const struct grid_layout *grid_layout_find(uint32_t sm)
{
        const struct arch *a = arch_find(sm);

        return a ? &a->grid : NULL;
}
