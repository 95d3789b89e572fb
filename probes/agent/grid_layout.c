/* SPDX-License-Identifier: Apache-2.0 */
#include "grid_layout.h"
#include "sm90.h"

static const struct grid_layout layouts[] = {
        {.sm = 90, .context = SM90_CONTEXT, .queue_offset = SM90_DESCRIPTOR - SM90_PARAMETERS},
};

const struct grid_layout *grid_layout_find(uint32_t sm)
{
        for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
                if (layouts[i].sm == sm)
                        return &layouts[i];
        return NULL;
}
