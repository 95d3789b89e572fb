/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The join: CPU launch events with device start/end records, per process and
 * context, by grid id with the kernel's identity as a check. See the essay in
 * correlator.c. Single-threaded; knows nothing of sockets, eBPF or SQLite.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "correlate/clock_model.h"
#include "util/intern.h"
#include "util/launch_record.h"
#include "util/ledger.h"

struct cpu_launch_event;
struct cpu_operation_event;
struct cpu_handle_event;
struct device_record;
struct correlator;
struct correlated_process;

struct correlator_ops {
        /* A finished record: launch_id not yet set. The correlator never calls back into itself. */
        void (*launch)(void *data, struct correlated_process *p, struct launch_record *record);
};

struct correlator *correlator_new(const struct correlator_ops *ops, void *data,
                                  struct intern *names);
struct correlator *correlator_free(struct correlator *c);

/* ---- processes ---- */

/* ledger: the process's, owned by the caller, outlives the process here. NULL on no memory. */
struct correlated_process *correlator_add_process(struct correlator *c, uint64_t process_key,
                                                  struct ledger *ledger, void *user);
void *correlated_process_user(const struct correlated_process *p);

/* Everything still pending is finished as it is (match none, end none), then forgotten. */
void correlator_remove_process(struct correlator *c, struct correlated_process *p);

/* A device of a process. */
struct correlated_device {
        const struct clock_model
                *clock; /* NULL: its times cannot be told; else outlives the process */
        uint32_t gpu;   /* the number its records get */
        bool has_gpu;   /* else they get none */
};

/*
 * The process has an agent: device records will come. Before this, launches finish at
 * once. devices: by the process's own ordinals, copied; those beyond 64 are not known.
 */
void correlated_process_set_agent(struct correlated_process *p,
                                  const struct correlated_device *devices, size_t count);

/*
 * No more device records will come: what is pending is finished as it is, and launches
 * finish at once again. What handles mean and which contexts there are stays known.
 */
void correlator_end_agent(struct correlator *c, struct correlated_process *p);

/* ---- inputs ---- */

/* From the kernel's ring buffer, in its order (launches: order of return; seq gives entry). */
void correlator_launch(struct correlator *c, struct correlated_process *p,
                       const struct cpu_launch_event *ev);
void correlator_operation(struct correlator *c, struct correlated_process *p,
                          const struct cpu_operation_event *ev);
void correlator_handle(struct correlator *c, struct correlated_process *p,
                       const struct cpu_handle_event *ev);

/* From the agent: a kernel of a loaded image. image_handle: CUmodule or CUlibrary. */
struct correlated_kernel {
        uint32_t kernel_id;
        uint64_t image_handle;
        const char *name;
        size_t name_length;
        bool entry_probed;
        bool exit_probed;
        bool may_nest; /* kernels of its image launch kernels */
};
void correlator_kernel(struct correlator *c, struct correlated_process *p,
                       const struct correlated_kernel *kernel);

/* A function the agent launches itself: its launches take grid ids but make no record. */
void correlator_own_function(struct correlator *c, struct correlated_process *p, uint64_t func);

/* From the shared map, in its order. */
void correlator_device_record(struct correlator *c, struct correlated_process *p,
                              const struct device_record *r);

/* lost device records at this point of the process's stream: resynchronise. */
void correlator_device_gap(struct correlator *c, struct correlated_process *p, uint64_t lost);

/* Launches that had returned by then have been handed in: what comes next comes at this time. */
void correlator_now(struct correlator *c, uint64_t now_ns);

/* Every few ms: finish what is due, apply limits. */
void correlator_tick(struct correlator *c, uint64_t now_ns);

/*
 * A time that a program on the GPU read, in a context of this number (0 not known), by the
 * clock of that context's device: CLOCK_MONOTONIC and the bound of its error as of
 * clock_model_to_cpu(). 0; -EAGAIN the clock has not been read yet; -ENODATA which device
 * it was is not known, or it has no clock.
 */
int correlated_process_time(struct correlated_process *p, uint16_t context, uint64_t gpu_ns,
                            uint64_t *ret_cpu_ns, uint32_t *ret_error_ns);

/* The interned name of a kernel; 0: it is not known. */
uint64_t correlated_process_kernel(struct correlated_process *p, uint32_t kernel_id);

/* Launches waiting for device records. */
size_t correlated_process_pending(const struct correlated_process *p);
