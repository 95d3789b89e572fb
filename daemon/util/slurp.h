/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files of /proc whose reading or opening waits for a lock of another process: one that hangs in a
 * driver with its mappings locked never lets go of it. A thread does it, and is left to a file that
 * takes too long.
 */
#include <stddef.h>
#include <stdint.h>

#define SLURP_PATIENCE_NS 250000000ull
#define SLURP_LEFT_MAX    16 /* threads that are left at a time; then nothing is read */

/*
 * The whole file, allocated, with a '\0' behind it. 0; -ETIMEDOUT it is left to its thread; -EBUSY
 * so was it, or another of the same process, before, or too many are; other -errno. Any thread, one
 * at a time.
 */
int slurp(const char *path, char **ret_text, size_t *ret_size);

/* Open a regular file for reading: the descriptor, or -errno as above; -EBADF it is none. */
int slurp_open(const char *path);

/* Files that have been left to a thread that has not returned. Any thread. */
unsigned slurp_left(void);
