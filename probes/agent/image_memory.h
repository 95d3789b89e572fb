/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory for whole images. One is written and read once or twice from end to end, so
 * that faults for its pages are a good part of all its cost, and images are loaded one
 * after the other. So the memory of the last ones, two of up to 32 MiB, is kept for the
 * next. When memory is short, the kernel takes all but 4 MiB of each.
 */
#include <stddef.h>

/*
 * Uninitialised memory for an image of `bytes`, aligned as malloc() does, to be given
 * to image_memory_free(); NULL when there is none. Any thread.
 */
void *image_memory_alloc(size_t bytes);

/* NULL is fine. Any thread. */
void image_memory_free(void *image);
