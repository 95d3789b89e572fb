/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What is read of an image that is to be copied: what its kernels reach, which kernels it
 * has, where fatbins lie in a file. Any bytes are understood or refused.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/found_index.h"
#include "agent/image_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool count(void *sum, uint64_t name)
{
        *(uint64_t *)sum += name;
        return true;
}

static void read_state(const uint8_t *data, size_t size, bool is_ptx)
{
        struct image_state *s = image_state_new();
        int r;

        if (!s)
                abort();
        r = is_ptx ? image_state_add_ptx(s, (const char *)data, size)
                   : image_state_add_cubin(s, data, size);
        /* A kernel that is not there may not be copied, whatever was read. */
        if (r == 0 && !image_state_refusal(s, "no such kernel"))
                abort();
        image_state_free(s);
}

/* As a file, of which only the headers are looked at. */
static void read_sections(const uint8_t *data, size_t size)
{
        struct found_section sections[4];
        int fd = memfd_create("fuzz", MFD_CLOEXEC);

        if (fd < 0)
                return;
        if (write(fd, data, size) == (ssize_t)size && found_sections(fd, sections, 4) > 4)
                abort();
        close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        uint64_t sum = 0;

        read_state(data, size, true);
        read_state(data, size, false);
        (void)found_kernels(data, size, true, count, &sum);
        (void)found_kernels(data, size, false, count, &sum);
        read_sections(data, size);
        return 0;
}
