/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory of handles. A destroyed object goes to a list for new ones of its kind
 * and is never given back, so that a stale handle points to memory that has a
 * magic number to look at.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct header {
        struct header *next;
        size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct header *unused[SIM_MAGIC_END - SIM_MAGIC_CONTEXT];

void *sim_object_new(enum sim_magic magic, size_t bytes)
{
        struct header **list = &unused[magic - SIM_MAGIC_CONTEXT];
        struct header *header;

        pthread_mutex_lock(&lock);
        header = *list;
        if (header)
                *list = header->next;
        pthread_mutex_unlock(&lock);
        if (!header)
                header = malloc(sizeof(*header) + bytes);
        if (!header)
                return NULL;
        memset(header + 1, 0, bytes);
        header->bytes = bytes;
        memcpy(header + 1, &magic, sizeof(uint32_t));
        return header + 1;
}

void *sim_object_free(void *object, enum sim_magic magic)
{
        struct header *header;

        if (!object)
                return NULL;
        header = (struct header *)object - 1;
        memset(object, 0, sizeof(uint32_t));
        pthread_mutex_lock(&lock);
        header->next = unused[magic - SIM_MAGIC_CONTEXT];
        unused[magic - SIM_MAGIC_CONTEXT] = header;
        pthread_mutex_unlock(&lock);
        return NULL;
}
