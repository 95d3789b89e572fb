/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * eBPF instructions to a PTX fragment. Pure: no kernel, no files. The program
 * is expected to have passed the kernel verifier; one that did not is refused
 * or compiled to something meaningless, but does no harm here.
 *
 * Passes: code.c puts functions in place of their calls; flow.c follows every path
 * and learns what each register and stack slot holds (a number, the context, the
 * stack, a map, an element of a map); ptx.c writes the instructions that can be
 * reached; cost.c adds up what they cost at most.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>

#include "device/program.h"
#include "device/text.h"

#define COMPILE_MAX_INSNS 4096

struct messages;

struct compile_job {
        /* In ld_imm64 of a map (src_reg BPF_PSEUDO_MAP_FD) imm is the index into maps. */
        const struct bpf_insn *insns;
        size_t count;
        const struct device_map_info *maps;
        size_t map_count;
        enum device_where where;
        enum device_scope scope;
        struct messages *messages; /* receives the formats that are printed; NULL: none may be */
        uint8_t print_map;         /* the ring they are printed to */
        bool alone;        /* no other thread runs the program meanwhile: what it does is no race */
        uint64_t verified; /* instructions the kernel's verifier walked; 0 not known */
        const struct device_cost *budget; /* refuse what costs more; NULL: anything goes */
        /* Source position of an instruction for comments, NULL where it is not known. */
        const char *(*line)(void *data, size_t insn);
        /*
         * The most bytes of its stack that a function of the program uses, 0 not known; it is
         * asked at most once, where that matters. NULL: not known.
         */
        unsigned (*stack_depth)(void *data);
        void *data; /* of both */
};

/* Why a program was refused: the instruction and a phrase for people. */
struct refusal {
        size_t insn;
        char reason[256];
};

/*
 * Append the fragment to ret_ptx and say what it costs at most; without a budget the
 * cost of a program with loops that `verified` is not known for is all zero. 0; -ENOTSUP
 * refused, ret_refusal says why; -ENOMEM.
 */
int device_compile(const struct compile_job *job, struct refusal *ret_refusal, struct text *ret_ptx,
                   struct device_cost *ret_cost);

/* Fill in a refusal; returns -ENOTSUP. */
int refuse(struct refusal *r, size_t insn, const char *format, ...) _printf_(3, 4);
