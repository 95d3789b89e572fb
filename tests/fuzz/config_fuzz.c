/* SPDX-License-Identifier: Apache-2.0 */

/* The configuration file: any bytes either parse or are refused with a sentence. */
#include "unit/test.h"
#include "util/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct config c;
        char error[256] = "";
        int r;

        CHECK_EQ(config_init(&c), 0);
        r = config_parse(&c, (const char *)data, size, error, sizeof(error));
        CHECK(r == 0 || error[0]);
        config_done(&c);
        return 0;
}
