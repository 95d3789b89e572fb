/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Numbers at places of foreign structs, for fakes of the driver: no alignment, the host's order. */
#include <stdint.h>
#include <string.h>

static inline uint32_t get32(const void *p, size_t at)
{
        uint32_t v;

        memcpy(&v, (const char *)p + at, 4);
        return v;
}

static inline uint64_t get64(const void *p, size_t at)
{
        uint64_t v;

        memcpy(&v, (const char *)p + at, 8);
        return v;
}

static inline void put16(void *p, size_t at, uint16_t v)
{
        memcpy((char *)p + at, &v, 2);
}

static inline void put32(void *p, size_t at, uint32_t v)
{
        memcpy((char *)p + at, &v, 4);
}

static inline void put64(void *p, size_t at, uint64_t v)
{
        memcpy((char *)p + at, &v, 8);
}
