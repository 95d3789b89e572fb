/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the API asks of the daemon's state, which main owns. All of it is called
 * on the event loop's thread, between api_server_new() and the callback of
 * api_server_close(). Pointers handed to a row callback need to live only until
 * it returns; a row callback never changes the state it is walking over.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver/calls.h"
#include "driver/uvm_process.h"
#include "driver/uvm_tier.h"
#include "libclient/schema_tables.h"
#include "probe/launch_pace.h"
#include "store/store.h"
#include "util/config.h"
#include "util/launch_record.h"
#include "util/ledger.h"

struct nvml;
struct slice_history;
struct device_object;
struct policy_engine;

#define API_ANY_UID UINT32_MAX

/* A process the daemon knows, live or gone. */
struct api_process {
        const struct process_info *info;
        const struct ledger *ledger;
        bool alive;
        enum gpuobs_agent agent;
        const char *agent_reason; /* NULL none */
        uint32_t contexts;
        bool has_depth;
        uint64_t depth;   /* launched and not yet started, over all contexts */
        uint64_t pending; /* launches waiting for device records */
        uint32_t images;
        uint32_t kernels;
        uint32_t kernels_start; /* kernels with a start probe */
        uint32_t kernels_end;
        const struct calls *calls;         /* of the driver; NULL none seen */
        const struct uvm_process *managed; /* its managed memory; NULL none seen */
        struct launch_limits limits;       /* that policies have set */
        struct launch_paced paced;         /* what became of them */
};

/* One image of a process. */
struct api_image {
        uint32_t image_id;
        uint32_t kernels;
        uint32_t rewrite_us;
        bool rewritten;
        bool ptx;
        uint64_t handle;
        uint64_t bytes;
        const char *reason; /* NULL none */
};

/* One kernel of an image. */
struct api_kernel {
        uint32_t kernel_id;
        enum gpuobs_how start;
        enum gpuobs_how end;
        bool has_accesses;
        uint32_t accesses_probed, accesses; /* instructions that access memory */
        const char *name;
        const char *reason; /* NULL none */
};

struct api_gpu {
        uint32_t gpu;
        const char *uuid; /* NULL not known */
        enum gpuobs_clock clock;
        bool has_drift;
        int64_t drift_ppb;
        bool has_clock_error;
        uint32_t clock_error_ns;
};

/* Something that does not work: a short stable name, and a sentence that says what to do. */
struct api_problem {
        const char *name;
        const char *text;
};

struct api_state {
        uint64_t started_ns; /* CLOCK_MONOTONIC */
        uint32_t libraries;  /* CUDA driver libraries probed */
        uint32_t processes;  /* live */
        uint32_t agents;     /* connected */
        const struct api_gpu *gpus;
        size_t gpu_count;
        const struct api_problem *problems;
        size_t problem_count;
        const char *store_path;
        struct store_status store;
};

/* A point inside the managed-memory driver. */
struct api_point {
        const char *function; /* NULL none */
        bool probed;
        enum gpuobs_uvm_form form; /* when probed */
        bool arguments;            /* are known */
        const char *reason;        /* why it is not, or not in the form asked for; NULL none */
};

/* What the probes inside the managed-memory driver have found. */
struct api_decisions {
        const struct uvm_tier *tier;
        bool probed;
        const char *reason;     /* why it is not; NULL none */
        const char *struct_ops; /* that the driver offers; NULL none */
        uint64_t lost;          /* events */
        struct api_point points[UVM_POINT_COUNT];
};

/* Something that works or does not. */
struct api_check {
        const char *name;
        enum gpuobs_check_state state;
        const char *finding;
        const char *advice; /* NULL none */
};

/* An object of device programs. */
struct api_probe {
        uint64_t id; /* 0: the daemon's own */
        const char *name;
        const struct device_object *object;
        bool builtin;
        uint64_t loaded_ns;
        bool all;            /* meant for all processes */
        const char *comm;    /* glob of short names; NULL */
        const char *kernels; /* glob; NULL all */
};

/* Whom device programs are to be attached to. */
struct api_target {
        uint32_t pid;     /* 0: not given */
        const char *comm; /* glob; NULL not given */
        bool all;
        const char *kernels; /* glob; NULL: as it is */
};

/* The programs of an object in one process. */
struct api_attachment {
        const struct process_info *process;
        enum gpuobs_attached state;
        bool code; /* for machine code, too */
        uint64_t gpu_bytes;
        const char *reason; /* NULL none */
};

struct api_map_request {
        const char *probe;
        const char *map;
        uint32_t pid;    /* 0: not given */
        const void *key; /* of the element that is written */
        bool deletes;    /* it is taken out */
};

/* What an agent read: device/device_abi.h says how maps lie there. Anything may be in it. */
struct api_map_reading {
        const uint8_t *bytes;
        uint8_t *heap; /* the same when it is malloc'd and may be taken: who does sets this NULL */
        uint64_t size;
        bool settled;
        uint64_t before_ns, after_ns; /* CLOCK_MONOTONIC, as the agent says */
};

/* The answer to a request about a map: 0 (reading: NULL for a write) or -errno. */
typedef void api_map_done(void *done_data, int result, struct api_map_reading *reading);

/* Memory that a process allocated and its GPUs can reach. */
struct api_allocation {
        uint64_t address, bytes;
        uint64_t since_ns; /* CLOCK_MONOTONIC */
        enum gpuobs_allocation_kind kind;
};

/* Where and when a program on the GPU was, as far as it is known. */
struct api_gpu_moment {
        const char *kernel; /* NULL not known */
        bool has_time;
        uint64_t time_ns; /* CLOCK_MONOTONIC */
        uint32_t error_ns;
};

struct api_backend {
        /* What *ret_state points to lives until the next call into the backend. */
        void (*state)(void *data, struct api_state *ret_state);

        /*
         * Known processes with process_key > after, by ascending process_key, until
         * row() returns nonzero.
         */
        void (*processes)(void *data, uint64_t after,
                          int (*row)(void *row_data, const struct api_process *p), void *row_data);

        /* Images of a process with image_id > after, ascending, until row() returns nonzero. */
        void (*images)(void *data, uint64_t process_key, uint32_t after,
                       int (*row)(void *row_data, const struct api_image *image), void *row_data);

        /* Kernels of an image with kernel_id > after, ascending, until row() returns nonzero. */
        void (*kernels)(void *data, uint64_t process_key, uint32_t image_id, uint32_t after,
                        int (*row)(void *row_data, const struct api_kernel *kernel),
                        void *row_data);

        /*
         * The sum of ledgers of the processes of a uid; API_ANY_UID: of all, and of
         * those the daemon has forgotten since it started.
         */
        void (*losses)(void *data, uint32_t uid, struct ledger *ret_ledger);

        /* A process the daemon knows, live or gone; NULL: it does not. */
        const struct process_info *(*process)(void *data, uint64_t process_key);

        /* The management library; any thread may ask it. NULL: none. */
        struct nvml *(*nvml)(void *data);

        /* The latest slices of the GPUs; any thread may ask them. NULL: none are kept. */
        struct slice_history *(*slices)(void *data);

        /* The device file's minor number of RM's instance of a GPU; false: there is none. */
        bool (*gpu_of_instance)(void *data, uint32_t instance, uint32_t *ret_gpu);

        /* The time slice of a process's channel group, asked of the driver; false: not known. */
        bool (*time_slice)(void *data, const struct process_info *process,
                           const struct call_group *group, uint64_t *ret_us);

        /* Text of a name id of records; NULL for 0. */
        const char *(*name)(void *data, uint64_t id);

        /*
         * Read the events of a live process's managed memory, or stop. 0 or -errno;
         * *ret_process: as it is now, NULL when it has none or there is no such process
         * (-ESRCH).
         */
        int (*watch)(void *data, uint32_t pid, bool on, const struct uvm_process **ret_process);

        /* A subscriber was too slow for n launches of a process: to be counted
         * (LOSS_subscriber_slow). */
        void (*subscriber_slow)(void *data, uint64_t process_key, uint64_t n);

        /* The settings in effect. */
        const struct config *(*settings)(void *data);

        /*
         * Change a setting. -ENOENT, -EPERM (not while the daemon runs) or -EINVAL with
         * a sentence in error[].
         */
        int (*set)(void *data, const char *name, const char *value, char *error, size_t error_size);

        /* What works and what does not. */
        void (*doctor)(void *data, void (*row)(void *row_data, const struct api_check *check),
                       void *row_data);

        /* Decisions of the managed-memory driver; it lives until the next call into the backend. */
        void (*decisions)(void *data, struct api_decisions *ret_decisions);

        /* The policy engine. Its functions are called on the loop's thread, as all of this. */
        struct policy_engine *(*policies)(void *data);

        /* Objects of device programs, the daemon's own first, until row() returns nonzero. */
        void (*probes)(void *data, int (*row)(void *row_data, const struct api_probe *p),
                       void *row_data);

        /* The processes an object is in, or was to be in, until row() returns nonzero. */
        void (*attachments)(void *data, uint64_t id,
                            int (*row)(void *row_data, const struct api_attachment *a),
                            void *row_data);

        /*
         * Verify, compile and keep an object; forget one; say whom it is meant for; take it
         * off. 0, or -errno with a sentence in error[].
         */
        int (*probe_load)(void *data, const char *name, const void *object, size_t size,
                          char *error, size_t error_size);
        int (*probe_unload)(void *data, const char *name, char *error, size_t error_size);
        int (*probe_attach)(void *data, const char *name, const struct api_target *target,
                            char *error, size_t error_size);
        int (*probe_detach)(void *data, const char *name, const struct api_target *target,
                            char *error, size_t error_size);

        /*
         * Read a map of a process, or overwrite bytes of it; of one that is there twice the
         * master, whatever the process. 0: done() is called once, later or at once;
         * else -errno with a sentence in error[]. *ret_pid: of the process that was meant.
         */
        int (*map_read)(void *data, const struct api_map_request *request, api_map_done *done,
                        void *done_data, uint32_t *ret_pid, char *error, size_t error_size);
        int (*map_write)(void *data, const struct api_map_request *request, uint64_t offset,
                         const void *bytes, size_t size, api_map_done *done, void *done_data,
                         char *error, size_t error_size);

        /*
         * What a time of the GPU's clock and a kernel's number mean, in a live process with an
         * agent; context: the number the GPU has for it, 0 not known.
         */
        void (*gpu_moment)(void *data, uint32_t pid, uint16_t context, uint64_t gpu_ns,
                           uint32_t kernel_id, struct api_gpu_moment *ret_moment);

        /*
         * Live allocations of a process that begin at this address or after, ascending, until
         * row() returns nonzero. *ret_unlisted: those that are not listed, in all.
         */
        void (*allocations)(void *data, uint64_t process_key, uint64_t from,
                            int (*row)(void *row_data, const struct api_allocation *a),
                            void *row_data, uint64_t *ret_unlisted);

        /* The database's writing side. What may be called from any thread is (store.h). */
        struct store *(*store)(void *data);
};
