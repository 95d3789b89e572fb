/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the daemon says behind WELCOME (agent_abi.h): programs come and go, maps are
 * read and written. A thread of the agent's own waits for it, on a descriptor of its
 * own, and does it with the agent's lock. When the daemon is gone, so are its
 * programs: they are taken off as if it had asked for it.
 */
#include <stdint.h>

#include "wire.h"

/*
 * Deal with the `count` ATTACH messages that come with WELCOME, in the calling thread,
 * which holds the agent's lock and has the device's primary context current; then start
 * the thread. 0 or -errno: then nothing more will be heard of the daemon.
 */
int control_start(struct wire *wire, uint32_t count);

/* Hear nothing more of the daemon: wait for what is being dealt with, for a moment. */
void control_stop(void);

/* In a forked child: the parent's descriptor is not to be kept open. */
void control_forked(void);
