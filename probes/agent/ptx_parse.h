/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds in PTX text the places a probe can go: per .entry where its body starts
 * and each instruction that ends a thread or accesses memory. Knows just enough of the grammar to
 * be sure of that: nesting, declarations, labels, predicates, line directives.
 */
#include <stdbool.h>
#include <stddef.h>

#include "ptx_access.h"
#include "ptx_dialect.h"

/* `ret` or `exit` in a kernel body. */
struct ptx_end {
        size_t start, end; /* of the statement, predicate and semicolon included */
        bool predicated;
        bool negated;                      /* @!p */
        size_t predicate, predicate_bytes; /* the predicate register's name */
        size_t instruction;                /* where the instruction itself starts */
};

/* An instruction of a kernel body that accesses memory. */
struct ptx_place {
        size_t start; /* of the statement, predicate included */
        bool predicated;
        bool negated;
        size_t predicate, predicate_bytes;
        struct ptx_access access;
};

struct ptx_entry {
        size_t name, name_bytes;
        size_t parameter, parameter_bytes; /* name of the first one; 0 bytes: there is none */
        size_t body;                       /* where the entry probe goes: behind the declarations */
        size_t close;                      /* offset of the closing brace */
        bool falls_off;                    /* the closing brace may be reached */
        struct ptx_end *ends;
        size_t end_count;
        struct ptx_place *places;
        size_t place_count;
        size_t other_accesses; /* instructions whose accesses have no place: see ptx_access.h */
};

struct ptx_module {
        struct ptx_entry *entries;
        size_t entry_count;
        bool function_exits;    /* a .func body contains `exit` */
        bool function_accesses; /* a .func body accesses memory */
        bool bits32;            /* .address_size 32 */
        struct ptx_dialect dialect;
};

/* 0; -ENOMEM; -EINVAL with *ret_reason a constant sentence. Frees nothing on success. */
int ptx_parse(const char *text, size_t size, struct ptx_module *ret_module,
              const char **ret_reason);
void ptx_module_done(struct ptx_module *m);
