/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Takes probes off libraries in a thread of its own. Before Linux 6.6 each probe
 * is a perf event, and taking one off waits for the kernel's readers three times,
 * some tens of milliseconds: many seconds for a library, in which the rings would
 * not be read nor the watchdog be told that all is well.
 */
struct detacher;
struct uprobe_links;

/* NULL: no memory. */
struct detacher *detacher_new(void);

/*
 * Take these probes off soon; links is empty afterwards. Without memory or a
 * thread they are off when it returns. Main thread.
 */
void detacher_take(struct detacher *d, struct uprobe_links *links);

/* Waits until all are off. Accepts NULL, returns NULL. */
struct detacher *detacher_free(struct detacher *d);
