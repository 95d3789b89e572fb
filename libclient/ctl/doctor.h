/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What gpuobsctl doctor finds out by itself, without the daemon: files of the
 * machine, read under a root ("" the machine's own; tests have others).
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "gpuobs.h"

#define DOCTOR_CHECKS_MAX 64
#define DOCTOR_TEXT_MAX   512

struct doctor_check {
        const char *name;
        enum gpuobs_check_state state;
        char finding[DOCTOR_TEXT_MAX];
        const char *advice; /* NULL none */
};

struct doctor {
        const char *root;
        struct doctor_check checks[DOCTOR_CHECKS_MAX];
        size_t count;
};

/* ---- the checks; each adds what it finds ---- */

void doctor_check_kernel(struct doctor *d);
void doctor_check_driver(struct doctor *d);
void doctor_check_install(struct doctor *d);

/* ---- what they are made of (doctor_files.c) ---- */

/* Add one; name and advice are kept, not copied. Beyond DOCTOR_CHECKS_MAX it is dropped. */
void doctor_add(struct doctor *d, const char *name, enum gpuobs_check_state state,
                const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The path with the root before it, in buffer, which is returned. */
const char *doctor_path(const struct doctor *d, const char *path, char buffer[PATH_MAX]);

/* Whether a file is there, whoever may read it. */
bool doctor_exists(const struct doctor *d, const char *path);

/* Whether this process may open it for reading and writing. */
bool doctor_may_use(const struct doctor *d, const char *path);

/* The first bytes of a file as a text without the newlines at its end. 0 or -errno. */
int doctor_read(const struct doctor *d, const char *path, char *buffer, size_t size);

/*
 * Paths that match a pattern, without the root, until each() returns false. How many
 * there were.
 */
size_t doctor_glob(const struct doctor *d, const char *pattern,
                   bool (*each)(const struct doctor *d, const char *path, void *data), void *data);

/*
 * Where the dynamic linker would find a library: the directories of ld.so.conf and
 * the usual ones. False: in none of these.
 */
bool doctor_find_library(const struct doctor *d, const char *name, char *ret_path, size_t size);
