/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The programs of a blob the daemon sent: PTX fragments with tokens (agent_abi.h). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent_abi.h"
#include "text.h"

struct program {
        uint32_t where; /* AGENT_PROGRAM_ENTRY ... */
        char name[64];
        char *text; /* tokens still in it */
};

struct programs {
        struct agent_map maps[AGENT_MAP_MAX];
        struct program at[AGENT_PROGRAMS_MAX];
        size_t count;
};

#define PROGRAMS_BYTES_MAX (16u << 20)

/* All bytes of a blob, malloc'd. NULL: it is not that large or too large, or no memory. */
void *programs_read(int fd, uint64_t size);

/* Check a blob and take the programs out of it. 0; -EINVAL a broken blob; -ENOMEM. */
int programs_parse(const void *blob, size_t size, struct programs *ret_programs);
void programs_done(struct programs *p);

/*
 * A fragment with map addresses (0: no such map) in place of @M0@..@M7@.
 * malloc'd. 0; -EINVAL the text names a map there is none of, or an unknown
 * token; -ENOMEM.
 */
int fragment_bind(const char *text, const uint64_t addresses[AGENT_MAP_MAX], char **ret_text);

/* What a 32-bit value comes from: `opcode register, source;` */
struct fragment_load {
        const char *opcode;
        const char *source;
};

#define FRAGMENT_LOAD_ZERO ((struct fragment_load){"mov.u32", "0"})

/* What differs between the places a fragment is put in. */
struct fragment_values {
        const char *label;            /* @U@ */
        const char *kernel;           /* @K@: a literal or a register */
        struct fragment_load context; /* @C0@, @C1@ */
        struct fragment_load queue;   /* @Q0@, @Q1@ */
        const char *address;          /* @A@; NULL: where no memory is accessed */
        const char *access;           /* @S@; likewise */
        /*
         * Register that holds the lanes which came to the place together: taken where
         * the fragment asks for the active lanes, since a program before it may have
         * sent them different ways. NULL: there is none before it, it asks itself.
         */
        const char *lanes;
        bool loosen; /* @O@ is nothing, and not the begin of a comment */
};

/* Append a bound fragment with these filled in. */
void fragment_expand(struct text *out, const char *text, const struct fragment_values *values);
