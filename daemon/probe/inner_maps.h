/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Elements of maps of maps. One that is changed holds for the next program that looks,
 * but the kernel keeps who changes it until no program can run that has seen what was
 * there before: a grace period of RCU, 5 to 40 ms, in which the main thread would do
 * nothing for anybody. So threads of their own wait for it, a few at a time; beyond
 * these the caller does.
 */
#include <stdint.h>

struct inner_maps;

int inner_maps_new(struct inner_maps **ret_maps);
/* Waits for the grace periods that are not over. */
struct inner_maps *inner_maps_free(struct inner_maps *m);

/* Put a map into a map of maps with 4-byte keys. The descriptors are not kept. 0 or -errno. */
int inner_maps_set(struct inner_maps *m, int outer_fd, uint32_t key, int inner_fd);
/* 0; -ENOENT there is none; other -errno. */
int inner_maps_remove(struct inner_maps *m, int outer_fd, uint32_t key);

/* Return when no program runs any more that began before the last change of this key. */
void inner_maps_settle(struct inner_maps *m, uint32_t key);
