/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small helpers used everywhere: ownership by cleanup attributes, array sizes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define _cleanup_(f)   __attribute__((cleanup(f)))
#define _printf_(a, b) __attribute__((format(printf, a, b)))

/* Give a pointer or a descriptor away: the variable no longer owns it. */
#define TAKE_PTR(p)                                                                                \
        ({                                                                                         \
                __auto_type take_ptr_ = (p);                                                       \
                (p) = NULL;                                                                        \
                take_ptr_;                                                                         \
        })
#define TAKE_FD(fd)                                                                                \
        ({                                                                                         \
                int take_fd_ = (fd);                                                               \
                (fd) = -1;                                                                         \
                take_fd_;                                                                          \
        })

static inline void freep(void *p)
{
        free(*(void **)p);
}

static inline void closep(int *fd)
{
        if (*fd >= 0)
                close(*fd);
}

static inline void fclosep(FILE **f)
{
        if (*f)
                fclose(*f);
}

#define _cleanup_free_   _cleanup_(freep)
#define _cleanup_close_  _cleanup_(closep)
#define _cleanup_fclose_ _cleanup_(fclosep)

/* Define xp() for a type's free function, for use with _cleanup_. */
#define DEFINE_CLEANUP(type, func)                                                                 \
        static inline void func##p(type *p)                                                        \
        {                                                                                          \
                if (*p)                                                                            \
                        func(*p);                                                                  \
        }
