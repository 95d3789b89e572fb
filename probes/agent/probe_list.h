/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The programs that are to be in the kernels of an image, and what became of each
 * at one kernel. The order of the list is the order in which programs run where
 * several are at one place.
 */
#include <fnmatch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent_abi.h"
#include "probe_rules.h"

#define PROBE_LIST_MAX 32

struct probe_code;

struct probe_program {
        uint32_t where;      /* AGENT_PROGRAM_ENTRY ... */
        bool times;          /* tells when kernels start or end: the daemon's own */
        const char *label;   /* how reasons call it: "entry", or the program's name */
        const char *kernels; /* glob of kernel names; NULL: all */
        const char *text;    /* bound fragment (fragment.h), for PTX */
        const struct probe_code
                *code; /* for machine code; NULL: there is none, code_refusal says why */
        const char *code_refusal;
};

struct probe_list {
        const struct probe_program *programs;
        size_t count;                    /* at most PROBE_LIST_MAX */
        const struct probe_rules *rules; /* NULL: none */
        const char *path;                /* of the file that holds the image; NULL or "": none */
};

/* One program at one kernel. */
struct probe_outcome {
        bool wanted;
        bool in;
        const char *refusal; /* why not, or not everywhere: a constant phrase; NULL: nothing */
        uint32_t detail;     /* a number that goes with it (opcode, register count), or 0 */
};

#define PROBE_EXCLUDED "excluded by a rule"

/* Why no program may be at a kernel of this name; NULL: they may. */
static inline const char *probe_exclusion(const struct probe_list *list, const char *kernel)
{
        return probe_rules_exclude(list->rules, list->path ? list->path : "", kernel)
                       ? PROBE_EXCLUDED
                       : NULL;
}

/* Likewise at any kernel of the image. */
static inline const char *probe_image_exclusion(const struct probe_list *list)
{
        return probe_rules_exclude_image(list->rules, list->path ? list->path : "") ? PROBE_EXCLUDED
                                                                                    : NULL;
}

/* Whether the program is meant for a kernel of this name (mangled, as in the image). */
static inline bool probe_wants(const struct probe_program *p, const char *kernel)
{
        return !p->kernels || fnmatch(p->kernels, kernel, 0) == 0;
}
