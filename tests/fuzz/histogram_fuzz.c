/* SPDX-License-Identifier: Apache-2.0 */

/* Histograms as the database has them: any bytes are refused, or come out as they went in. */
#include <errno.h>

#include "store/histogram.h"
#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct histogram h = {0}, again = {0};
        uint8_t bytes[HISTOGRAM_BYTES_MAX];
        size_t length;
        int r = histogram_merge(&h, data, size);

        CHECK(r == 0 || r == -EBADMSG);
        CHECK(r == 0 || !h.counts);
        length = histogram_encode(&h, bytes);
        CHECK(length <= sizeof(bytes));
        CHECK_EQ(histogram_merge(&again, bytes, length), 0);
        CHECK_EQ(again.first, h.first);
        CHECK_EQ(again.count, h.count);
        for (uint32_t i = 0; i < h.count; i++)
                CHECK(again.counts[i] == h.counts[i]);
        for (uint64_t rank = 1; rank; rank *= 2)
                histogram_value(&h, rank);
        CHECK_EQ(histogram_add(&h, size), 0);
        CHECK_EQ(histogram_merge(&h, bytes, length), 0); /* onto another range */
        histogram_done(&h);
        histogram_done(&again);
        return 0;
}
