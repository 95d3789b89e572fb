/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory for whole images. */
#include <stddef.h>

/*
 * Uninitialised memory for an image of `bytes`, to be given to free(); NULL when
 * there is none. Large ones ask for huge pages: an image is written and read once
 * or twice from end to end, so that a fault for each 4 KiB would be a good part of
 * all its cost. Any thread.
 */
void *image_alloc(size_t bytes);
