/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Migrations that policies ordered, against those that the driver was seen to carry out by
 * request: the driver says of an order only that it took it. Memory that was where it should go
 * moves no more, and what the process itself asks for in the same range meanwhile looks the same,
 * so of an order no more than its size is believed to be seen.
 */
#include <stdint.h>

#include "policies/policy_abi.h"

#define MOVES_MAX      1024
#define MOVES_LIMIT_NS 10000000000ull /* after that a migration is not taken for an order's */

struct move {
        uint64_t process, address, bytes;
        uint64_t ordered_ns;
        uint64_t unseen_bytes;
        uint32_t policy;
        uint32_t to;
};

/* Zeroed: none. */
struct moves {
        struct move list[MOVES_MAX]; /* the newest */
        uint64_t count;              /* ever */
};

/* A policy orders a migration at a time. */
void moves_ordered(struct moves *m, uint32_t policy, const struct policy_action *a,
                   uint64_t now_ns);

/*
 * Memory of a process was seen moving: calls seen() with the policies that ordered it, and how
 * much of it each, the newest order first.
 */
void moves_seen(struct moves *m, uint64_t process, const struct policy_moved *moved,
                uint64_t now_ns, void (*seen)(void *data, uint32_t policy, uint64_t bytes),
                void *data);
