/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Managed memory of another process moved and advised on, for policies: through a
 * duplicate of its UVM file, with the calls its own CUDA library uses.
 *
 * Rules. Only memory known as a managed allocation of that very process (pid and
 * start time) is touched, in whole pages that belong to one allocation; never more
 * than a limit at a time, and never more goes to a GPU than it has free. Advice
 * the application gave itself is not overruled, nor that of another policy. Every
 * piece of advice is in the journal before it is given (undo_journal.h), so that
 * it can be taken back after any end of the daemon.
 *
 * A request is planned where the allocations are (uvm_ops_plan(), the event
 * loop) and run where it may block (uvm_ops_run(), a worker): a migration takes
 * some 22 ms a GiB, and longer when the driver is busy.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver/undo_journal.h"
#include "driver/uvm_allocations.h"
#include "driver/uvm_system.h"

enum uvm_op {
        UVM_OP_MIGRATE,         /* to the processor, now */
        UVM_OP_PREFER,          /* where the memory is to stay: the processor */
        UVM_OP_UNPREFER,        /* take that back */
        UVM_OP_ACCESSED_BY,     /* keep it mapped for the processor, wherever it is */
        UVM_OP_NOT_ACCESSED_BY, /* take that back */
        UVM_OP_DUPLICATE,       /* a copy at every processor that reads */
        UVM_OP_NOT_DUPLICATE,   /* take that back */
        UVM_OP_DISCARD,         /* the contents are not needed any more: they are lost */
        UVM_OP_COUNT
};

/* name, errno, sentence */
#define UVM_OP_ERRORS(X)                                                                           \
        X(OK, 0, "done")                                                                           \
        X(INVALID, EINVAL, "the request makes no sense")                                           \
        X(PROCESS_GONE, ESRCH, "the process has ended")                                            \
        X(NO_UVM, ENODEV, "the process has no managed memory at the driver")                       \
        X(NO_ALLOCATION, EFAULT, "there is no managed memory of the process in this range")        \
        X(TOO_SMALL, ERANGE, "the range holds no whole page of one allocation")                    \
        X(UNKNOWN_GPU, ENXIO, "the process does not use this GPU")                                 \
        X(NO_ROOM, ENOSPC, "the GPU has not enough free memory")                                   \
        X(NO_FREE_BYTES, ENODATA,                                                                  \
          "how much memory the GPU has free is not known, so none is moved there")                 \
        X(ADVISED, EBUSY, "the application itself gave advice on this memory")                     \
        X(HELD, EBUSY, "another policy gave advice on this memory")                                \
        X(JOURNAL, EIO, "what would have to be undone could not be written to the journal")        \
        X(NOT_PERMITTED, EPERM, "the kernel or the driver does not permit it")                     \
        X(NOT_SUPPORTED, ENOTSUP, "this driver cannot do it")                                      \
        X(DRIVER, EREMOTEIO, "the driver refused; status has its number")

enum uvm_op_error {
#define X(name, number, text) UVM_OP_##name,
        UVM_OP_ERRORS(X)
#undef X
                UVM_OP_ERROR_COUNT
};

/* As a positive errno, and as a sentence a person can act on. */
int uvm_op_error_number(enum uvm_op_error error);
const char *uvm_op_error_text(enum uvm_op_error error);

struct uvm_request {
        enum uvm_op op;
        pid_t pid;
        uint64_t start_ticks;
        uint64_t address, bytes;
        bool to_cpu; /* the processor is the CPU */
        bool async;  /* migrate: do not wait for the copy */
        uint8_t gpu[UVM_UUID_BYTES];
        char owner[UNDO_OWNER_BYTES]; /* of advice, for the journal */
};

#define UVM_PIECES_MAX 32

struct uvm_piece {
        uint64_t address, bytes;
};

/* What a request comes to: whole pages of allocations, ascending. */
struct uvm_plan {
        struct uvm_request request;
        struct uvm_piece pieces[UVM_PIECES_MAX];
        size_t count;
        uint64_t bytes; /* sum of the pieces */
        bool clipped;   /* less than was asked for: parts are no allocation, or over a limit */
};

struct uvm_outcome {
        enum uvm_op_error error; /* of the first piece that failed */
        uint32_t status;         /* the driver's, with UVM_OP_DRIVER and others it refused */
        size_t pieces;           /* done */
        uint64_t bytes;          /* done */
        uint64_t duration_ns;
        bool clipped;
        bool in_part; /* it failed, but some of the advice may hold: it is in the journal */
};

struct uvm_ops;

struct uvm_ops_options {
        uint64_t bytes_per_call; /* a request's limit; 0: 1 GiB */
        uint64_t reserve_bytes;  /* of a GPU's free memory, left to others; 0: 256 MiB */
        /* Free memory of a GPU: 0 or -errno. From any thread that calls uvm_ops_run(). */
        int (*free_bytes)(void *data, const uint8_t gpu[UVM_UUID_BYTES], uint64_t *ret_bytes);
        void *data;
};

/* The journal outlives the ops. 0 or -ENOMEM. */
int uvm_ops_new(const struct uvm_system *system, struct undo_journal *journal,
                const struct uvm_ops_options *options, struct uvm_ops **ret_ops);
struct uvm_ops *uvm_ops_free(struct uvm_ops *o);

/* Clip a request to the allocations of its process. Where the allocations live. */
enum uvm_op_error uvm_ops_plan(const struct uvm_ops *o, const struct uvm_allocations *allocations,
                               const struct uvm_request *request, struct uvm_plan *ret_plan);

/* Carry out a plan; blocks. Pieces before one that fails stay done. Any thread. */
void uvm_ops_run(struct uvm_ops *o, const struct uvm_plan *plan, struct uvm_outcome *ret_outcome);

/* Whether an entry of the journal is advice on managed memory. */
bool uvm_ops_is_advice(const struct undo_entry *e);

/*
 * Take back advice that is in the journal. 0; -ESRCH: the process or the memory is no more, so
 * there is nothing to do; other -errno: it stays in the journal, try again. Blocks. Any thread.
 */
int uvm_ops_undo(struct uvm_ops *o, const struct undo_entry *e);

/*
 * The process freed memory (bytes 0: it has ended or replaced its program): what
 * was said of it went with it. Any thread.
 */
void uvm_ops_forget(struct uvm_ops *o, pid_t pid, uint64_t start_ticks, uint64_t address,
                    uint64_t bytes);
