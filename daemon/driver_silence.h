/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A driver that hangs as a whole answers none of those who ask it for the daemon. Each does so in
 * a thread of its own (driver/silence.h); here is what people are told of it.
 */
#include <stdbool.h>

#define DRIVER_SILENCE_TEXT 200
#define DRIVER_SILENCE_ADVICE                                                                      \
        "See dmesg for lines of NVRM. If it stays silent the GPU has to be reset or the machine "  \
        "rebooted; gpuobsd goes on by itself when it answers."

struct gpuobsd;

/* In a sentence, whether it answers, and how often it did not. True: it is silent now. */
bool driver_silence_describe(const struct gpuobsd *d, char ret_text[DRIVER_SILENCE_TEXT]);

/* Once a second: say in the log that it is silent, and that it answers again. */
void driver_silence_second(struct gpuobsd *d);
