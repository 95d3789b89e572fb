/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside the API server: the server, its connections, the requests being worked
 * on (calls) and the streams. Everything belongs to the loop's thread but what a
 * running query was given.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "api/backend.h"
#include "api/peer.h"
#include "api/quota.h"
#include "api/server.h"
#include "libclient/codec.h"
#include "libclient/schema.h"
#include "libclient/wire.h"

/* A page of rows ends when its rows take more than this, so that any frame fits. */
#define API_PAGE_BYTES (512u << 10)

struct api_call;
struct connection;
struct kept_map;
struct stream;

struct api_server {
        uv_loop_t *loop;
        const struct api_backend *backend;
        void *data;
        struct api_limits limits;
        char *path; /* of a socket the server made, else NULL */
        char *store_path;
        char *group_name;
        gid_t group;
        uv_pipe_t listener;
        uv_timer_t timer; /* once a second while output waits or a connection is paused */
        bool timer_running;
        struct quota *quota;
        struct connection *connections;
        uint32_t connection_count;
        struct stream *streams;
        uint32_t stream_count;
        struct kept_map *kept;         /* readings of maps */
        uint64_t last_kept;            /* number of the latest */
        struct api_call *waiting;      /* queries without a worker, first come first */
        uint32_t running;              /* queries in the thread pool */
        struct store_reader **readers; /* idle */
        uint32_t reader_count;
        uint32_t open; /* libuv handles and running queries that keep the server alive */
        bool closing;
        void (*closed)(void *closed_data);
        void *closed_data;
        char read_buffer[65536];
};

/* One of `open` is gone; frees a closing server with the last one. */
void server_release(struct api_server *s);

/* ---- connection.c ---- */

struct connection {
        uv_pipe_t pipe;
        struct api_server *server;
        struct connection *prev, *next;
        struct peer peer;
        struct quota_account *account;
        struct wire_buffer in;
        uint64_t in_charged;  /* bytes of `in` on the account */
        uint64_t out_bytes;   /* answers libuv holds */
        size_t seen_unsent;   /* the write queue when the timer last looked */
        uint64_t progress_ns; /* when something was last taken */
        bool reading;
        bool ending;  /* a last frame is on its way, then it is closed */
        bool closing; /* uv_close() was called */
        struct api_call *calls;
        struct stream *streams;
};

/* Take the client that waits at the listener. */
void connection_accept(struct api_server *s);

/* Close; calls and streams end a turn of the loop later, so the caller may go on using them.
 * Idempotent. */
void connection_close(struct connection *c);

/* Answer with an error about the connection (id 0), then close. */
void connection_fail(struct connection *c, enum gpuobs_error_number number, const char *detail);

/* Queue a frame, whose bytes are taken (also on failure, which closes the connection). */
void connection_send(struct connection *c, struct wire_buffer *frame);

/* Something has to be looked at once a second. */
void connection_want_timer(struct api_server *s);

/* Whether answers that the client has not taken fill what it may have. */
bool connection_full(const struct connection *c);

/* The timer's second: disconnect who takes nothing, resume who may go on. */
void connection_tick(struct connection *c, uint64_t now_ns);

/* ---- call.c ---- */

struct api_call {
        struct api_server *server;
        struct connection *connection; /* NULL once it is closed: nobody waits */
        struct api_call *prev, *next;  /* of the connection */
        struct quota_account *account;
        struct peer peer;
        uint64_t id;
        const struct schema_method *method;
        struct codec_arena arena; /* the parameters, and what a handler needs */
        /* of a query */
        uv_work_t work;
        struct api_call *next_waiting;
        struct store_reader *reader;
        uint32_t timeout_ms; /* of the query */
        const struct query_ops *ops;
        void *query;
        int query_error;
        char query_why[200]; /* with query_error: a sentence */
        atomic_bool cancelled;
};

/* A frame that passed wire_check(): find the method, check, hand to its handler. */
void call_begin(struct connection *c, const void *frame, size_t size);

/* Nobody waits any more: the connection is closing. */
void call_abandon(struct api_call *call);

/*
 * A handler ends its call with exactly one of these; the call is freed. result
 * is the method's result struct.
 */
void api_call_reply(struct api_call *call, const void *result, const struct codec_rows *rows,
                    size_t n_rows);
/* message NULL: the error's own sentence. detail may be NULL. */
void api_call_fail(struct api_call *call, enum gpuobs_error_number number, const char *message,
                   const char *detail);
/* As above with bad_params: "name why". */
void api_call_fail_param(struct api_call *call, const char *name, const char *why);
/* With bad_params and why, or of -ENOMEM with internal. */
void api_call_fail_error(struct api_call *call, int error, const char *why);
/* The request has become a stream: free the call, answer nothing. */
void api_call_end(struct api_call *call);

/* The uid whose rows the caller may see; API_ANY_UID for all. */
uint32_t api_call_uid(const struct api_call *call);
/* Whether he may see what is about a process; NULL: about none that is known. */
bool api_call_sees(const struct api_call *call, const struct process_info *info);

/* ---- query.c ---- */

struct query_ops {
        /*
         * In a worker thread; may touch only call->query, call->timeout_ms and the
         * arena. reader NULL: without_reader. 0 or -errno.
         */
        int (*run)(struct api_call *call, struct store_reader *reader, void *query);
        /* On the loop, unless nobody waits any more: reply. */
        void (*done)(struct api_call *call, void *query);
        /* On the loop, always, last. */
        void (*free)(void *query);
        bool without_reader; /* it is no query: it only takes time */
};

/* Run a query for the call, now or when a worker is free. Takes query. */
void query_start(struct api_call *call, const struct query_ops *ops, void *query);
/* From a worker: stop, nobody waits for this. */
bool query_cancelled(struct api_call *call);
/* The server is closing: give back the readers. */
void query_free_readers(struct api_server *s);

/* ---- stream.c ---- */

struct stream_kind {
        /* A batch of so many encoded rows, with what was dropped and, now and then, the ledger. 0
         * or -errno. */
        int (*encode)(struct stream *st, const struct wire_buffer *rows, uint32_t count, bool more,
                      struct wire_buffer *frame);
        void (*free)(struct stream *st);

        /* For stream_publish(); what is published is an array of the kind's own. */
        bool (*wants)(struct stream *st, const void *items, size_t i);
        void (*add)(struct stream *st, struct wire_buffer *rows, const void *items, size_t i);
        uint64_t (*process_key)(const void *items, size_t i); /* whose loss it would be */
};

/* What is subscribed to; part of the struct of its kind. */
struct stream {
        struct stream *prev, *next;         /* of the server */
        struct stream *own_prev, *own_next; /* of the connection */
        const struct stream_kind *kind;
        struct connection *connection;
        struct quota_account *account;
        uint64_t id;
        uint32_t uid; /* API_ANY_UID: all */
        uint64_t dropped;
        uint64_t losses_ns; /* when the ledger was last sent */
};

/* The call becomes this stream, which has its kind and is taken, also when the call fails. */
void stream_begin(struct api_call *call, struct stream *st);
/* Send encoded rows, and what was dropped before them. */
void stream_send(struct stream *st, const struct wire_buffer *rows, uint32_t count, bool more);
/* Send n items to each stream of a kind that wants them; what a slow client misses is counted. */
void stream_publish(struct api_server *s, const struct stream_kind *kind, const void *items,
                    size_t n);
/* For encode: the ledger, when it is time for it again. */
bool stream_losses(struct stream *st, bool more, struct codec_arena *arena,
                   struct gpuobs_losses *ret_losses);
/* Whether anybody subscribes to this kind. */
bool stream_any(const struct api_server *s, const struct stream_kind *kind);
struct stream *stream_find(struct connection *c, uint64_t id);
/* End with a last batch. */
void stream_finish(struct stream *st);
/* End without: the connection is closing. */
void stream_abandon(struct stream *st);
/* The client has taken its answers: tell it what was dropped meanwhile. */
void stream_drained(struct connection *c);
