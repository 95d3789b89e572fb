/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Device programs that came by the API: objects with a name, who they are meant for,
 * and what became of each in the processes that have an agent. An agent is told when it
 * connects, and whenever something changes. On the event loop's thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/backend.h"

struct gpuobsd;
struct masters;
struct observed;
struct programs;

#define PROGRAMS_MAX 64 /* objects loaded at the same time */

struct programs *programs_new(void);
/* No agent may be connected any more. */
struct programs *programs_free(struct programs *p);

/* ---- agents ---- */

/* How many ATTACH messages a process that connects now will be sent. */
uint32_t programs_count_for(const struct gpuobsd *d, const struct observed *o);
/* Send them. */
void programs_welcomed(struct gpuobsd *d, struct observed *o);
/* The setting probe_rules has changed: tell all agents. */
void programs_rules_changed(struct gpuobsd *d);

/* The agent, or the process, is gone: nothing of it will be answered. */
void programs_agent_gone(struct gpuobsd *d, struct observed *o);

/* Of the object with this number; NULL: it is gone. */
struct masters *programs_masters(struct gpuobsd *d, uint64_t id);

/* Several times a second: requests that agents do not answer, maps that are there twice. */
void programs_tick(struct gpuobsd *d);

/* ---- for api/backend.h, which says what they do ---- */

void programs_each(struct gpuobsd *d, int (*row)(void *row_data, const struct api_probe *p),
                   void *row_data);
void programs_attachments(struct gpuobsd *d, uint64_t id,
                          int (*row)(void *row_data, const struct api_attachment *a),
                          void *row_data);
int programs_load(struct gpuobsd *d, const char *name, const void *object, size_t size, char *error,
                  size_t error_size);
int programs_unload(struct gpuobsd *d, const char *name, char *error, size_t error_size);
int programs_attach(struct gpuobsd *d, const char *name, const struct api_target *target,
                    char *error, size_t error_size);
int programs_detach(struct gpuobsd *d, const char *name, const struct api_target *target,
                    char *error, size_t error_size);
int programs_read_map(struct gpuobsd *d, const struct api_map_request *request, api_map_done *done,
                      void *done_data, uint32_t *ret_pid, char *error, size_t error_size);
int programs_write_map(struct gpuobsd *d, const struct api_map_request *request, uint64_t offset,
                       const void *bytes, size_t size, api_map_done *done, void *done_data,
                       char *error, size_t error_size);
