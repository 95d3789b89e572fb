/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The eBPF programs that see the calls of the NVIDIA driver, of all processes
 * (probes/driver/ioctl.bpf.c). One thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver_abi.h"

struct driver_probes;

struct driver_probes_options {
        uint32_t ring_bytes; /* 0: 1 MiB; a power of two */
        bool but_own;        /* calls of this process are left out */
        /* Device files to watch instead of the driver's own, up to an entry with device 0; NULL:
         * the driver's. */
        const struct driver_device_range *ranges;
        /* With these: where the kernel lists its devices, outlives the probes; NULL: /proc/devices.
         */
        const char *devices;
};

/* Load and attach. 0; -EPERM; other -errno. */
int driver_probes_new(const struct driver_probes_options *options,
                      struct driver_probes **ret_probes);
struct driver_probes *driver_probes_free(struct driver_probes *p);

/* Hand out up to max events. The number, or -errno. */
int driver_probes_poll(struct driver_probes *p, size_t max,
                       void (*call)(void *data, const struct driver_call_event *e), void *data);

/*
 * Look for the number of nvidia-uvm's device, which the kernel gives out when the
 * module is loaded, and anew when it is loaded again: call it now and then. 0 known, -ENOENT not.
 */
int driver_probes_find_devices(struct driver_probes *p);

/* Events not written since the start, by enum driver_loss. 0 or -errno. */
int driver_probes_losses(const struct driver_probes *p, uint64_t ret_losses[DRIVER_LOSS_COUNT]);
