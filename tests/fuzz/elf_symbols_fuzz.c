/* SPDX-License-Identifier: Apache-2.0 */
/* A shared library of a stranger, in which functions are looked for. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "probe/elf_symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char *const names[] = {"cuLaunchKernel", "cuMemAlloc_v2", "x"};
        uint64_t offsets[3];
        int fd = memfd_create("fuzz", MFD_CLOEXEC);

        if (fd < 0)
                return 0;
        if (write(fd, data, size) == (ssize_t)size)
                elf_find_functions(fd, names, 3, offsets);
        close(fd);
        return 0;
}
