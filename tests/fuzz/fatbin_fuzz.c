/* SPDX-License-Identifier: Apache-2.0 */

/* Images as an application hands them over: opened, listed, chosen from, unpacked, packed again. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fatbin.h"
#include "agent/image_memory.h"

#define UNPACK_MAX (16u << 20) /* a header may promise much more than a fuzzer should wait for */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void repack(const struct fatbin *f, const struct fatbin_entry *e, const void *bytes,
                   size_t size)
{
        struct fatbin_part parts[2] = {{e, bytes, size}, {e, bytes, size}};
        struct fatbin_entry first;
        struct fatbin again;
        size_t offset = 0;
        size_t out_size;
        void *out;

        if (fatbin_repack(f, parts, 2, &out, &out_size) < 0)
                return;
        /* What was packed must read back. */
        if (fatbin_open_bytes(out, out_size, &again) < 0 || again.size != out_size ||
            fatbin_next(&again, &offset, &first) != 1 || first.packing != FATBIN_RAW ||
            first.payload_bytes < size || memcmp(first.payload, bytes, size) != 0)
                abort();
        image_memory_free(out);
}

static void unpack(const struct fatbin *f, const struct fatbin_entry *e)
{
        size_t size;
        void *bytes;

        if (e->bytes > UNPACK_MAX || fatbin_unpack(e, &bytes, &size) < 0)
                return;
        repack(f, e, bytes, size);
        image_memory_free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct fatbin_entry e, chosen[3];
        struct fatbin f;
        size_t offset = 0;
        int n;

        if (fatbin_open_bytes(data, size, &f) < 0)
                return 0;
        if (f.size > size)
                abort();
        while (fatbin_next(&f, &offset, &e) > 0)
                unpack(&f, &e);
        n = fatbin_choose(&f, 90, chosen, 3);
        for (int i = 0; i < n; i++)
                unpack(&f, &chosen[i]);
        return 0;
}
