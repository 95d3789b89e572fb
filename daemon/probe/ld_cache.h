/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reading /etc/ld.so.cache, where the dynamic linker notes what it knows of. */
#include <stddef.h>

/*
 * Call found() with the path of each library whose name begins with prefix. bytes: the
 * contents of the file, of any quality. 0, or -EBADMSG when it is not a cache
 * (the calls made until then stand).
 */
int ld_cache_search(const void *bytes, size_t size, const char *prefix,
                    void (*found)(void *data, const char *path), void *data);
