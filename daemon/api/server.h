/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The API's socket: accepts clients, reads requests, answers them. Runs on the
 * event loop's thread; queries of the database run in libuv's thread pool with
 * readers of their own.
 */
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "api/backend.h"
#include "driver/uvm_event.h"
#include "store/store.h"

struct api_server;

struct api_limits {
        uint32_t connections;         /* in all; the last 1/16 is kept for root and group gpuobs */
        uint32_t connections_per_uid; /* of a uid that is neither root nor in group gpuobs */
        uint32_t requests_per_uid;    /* being worked on */
        uint32_t streams_per_uid;
        uint64_t bytes_per_uid;        /* requests partly received and answers not yet taken */
        uint64_t bytes_per_connection; /* answers not yet taken, before its requests must wait and
                                          its streams drop */
        uint32_t queries;              /* at the same time, each with a database connection */
        uint32_t query_timeout_ms;
        uint32_t stall_timeout_ms;    /* nothing taken for so long: disconnect */
        uint32_t snapshot_timeout_ms; /* a kept reading of a map that is not used goes */
};

/* 2048, 256, 32, 16, 16 MiB, 2 MiB, 2, 5 s, 30 s, 30 s. */
void api_limits_default(struct api_limits *ret_limits);

struct api_server_options {
        int listen_fd;    /* a listening SOCK_STREAM socket, the server's from then on; or -1 */
        const char *path; /* with -1: create this socket, mode 0666 */
        const char *store_path; /* database file, for readers; NULL: queries are refused */
        const char *group;      /* whose members see everything; NULL: "gpuobs". Need not exist. */
        struct api_limits limits;
};

/*
 * Serve. backend and what it points to outlive the server; strings are copied.
 * The process must ignore SIGPIPE: clients go away while they are written to.
 * 0 or -errno (-EADDRINUSE: somebody serves at path already); a listen_fd is
 * closed on failure too.
 */
int api_server_new(uv_loop_t *loop, const struct api_server_options *options,
                   const struct api_backend *backend, void *data, struct api_server **ret_server);

/*
 * Stop: no new clients, running queries are told to stop, connections are
 * closed. closed(closed_data) is called on the loop when nothing is left; the
 * server is freed by then. closed may be NULL.
 */
void api_server_close(struct api_server *s, void (*closed)(void *closed_data), void *closed_data);

/*
 * Finished launches, for subscribers. Cheap when there are none. Kernel names are
 * interned texts: the same address is the same name for the life of the server.
 */
void api_server_publish(struct api_server *s, const struct store_launch *launches, size_t n);

/* Whether anybody subscribes: building store_launch rows can be spared otherwise. */
bool api_server_has_subscribers(const struct api_server *s);

/* A processor of an event, when it is no GPU's minor number. */
#define API_UVM_CPU     (-1)
#define API_UVM_UNKNOWN (-2)

/* An event of managed memory, for subscribers. */
struct api_uvm_event {
        const struct process_info *process;
        struct uvm_event event;
        struct uvm_when when;
        uint64_t allocation;    /* that the event's address lies in, where it begins; 0 none */
        int32_t source, target; /* minor numbers of the GPUs, or API_UVM_ */
};

/* As api_server_publish(), of events. */
void api_server_publish_uvm(struct api_server *s, const struct api_uvm_event *events, size_t n);
bool api_server_has_uvm_subscribers(const struct api_server *s);

struct kept_slice;

/* As api_server_publish(), of slices of the GPUs (correlate/slice_history.h). */
void api_server_publish_slices(struct api_server *s, const struct kept_slice *slices, size_t n);

/* Other limits from now on; what is beyond them already stays. `queries` cannot change. */
void api_server_set_limits(struct api_server *s, const struct api_limits *limits);

/* Look the group up again (it may have been created or changed): on reload. */
void api_server_reload(struct api_server *s);

uint32_t api_server_connections(const struct api_server *s);
