/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The simulated driver's objects. Handles are pointers to these; each begins
 * with a magic number so that a wrong or destroyed handle is refused.
 *
 * Locks, in the order they are taken: driver, event, stream, context, scheduler.
 */
#include <pthread.h>

#include "cuda.h"
#include "ptx_interp.h"
#include "sim_config.h"

/*
 * Every exported function begins with the frame set-up and then 16 bytes without
 * a branch or branch target, like the real driver's: tools put breakpoints on
 * byte 0 and jumps from byte 1 on.
 */
#define SIM_API __attribute__((visibility("default"), noinline)) CUresult
#define SIM_ENTER()                                                                                \
        __asm__ volatile(".byte 0x0f,0x1f,0x84,0,0,0,0,0\n\t.byte 0x0f,0x1f,0x84,0,0,0,0,0"        \
                         : /* asking for the frame makes the compiler set it up */                 \
                         : "r"(__builtin_frame_address(0))                                         \
                         : "memory")

enum sim_magic {
        SIM_MAGIC_CONTEXT = 0x53430001,
        SIM_MAGIC_MODULE,
        SIM_MAGIC_LIBRARY,
        SIM_MAGIC_FUNCTION,
        SIM_MAGIC_KERNEL,
        SIM_MAGIC_STREAM,
        SIM_MAGIC_EVENT,
        SIM_MAGIC_GRAPH,
        SIM_MAGIC_NODE,
        SIM_MAGIC_EXEC,
        SIM_MAGIC_ALLOCATION,
        SIM_MAGIC_END,
};

/* Whether a handle is a live object of a kind. */
#define SIM_IS(handle, kind) ((handle) && (handle)->magic == SIM_MAGIC_##kind)

struct sim_stream;

/* A zeroed object whose first member is its magic number; NULL: no memory. */
void *sim_object_new(enum sim_magic magic, size_t bytes);
/* Returns NULL. */
void *sim_object_free(void *object, enum sim_magic magic);
#define SIM_NEW(type, kind)    ((type *)sim_object_new(SIM_MAGIC_##kind, sizeof(type)))
#define SIM_FREE(object, kind) sim_object_free(object, SIM_MAGIC_##kind)

/* ---- code ---- */

struct sim_function {
        uint32_t magic; /* FUNCTION */
        struct sim_module *module;
        const struct ptx_entry *entry;
        const struct ptx_entry_info *info;
        int attributes[CU_FUNC_ATTRIBUTE_MAX];
};

struct sim_kernel {
        uint32_t magic; /* KERNEL */
        struct sim_library *library;
        struct sim_function *function;
};

struct sim_module {
        uint32_t magic; /* MODULE */
        struct sim_context *context;
        struct ptx_module *ptx;
        struct sim_function **functions; /* one per entry */
        unsigned function_count;
        bool in_library;
};

struct sim_library {
        uint32_t magic; /* LIBRARY */
        struct sim_module *module;
        struct sim_kernel **kernels; /* one per entry */
};

/* ---- work ---- */

enum sim_command_kind {
        SIM_COMMAND_KERNEL,
        SIM_COMMAND_COPY,
        SIM_COMMAND_SET,
        SIM_COMMAND_EVENT,
        SIM_COMMAND_HOST,
        SIM_COMMAND_GRAPH,
        SIM_COMMAND_FREE,
        SIM_COMMAND_EMPTY,
};

#define SIM_INLINE_PARAMS 128

struct sim_kernel_work {
        const struct sim_function *function;
        struct ptx_launch launch;
        uint8_t *params; /* inline_params, or allocated when they do not fit */
        uint8_t inline_params[SIM_INLINE_PARAMS];
};

struct sim_copy_work {
        uint64_t dst, src;
        uint64_t dst_pitch, src_pitch;
        uint64_t width, height; /* bytes, rows */
        bool is_grid; /* done by a kernel of the driver's: takes a grid id and a descriptor */
};

struct sim_set_work {
        uint64_t dst, pitch;
        uint64_t width, height; /* elements, rows */
        uint32_t value;
        uint32_t element; /* bytes */
        bool is_grid;
};

/* Work of another stream that must be complete first. */
struct sim_wait {
        struct sim_stream *stream; /* a reference */
        uint64_t seq;
};

struct sim_command {
        enum sim_command_kind kind;
        struct sim_wait wait; /* stream NULL: none */
        struct sim_wait *more_waits;
        unsigned more_wait_count;
        uint64_t submit_ns;
        union {
                struct sim_kernel_work kernel;
                struct sim_copy_work copy;
                struct sim_set_work set;
                struct {
                        struct sim_event *event; /* a reference */
                        uint64_t generation;
                } event;
                struct {
                        CUhostFn fn;
                        void *data;
                } host;
                struct sim_exec *exec; /* a reference */
                uint64_t free_address;
        };
};

/* Launch descriptors of a stream or a graph, used in turn. */
struct sim_descriptors {
        uint64_t address;
        uint64_t step, count;
        uint64_t taken; /* so far */
};

/*
 * A stream is a ring of commands. Producers append under the lock; one worker
 * at a time takes commands in order. `completed` counts commands whose effects
 * are visible.
 */
struct sim_stream {
        uint32_t magic; /* STREAM */
        _Atomic uint32_t references;
        struct sim_context *context;
        struct sim_stream *next, **link; /* in the context's list */
        struct sim_stream *next_ready;   /* in a scheduler's list */
        unsigned flags;
        int priority;
        uint64_t id;
        bool is_legacy;
        _Atomic bool destroyed; /* leaves the context when its work is done */
        pthread_mutex_t lock;
        struct sim_command *ring;
        struct sim_descriptors descriptors;
        uint64_t legacy_seq; /* of the legacy stream that this one has waited for */
        _Atomic uint64_t submitted;
        _Atomic uint64_t completed;
        _Atomic int scheduled;     /* 1: in a scheduler's list or with a worker */
        _Atomic uint64_t wake_at;  /* somebody sleeps until this many are completed */
        struct sim_graph *capture; /* not NULL: commands are recorded in this graph */
        struct sim_node *capture_last;
        bool capture_origin; /* capture began on this stream */
};

struct sim_event {
        uint32_t magic; /* EVENT */
        _Atomic uint32_t references;
        struct sim_context *context;
        unsigned flags;
        pthread_mutex_t lock;
        struct sim_wait recorded;    /* stream NULL: never recorded */
        _Atomic uint64_t generation; /* recordings so far */
        _Atomic uint64_t device_ns;
        struct sim_graph *capture; /* recorded while capturing */
        struct sim_node *capture_last;
};

/* ---- contexts ---- */

struct sim_context {
        uint32_t magic; /* CONTEXT */
        struct sim_context *next;
        CUdevice device;
        uint64_t id;
        unsigned flags;
        bool is_primary;
        unsigned retained; /* primary */
        pthread_mutex_t lock;
        struct sim_stream *streams;
        struct sim_stream *legacy;
        _Atomic unsigned blocking_streams; /* beside the legacy stream */
        _Atomic uint64_t next_stream_id;
        _Atomic int error; /* sticky */
        _Atomic unsigned next_sm;
};

struct sim_driver {
        _Atomic int ready;
        pthread_mutex_t lock;
        struct sim_config config;
        struct sim_context *contexts; /* live and destroyed: handles stay readable */
        struct sim_context *primary[8];
        _Atomic uint64_t next_context_id;
        _Atomic uint64_t grids[8]; /* grid ids taken, of each device */
};

extern struct sim_driver sim_driver;

#define SIM_SM_COUNT       132
#define SIM_SM             90
#define SIM_DRIVER_VERSION 13000
#define SIM_SHARED_DEFAULT 49152
#define SIM_SHARED_MAX     232448

/*
 * Sets and copies from this size on are done by a kernel in the real driver, and
 * so take a grid id. Measured: 64 MiB does, 1001 bytes does not; the border
 * between is ours. Two-dimensional sets always do.
 */
#define SIM_GRIDID_BYTES 65536

/* The calling thread's context, checked. The sticky error of the context is returned. */
CUresult sim_context_current(struct sim_context **ret_context);

/* Whether cuInit was called. */
CUresult sim_check_ready(void);
CUresult sim_check_device(CUdevice device);

/* A stream handle (NULL, legacy, per-thread or created) in a context. */
CUresult sim_stream_resolve(CUstream handle, bool per_thread, struct sim_context **ret_context,
                            struct sim_stream **ret_stream);

struct sim_stream *sim_stream_ref(struct sim_stream *stream);
void sim_stream_unref(struct sim_stream *stream);

/* A destroyed stream has nothing left to do. */
void sim_stream_retire(struct sim_stream *stream);

CUresult sim_stream_new(struct sim_context *context, unsigned flags, int priority, bool is_legacy,
                        struct sim_stream **ret_stream);

/*
 * Give a command to a stream, or record it when the stream is capturing. The
 * command's references and parameters become the stream's. ret_seq (may be
 * NULL) is what `completed` will have reached when it is done, 0 when recorded.
 */
CUresult sim_stream_submit(struct sim_stream *stream, struct sim_command *command,
                           uint64_t *ret_seq);

/* ---- what a grid is told (sim_grid.c) ---- */

/* Eight for a stream, one for each node of a graph. */
void sim_descriptors_of_stream(struct sim_descriptors *descriptors);
void sim_descriptors_of_nodes(struct sim_descriptors *descriptors, size_t nodes);
/* Give them back, for others to get; more than once does nothing. */
void sim_descriptors_done(struct sim_descriptors *descriptors);

/*
 * Give a command the context's next grid id and the next descriptor, if it is one
 * that takes them. One thread at a time for the same descriptors.
 */
void sim_assign_grid(struct sim_context *context, struct sim_descriptors *descriptors,
                     struct sim_command *command);
/* Take a grid id of the context's device for nothing. Any thread. */
void sim_skip_grid(struct sim_context *context);

/* Block until a stream has completed `seq` commands. */
void sim_stream_wait(struct sim_stream *stream, uint64_t seq);

/* Block until all work of a context is done; its sticky error. */
CUresult sim_context_drain(struct sim_context *context);

/* The same for every context; errors stay with their contexts. */
void sim_drain_all(void);

/* Free what a command owns. */
void sim_command_done(struct sim_command *command);

/* ---- scheduler (sim_sched.c) ---- */

/* Start the workers; once. 0 or -errno. */
int sim_sched_start(void);

/* A stream has commands and is not scheduled yet. */
void sim_sched_add(struct sim_stream *stream);

/* Wait until a stream completed `seq` commands, on the calling thread. */
void sim_sched_wait(struct sim_stream *stream, uint64_t seq);

/* ---- execution (sim_exec.c) ---- */

struct sim_worker;
struct sim_worker *sim_worker_new(void);

/* Carry out a command of a context on the calling thread; errors become sticky. */
void sim_command_run(struct sim_worker *worker, struct sim_context *context,
                     struct sim_command *command);

/* The device clock now. */
uint64_t sim_device_ns(unsigned device);

/* ---- memory (sim_memory.c) ---- */

enum sim_memory_kind {
        SIM_MEMORY_DEVICE,
        SIM_MEMORY_MANAGED,
        SIM_MEMORY_HOST,
        SIM_MEMORY_REGISTERED,
        SIM_MEMORY_MODULE,
        SIM_MEMORY_MAPPED, /* virtual memory management */
};

struct sim_memory {
        uint64_t start;
        uint64_t end;
        enum sim_memory_kind kind;
        unsigned flags;
        CUdevice device;
        struct sim_context *context;
};

/* Known memory that contains a whole range; false: none does. */
bool sim_memory_find(uint64_t address, uint64_t bytes, struct sim_memory *ret_memory);
CUresult sim_memory_add(const struct sim_memory *memory);
bool sim_memory_remove(uint64_t start, struct sim_memory *ret_memory);

/* Changes whenever memory is removed. */
extern uint64_t sim_memory_generation;

/* Give device memory back (a command of cuMemFreeAsync). */
void sim_memory_release(uint64_t address);

/* ---- images (sim_image.c) ---- */

/*
 * The PTX in an image: text, or a fatbin (or its wrapper) with raw, LZ4 or zstd
 * PTX. The caller frees the text.
 */
CUresult sim_image_ptx(const void *image, char **ret_text, size_t *ret_bytes);

/* ---- graphs (sim_graph.c) ---- */

/*
 * Calls that may synchronise behind the application's back are refused while a
 * capture forbids them (see cuThreadExchangeStreamCaptureMode), and spoil it.
 */
CUresult sim_capture_check_unsafe(void);

/* The capture cannot be completed any more. */
void sim_capture_invalidate(struct sim_graph *graph);

/* Record a command in the graph a stream is captured into. */
CUresult sim_capture_add(struct sim_stream *stream, struct sim_command *command);

/* cuEventRecord and cuStreamWaitEvent while capturing. */
CUresult sim_capture_event_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_event_wait(struct sim_stream *stream, struct sim_event *event);

void sim_exec_run(struct sim_worker *worker, struct sim_context *context, struct sim_exec *exec);
void sim_exec_unref(struct sim_exec *exec);

/* ---- launches (sim_launch.c) ---- */

/* Check a launch and build its command, without grid id. */
CUresult sim_launch_prepare(const CUDA_KERNEL_NODE_PARAMS *params, bool cooperative,
                            struct sim_command *ret_command);

void sim_event_ref(struct sim_event *event);
void sim_event_unref(struct sim_event *event);
