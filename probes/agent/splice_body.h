/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside of the splicer: a probe's instructions on their way from kernel to guest. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arch.h"
#include "splice_probe.h"

#define BODY_EXTRA_INSTRS 10 /* at most so many are added to a sequence */

struct body {
        const struct arch *arch;
        struct instr *at; /* owned */
        bool *keep;       /* owned; false: not in the sequences */
        bool *takes_id;   /* owned; true: its immediate is the kernel id */
        uint32_t count;
        uint16_t *open;  /* owned; barriers that wait for a lane which is there, by bit */
        uint32_t breaks; /* so many BREAKs are added in front of EXITs */
};

/*
 * Copy the code of the probe's kernel without the endless loop and padding behind
 * it. 0; -ENOMEM; -EINVAL too long, too short or no instructions.
 */
int body_load(const struct arch *a, const uint8_t *code, size_t bytes, struct body *b,
              const char **ret_reason);
void body_done(struct body *b);

/*
 * Check that every instruction is known and movable, and make the kernel id an
 * immediate. NULL, or why not.
 */
const char *body_prepare(struct body *b);

/* Whether nothing can run over the end. */
bool body_ends(const struct body *b);

/*
 * Whether it asks what lanes have in common after they may have gone different ways, so that
 * they have to meet where the assembler says.
 */
bool body_meets(const struct body *b);

/*
 * Whether it can be an entry sequence: it does not need the answers of lanes at places where
 * some may have left it already.
 */
bool body_can_enter(const struct body *b);

/* Whether lanes that meet go on with the next instruction: then they can as well not meet. */
bool body_meets_plainly(const struct body *b);

/*
 * Write the sequences. new_index (count + 1 numbers) receives where each
 * instruction went. 0; -EINVAL they cannot be arranged.
 */
int body_emit_entry(struct body *b, struct probe_sequence *seq, uint32_t *new_index);
int body_emit_exit(const struct body *b, struct probe_sequence *seq, uint32_t *new_index);
