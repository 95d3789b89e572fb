/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * libgpuobs: ask gpuobsd what the GPUs of this machine are doing.
 *
 *     struct gpuobs *g;
 *     struct gpuobs_launches *l;
 *     struct gpuobs_launches_params p = {.has_newest = true, .newest = true};
 *
 *     if (gpuobs_connect(NULL, 0, &g) < 0) ...
 *     if (gpuobs_launches_query(g, &p, &l) < 0)
 *             fprintf(stderr, "%s\n", gpuobs_error(g)->message);
 *     for (size_t i = 0; i < l->n_launches; i++) ... l->launches[i].gpu_start_ns ...
 *     gpuobs_launches_free(l);
 *     gpuobs_free(g);
 *
 * The structs and calls are in gpuobs_api.h, generated from the API's schema.
 *
 * Shapes. A member that may be absent has a has_ flag before it (texts: NULL):
 * absent is never zero. A list is an array and n_ elements. Texts are UTF-8 with
 * a NUL; kernel names and process names come from the observed programs: do not
 * print them to a terminal without replacing control characters.
 *
 * Units. Times end in _ns. Where nothing else is said they are CLOCK_MONOTONIC
 * of this machine; GPU times were converted to it with the error clock_error_ns.
 *
 * Errors. 0 or -errno:
 *     -ENOENT, -ECONNREFUSED  gpuobs_connect(): the daemon does not run
 *     -EACCES                 gpuobs_connect(): the socket is not for you
 *     -ECONNRESET             the daemon closed the connection
 *     -ETIMEDOUT              no answer in time
 *     -EBADMSG                bytes that are not the protocol
 *     -EBUSY                  a synchronous call from within a callback
 *     -ENOMEM
 * and what the daemon answered, translated: -EINVAL parameters, -EPERM, -EDQUOT
 * quota, -ETIME query too slow, -EIO database, -ENOSYS no such method (an older
 * daemon), and so on (docs/api.md). gpuobs_error() has the sentence.
 *
 * Threads. A handle may be used by one thread at a time; different handles are
 * independent. The library starts no threads, installs no signal handlers, and
 * does not print. A connection that broke stays broken: connect again.
 *
 * Event loops. Wait for gpuobs_events() on gpuobs_fd(), no longer than
 * gpuobs_timeout_ms(), then call gpuobs_dispatch(); asynchronous calls and
 * streams have their callbacks run in it, and nowhere else.
 */

#define GPUOBS_SOCKET_DEFAULT "/run/gpuobsd/gpuobsd.sock"
#define GPUOBS_SOCKET_ENV     "GPUOBS_SOCKET" /* overrides the default */

#ifdef __cplusplus
/* struct gpuobs_status and gpuobs_status(), as stat has it: -Wshadow speaks of constructors. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#endif
#pragma GCC visibility push(default)

#include "gpuobs_api.h"

/* What went wrong last on this handle. */
struct gpuobs_error {
        enum gpuobs_error_number number; /* GPUOBS_ERROR_NONE: not an answer of the daemon */
        const char *code;                /* stable name, e.g. "bad_params"; "" with NONE */
        const char *message;             /* a sentence for a person */
        const char *detail;              /* more, NULL when there is none */
};

/* Version of the library, e.g. "0.1.0". */
const char *gpuobs_version(void);

/*
 * Connect to the daemon's socket. path NULL: $GPUOBS_SOCKET, else the default.
 * timeout_ms: for connecting and for every later call; 0 means 5000, below zero
 * no limit. 0 and a handle (gpuobs_free() it), or -errno.
 */
int gpuobs_connect(const char *path, int timeout_ms, struct gpuobs **ret_gpuobs);

/*
 * Close. Calls that are open end without a callback. NULL is fine; returns NULL.
 * Within a callback: takes effect when gpuobs_dispatch() returns, with -ECANCELED.
 */
struct gpuobs *gpuobs_free(struct gpuobs *g);

/* Limit for calls made from now on, as in gpuobs_connect(). */
void gpuobs_set_timeout(struct gpuobs *g, int timeout_ms);

/* The last failure on the handle, for every function that returned below zero. Valid until the next
 * call. */
const struct gpuobs_error *gpuobs_error(const struct gpuobs *g);

/* The connection's descriptor, to wait on; never read or close it. */
int gpuobs_fd(const struct gpuobs *g);

/* What to wait for: POLLIN, with POLLOUT while a request is partly sent. */
short gpuobs_events(const struct gpuobs *g);

/* Longest wait before gpuobs_dispatch(): 0 answers are here already; ms to a call's timeout; -1 no
 * limit. */
int gpuobs_timeout_ms(const struct gpuobs *g);

/*
 * Send and receive what is possible without waiting, and run callbacks. Returns
 * how many ran; -errno when the connection broke (each open call's callback has
 * had the error) or -ECANCELED when a callback freed the handle.
 */
int gpuobs_dispatch(struct gpuobs *g);

/*
 * End a call before its time: its callback will not run again. For a stream the
 * daemon is told. The pointer is no longer valid. NULL is fine. A call that is
 * not a stream ends by itself after its callback, a stream after a callback with
 * an error: do not cancel it then.
 */
void gpuobs_cancel(struct gpuobs_call *call);

/* The id of the call on the wire (for gpuobs_stream_cancel()). */
unsigned long long gpuobs_call_id(const struct gpuobs_call *call);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif
