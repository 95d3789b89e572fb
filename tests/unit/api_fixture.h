/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An API server in a thread of the test, over a made-up daemon state and a
 * made-up database (api_fake_store.c), so that what it answers is known and slow
 * or failing queries can be had on demand.
 *
 * Processes: key 1 pid 101 uid 0, key 2 pid 102 uid FIXTURE_UID, key 3 pid 103
 * uid 0, ... ; each with two images of three kernels; the ledger of key k has
 * produced 10 k, stored 8 k, lost k to cpu_ring_full and k to store_failed. All but
 * the third made three kinds of driver calls and have two channel groups. The first
 * two have managed memory; with each launch comes an event of it.
 * GPU 0: see slices() in api_fixture.c.
 * With an object of device programs (fixture_load_object()) that is called "made_up", each
 * reading of its maps consists of words with the number of the reading, from 1.
 * Settings: the defaults; settings.set changes them (nothing comes of it). A flush
 * takes fake_store_delay_ms, a prune deletes as many rows as it is seconds.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "api/server.h"
#include "util/config.h"

#define FIXTURE_UID       65534
#define FIXTURE_PROCESSES 5
#define FIXTURE_GROUP     "daemon"
#define FIXTURE_GID       1

struct fixture {
        char path[64];
        struct api_limits
                limits; /* fixture_init() sets the defaults; change before fixture_start() */
        uv_loop_t loop;
        uv_thread_t thread;
        uv_async_t stop;
        uv_async_t publish;
        uv_sem_t ready;
        struct api_server *server;
        bool closed;
        uint64_t to_publish; /* launches with the next signal of publish */
        uint32_t publish_batch;
        uint64_t next_launch_id;
        _Atomic uint64_t published;
        struct config config;
        _Atomic uint64_t slow; /* launches told to be lost to slow subscribers */
        struct device_object *object;
        _Atomic uint64_t readings; /* of its maps */
};

void fixture_init(struct fixture *f);
/* Before fixture_start(). False: eBPF programs cannot be verified here. */
bool fixture_load_object(struct fixture *f, const char *path);
void fixture_start(struct fixture *f);
/* Close the server; checks that it went, and that nothing is left in the loop. */
void fixture_stop(struct fixture *f);

/*
 * Publish n launches of the processes in turn, in batches of `batch`; waits
 * until the server has taken them. Kernel "kernel_K", K = launch_id % 10.
 */
void fixture_publish(struct fixture *f, uint64_t n, uint32_t batch);

/* What the fake database does. */
extern atomic_int fake_store_delay_ms; /* per row */
extern atomic_int fake_store_turn;     /* not 0: queries and flushes that begin wait ... */
extern atomic_int fake_store_let_go;   /* ... until this is as large as it was then */
extern atomic_int fake_store_waiting;  /* that have begun to wait so */
extern atomic_int fake_store_error;    /* -errno of the query */
extern atomic_int fake_store_rows;     /* rows in it */
extern atomic_int fake_store_running;  /* queries in it now */
extern atomic_int fake_store_finished; /* queries that were in it */
extern atomic_int fake_store_peak;     /* most at a time */
extern atomic_int fake_store_readers;  /* open readers */

/* A connected blocking socket. */
int fixture_connect(const struct fixture *f);

/* A connected client of the library; gpuobs_free() it. */
struct gpuobs *fixture_client(const struct fixture *f);

/* Run body(f) in a child with these credentials; checks that it ends with 0. */
void fixture_as(struct fixture *f, uid_t uid, gid_t supplementary, void (*body)(struct fixture *f));
