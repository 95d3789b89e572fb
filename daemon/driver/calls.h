/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What one process did with the NVIDIA driver, from the events of its calls
 * (driver/driver_abi.h): statistics per request, and the objects of the resource
 * manager that matter to others: clients, devices, channel groups, channels.
 * The process decides what it calls, so what is kept of it is bounded.
 *
 * Known only from calls that were seen, and what was found of before (group_scan.h). Main
 * thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/driver_abi.h"

#define CALLS_STATS_MAX   512  /* distinct requests of a process; the rest share one entry */
#define CALLS_OBJECTS_MAX 4096 /* objects of a process that are followed */

struct calls;
struct group_scan_object;

/* One kind of call. */
struct call_stat {
        uint32_t request; /* number of the ioctl: for RM without its type and size */
        uint32_t what;    /* class of an allocation, command of a control, else 0 */
        uint8_t device;   /* enum driver_device; DRIVER_DEVICE_NONE: all that found no place */
        uint64_t count;
        uint64_t errors; /* the system call or the driver's status said so */
        uint64_t total_ns, max_ns;
        uint32_t last_status; /* of the last error; 0: the system call failed */
        int32_t last_errno;
};

/* A channel group (TSG): what the GPU schedules. */
struct call_group {
        uint32_t client, object; /* handles of RM */
        int32_t fd;              /* nvidiactl in the process, as the client last used it */
        bool has_instance;
        uint32_t instance; /* RM's number of the GPU */
        bool has_engine;
        uint32_t engine;   /* NV2080_ENGINE_TYPE_: 1 graphics and compute, 9.. copy */
        uint32_t slice_us; /* time slice that the process has set last; 0: it was not seen to */
        uint32_t channels;
        uint64_t created_ns; /* CLOCK_MONOTONIC */
};

/* NULL on no memory. */
struct calls *calls_new(void);
struct calls *calls_free(struct calls *c);

/* Take one event in. False: an object could not be kept (memory, or too many). */
bool calls_add(struct calls *c, const struct driver_call_event *e);

/*
 * An object that was found to be there, rather than seen being made: a channel group that kernels
 * run in, or a channel. One that is known already stays as it is. False: as calls_add().
 */
bool calls_add_found(struct calls *c, const struct group_scan_object *o);

/* Statistics, in the order the requests were first seen. */
size_t calls_stat_count(const struct calls *c);
const struct call_stat *calls_stat(const struct calls *c, size_t index);

/* Channel groups in the order they were made, until row() returns nonzero. */
void calls_groups(const struct calls *c, int (*row)(void *data, const struct call_group *g),
                  void *data);
size_t calls_group_count(const struct calls *c);

/*
 * The channel group that this call, which has been taken in, made or set the time slice of.
 * False: it did neither, or failed.
 */
bool calls_group_of(const struct calls *c, const struct driver_call_event *e,
                    struct call_group *ret_group);

/*
 * The channel group that a channel belongs to, by the id the context-switch
 * trace has for the channel. False: not known.
 */
bool calls_find_context(const struct calls *c, uint32_t context_id, struct call_group *ret_group);
