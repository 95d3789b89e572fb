/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Device programs in one process: what its agent was asked for, and what it answered.
 * An agent may answer anything, or not at all: what it says is bounded and believed of
 * its own process only, and requests end after some seconds. Event loop's thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/backend.h"

struct agent_attached;
struct agent_detached;
struct agent_map_done;
struct device_map_info;
struct device_object;
struct observed;

struct attach_what {
        uint64_t id;
        const struct device_object *object;
        int blob_fd;
        uint64_t blob_bytes;
        const char *kernels; /* glob; "": all */
};

/*
 * Ask the agent to put programs in; nothing is done when they are there. 0 or -errno:
 * then the attachment says why.
 */
int attachment_begin(struct observed *o, const struct attach_what *what);

/* Ask it to take them off. 0; -ENOENT they are not there. */
int attachment_end(struct observed *o, uint64_t id);

/*
 * What the agent answers. False: it was never asked. An answer that comes too late, or is
 * given twice, is true and does nothing.
 */
bool attachment_answered(struct observed *o, const struct agent_attached *m);
bool attachment_left(struct observed *o, const struct agent_detached *m);
bool attachment_map_done(struct observed *o, const struct agent_map_done *m);

/* Requests that are not answered in time fail. */
void attachments_tick(struct observed *o, uint64_t now_ns);

/* The agent is gone: all requests fail, everything is forgotten. */
void attachments_done(struct observed *o);

bool attachment_is_active(const struct observed *o, uint64_t id);

/* Fills in all but the process. False: the programs were never meant for this process. */
bool attachment_describe(const struct observed *o, uint64_t id, struct api_attachment *ret_row);

struct attach_map {
        uint64_t id;
        uint32_t number; /* in its object */
        const struct device_map_info *info;
};

/*
 * Ask the agent for the contents of a map, or to overwrite some of it. done() is called
 * exactly once, later, unless this fails: -EAGAIN it does not read, -EBUSY too many
 * requests wait, other -errno.
 */
int attachment_read(struct observed *o, const struct attach_map *map, api_map_done *done,
                    void *done_data);
int attachment_write(struct observed *o, const struct attach_map *map, uint64_t offset,
                     const void *bytes, size_t size, api_map_done *done, void *done_data);
