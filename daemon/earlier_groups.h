/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Channel groups of processes that ran before the daemon: looked for (driver/group_scan.h) in a
 * thread, once a process, when there is a policy; from then on they are like those seen being made.
 */
struct gpuobsd;

/* After policies_open(). 0 or -errno. */
int earlier_groups_open(struct gpuobsd *d);
/* Once a second. */
void earlier_groups_second(struct gpuobsd *d);
void earlier_groups_close(struct gpuobsd *d);
/* After the loop has ended. */
void earlier_groups_free(struct gpuobsd *d);
