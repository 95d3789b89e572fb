/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The messages of a device object: the formats its programs call bpf_printk() with.
 * On the GPU a message is its number and its arguments; the text is made here, of
 * both, when it is read.
 *
 * A format may hold conversions of numbers: % flags width .precision, then l or ll,
 * then d i u x X o c, and %%. Strings and addresses are not there to be read any more.
 */
#include <stddef.h>
#include <stdint.h>

#define MESSAGES_MAX      64
#define MESSAGE_BYTES_MAX 256

struct messages;

struct messages *messages_new(void);
struct messages *messages_free(struct messages *m);

/*
 * Add a format of `bytes` bytes that ends with a NUL, or find it again: its number and
 * how many arguments it takes. 0; -EINVAL with a phrase in reason; -ENOMEM.
 */
int messages_add(struct messages *m, const char *format, size_t bytes, char *reason,
                 size_t reason_size, unsigned *ret_number, unsigned *ret_arguments);

/* The same for one that is there. */
unsigned messages_find(const struct messages *m, const char *format, size_t bytes,
                       unsigned *ret_arguments);

size_t messages_count(const struct messages *m);

/*
 * The text of message `number` with these arguments (8 bytes each, aligned), cut to what fits;
 * control characters become spaces, and a line end at its end is left out. Number and arguments may
 * be anything: 0; -EINVAL there is no such message, or it takes another number of arguments.
 */
int messages_print(const struct messages *m, unsigned number, const void *arguments, size_t count,
                   char *ret_text, size_t size);
