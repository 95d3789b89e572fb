/* SPDX-License-Identifier: Apache-2.0 */

/* The line table of .BTF.ext, from any bytes. */
#include "device/line_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct line_table t;
        struct line_position position;
        uint32_t sum = 0;

        if (line_table_init(data, size, &t))
                return 0;
        for (size_t s = 0; s < t.count; s++) {
                for (uint32_t i = 0; i < t.sections[s].count; i++)
                        sum += line_table_record(&t, &t.sections[s], i, &position);
                line_table_find(&t, &t.sections[s], sum, &position);
        }
        line_table_done(&t);
        return 0;
}
