/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/losses.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>

#include "util/macro.h"

int losses_read(int map_fd, uint32_t count, uint64_t ret_losses[])
{
        int cpus = libbpf_num_possible_cpus(), r;
        _cleanup_free_ uint64_t *values = NULL;

        if (cpus < 0)
                return cpus;
        values = calloc((size_t)cpus, sizeof(*values));
        if (!values)
                return -ENOMEM;
        for (uint32_t i = 0; i < count; i++) {
                r = bpf_map_lookup_elem(map_fd, &i, values);
                if (r < 0)
                        return r;
                ret_losses[i] = 0;
                for (int cpu = 0; cpu < cpus; cpu++)
                        ret_losses[i] += values[cpu];
        }
        return 0;
}
