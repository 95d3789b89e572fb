/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which of the handles that can be launched are CUfunctions and which CUkernels:
 * the driver takes either where a kernel is launched, but each has its own
 * functions to ask for parameters, and what these make of the other kind is
 * promised nowhere. So only handles that were seen to be given out are asked about.
 *
 * A handle that is given out again is noted again, so the latest word is the right
 * one, and nothing has to be forgotten when code is unloaded. Any thread; no locks.
 */
#include <stdint.h>

#include "cuda_api.h"

#define HANDLES_MAX 32768u /* more are not known */

enum handle_kind {
        HANDLE_UNKNOWN,
        HANDLE_FUNCTION,
        HANDLE_KERNEL,
};

#define HANDLE_PARAMETERS_UNKNOWN UINT32_MAX

struct handle_info {
        enum handle_kind kind;
        uint32_t parameters; /* how many the kernel has; HANDLE_PARAMETERS_UNKNOWN */
};

/* The driver gave out a handle; NULL is ignored. */
void handles_note(const void *handle, enum handle_kind kind);

struct handle_info handles_find(const void *handle);

/*
 * How many parameters the kernel was found to have. A hint that spares a question:
 * when the handle is given out anew meanwhile it may be the old kernel's.
 */
void handles_set_parameters(const void *handle, enum handle_kind kind, uint32_t parameters);
