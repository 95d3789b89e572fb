/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Diverts exported functions of a library that is already loaded, by a jump in
 * their code, so that callers that took the address long ago are diverted too.
 *
 * Byte 0 of a function is never written: a uprobe's int3 may be there, or come
 * and go later. The jump replaces whole instructions from the second one on, so
 * the first one (a push, an endbr64 or a nop; anything else is refused) has run
 * when the hook is reached, and is undone there:
 *
 *     function:  push rbp            slot:  original:  push rbp
 *                jmp  slot.entry                       (displaced instructions)
 *                ...                                   jmp function + n
 *                                           entry:     pop rbp
 *                                                      jmp replacement
 *
 * Instructions are taken from the library's file rather than from memory, for
 * the same reason. Everything that is not understood leaves the function alone.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOOK_MAX         96
#define HOOK_SLOT_BYTES  256
#define HOOK_PATCH_BYTES 5

struct hook {
        const char *name;
        void *target;        /* the function */
        void *replacement;   /* what is to run instead, same signature */
        void **original;     /* receives the way to the original; set before the function changes */
        const char *refusal; /* set by hooks_install(): NULL hooked, else a constant phrase */
};

/* An element of an array of hooks; way: the pointer to the original. */
#define HOOK(symbol, function, way)                                                                \
        {                                                                                          \
                .name = symbol, .replacement = function, .original = (void **)&(way)               \
        }

/* Two names may be one function: the first of them is hooked, and that will do. */
static inline bool hook_is_alias(const struct hook *hooks, size_t i)
{
        for (size_t k = 0; k < i; k++)
                if (hooks[k].target == hooks[i].target && !hooks[k].refusal)
                        return true;
        return false;
}

/* What is to be written where, computed from bytes alone. */
struct hook_plan {
        size_t first_bytes;     /* length of the first instruction(s), left in place */
        size_t displaced_bytes; /* whole instructions under the jump */
        size_t entry_offset;    /* of the slot's second part */
        uint8_t slot[HOOK_SLOT_BYTES];
        uint8_t expected[HOOK_PATCH_BYTES]; /* at target + first_bytes, before */
        uint8_t patch[HOOK_PATCH_BYTES];    /* and after */
};

/*
 * Plan a hook for the function whose original bytes are code[0..size), loaded at
 * `target`, with a slot at address `slot`. extent is the function's size if
 * known, else 0. Pure: reads nothing but its arguments. x86_open() must have
 * succeeded. NULL when the plan is complete, else a constant phrase.
 */
const char *hook_plan(const uint8_t *code, size_t size, size_t extent, uintptr_t target,
                      uintptr_t slot, uintptr_t replacement, struct hook_plan *ret_plan);

/*
 * Install hooks, at most HOOK_MAX, all in one library. Hooks with a NULL target
 * are skipped with a refusal. The number installed; -errno when nothing could be
 * tried at all, *ret_reason (may be NULL) then says why. Hooks cannot be taken
 * away again. Not thread-safe against itself. No thread should be inside one of
 * the functions: see hook_write.c.
 */
int hooks_install(struct hook *hooks, size_t count, const char **ret_reason);

/*
 * The same up to the last step, in a process whose threads run anything: nothing is
 * written over code; planned() is told what is to be written, for each hook that could
 * be planned.
 */
int hooks_prepare(struct hook *hooks, size_t count,
                  void (*planned)(const struct hook *h, const struct hook_plan *plan),
                  const char **ret_reason);

/*
 * Write a jump over code that other threads may run at any other moment, never
 * touching a byte outside the patch. expected holds the bytes that must be
 * there. NULL on success, else a constant phrase and nothing is changed.
 */
const char *hook_write(uint8_t *at, const uint8_t expected[HOOK_PATCH_BYTES],
                       const uint8_t patch[HOOK_PATCH_BYTES]);

/*
 * Put a function's original first byte back in this process's memory, if a
 * uprobe's breakpoint is there. The uprobe stays registered: other processes
 * meet it as before, and so does this one if the kernel puts it back. Best
 * effort: where in doubt the breakpoint stays. Returns whether none is there now.
 */
bool hook_remove_breakpoint(uint8_t *function);
