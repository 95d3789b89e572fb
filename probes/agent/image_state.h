/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which kernels of an image may run from a second copy of it. A copy has module
 * variables, user constants and texture references of its own, and the application
 * knows those of the first only; so a kernel that may reach any of them, itself or in
 * a function that it may call, has to stay. Told from what the image says of itself:
 * every doubt is a refusal.
 */
#include <stdbool.h>
#include <stddef.h>

/* Functions and what each may reach. Opaque; of one image or several together. */
struct image_state;

struct image_state *image_state_new(void);
struct image_state *image_state_free(struct image_state *s);

/*
 * Add a cubin, or PTX text (without its NUL). What it says is copied. 0; -ENOMEM;
 * -EINVAL it is not understood, and no kernel of it may run from a copy. Any bytes
 * may be given. Any thread.
 */
int image_state_add_cubin(struct image_state *s, const void *cubin, size_t size);
int image_state_add_ptx(struct image_state *s, const char *text, size_t size);

/*
 * NULL: a kernel of that name may run from a copy. Else why not, a phrase that s owns.
 * All images have to be added before.
 */
const char *image_state_refusal(struct image_state *s, const char *kernel);

/* ---- for those who add ---- */

/* A function's number, made if need be; names need not end with a NUL. -ENOMEM. */
int image_state_function(struct image_state *s, const char *name, size_t length);
/* It may reach the other. 0 or -ENOMEM. */
int image_state_calls(struct image_state *s, int function, int other);
/* It may reach something that a copy would have anew; the first reason stays. 0 or -ENOMEM. */
int image_state_reaches(struct image_state *s, int function, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* None of the kernels may run from a copy. */
void image_state_refuse_all(struct image_state *s, const char *reason);

/* A variable the compiler makes for text and tables that nothing writes to. */
bool image_state_is_literal(const char *name, size_t length);
/* A function of the driver's that has no state in the module. */
bool image_state_is_builtin(const char *name, size_t length);
