/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/ld_cache.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/*
 * The format of glibc 2.2 and later (sysdeps/generic/dl-cache.h). An older one
 * may come first in the file, with the newer behind it; distributions have
 * written the newer alone since glibc 2.32.
 */
#define CACHE_MAGIC "glibc-ld.so.cache1.1"

struct cache_header {
        char magic[20];
        uint32_t count;
        uint32_t strings_bytes;
        uint32_t unused[5];
};

struct cache_entry {
        uint32_t flags;
        uint32_t name; /* offsets from the header */
        uint32_t path;
        uint32_t os_version;
        uint64_t hwcap;
};

/* A string inside the cache, NULL when it does not end in it. */
static const char *string_at(const char *bytes, size_t size, uint32_t offset)
{
        if (offset >= size || !memchr(bytes + offset, '\0', size - offset))
                return NULL;
        return bytes + offset;
}

int ld_cache_search(const void *bytes, size_t size, const char *prefix,
                    void (*found)(void *data, const char *path), void *data)
{
        const char *start = memmem(bytes, size, CACHE_MAGIC, strlen(CACHE_MAGIC));
        struct cache_header header;
        struct cache_entry entry;
        const char *name, *path;
        uint32_t i;

        if (!start)
                return -EBADMSG;
        size -= (size_t)(start - (const char *)bytes);
        if (size < sizeof(header))
                return -EBADMSG;
        memcpy(&header, start, sizeof(header));
        if (header.count > (size - sizeof(header)) / sizeof(entry))
                return -EBADMSG;

        for (i = 0; i < header.count; i++) {
                memcpy(&entry, start + sizeof(header) + i * sizeof(entry), sizeof(entry));
                name = string_at(start, size, entry.name);
                path = string_at(start, size, entry.path);
                if (!name || !path)
                        return -EBADMSG;
                if (strncmp(name, prefix, strlen(prefix)) == 0)
                        found(data, path);
        }
        return 0;
}
