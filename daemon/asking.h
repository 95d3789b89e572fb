/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The thread that asks the driver for the event loop (driver/driver_thread.h): clocks, context
 * switches and free memory of the GPUs. Whoever has opened something for it closes it there.
 */
struct gpuobsd;

/* Sets d->driver and d->gpu_memory. 0 or -errno. */
int asking_open(struct gpuobsd *d);
/* Nothing more is taken in, but by who waits for it. */
void asking_close(struct gpuobsd *d);
/* After the loop and the threads of policies have ended: the thread runs what was given and ends.
 */
void asking_free(struct gpuobsd *d);
