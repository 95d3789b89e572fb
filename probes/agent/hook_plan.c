/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "hook.h"
#include "x86.h"

#define JUMP_BYTES 14 /* jmp [rip+0] and the address behind it */
#define ENTRY_ROOM 32 /* for the second part of the slot */
#define ENTRY_AT   (HOOK_SLOT_BYTES - ENTRY_ROOM)

static size_t put_jump(uint8_t *at, uintptr_t to)
{
        static const uint8_t jump[6] = {0xff, 0x25, 0, 0, 0, 0};

        memcpy(at, jump, sizeof(jump));
        memcpy(at + sizeof(jump), &to, sizeof(to));
        return JUMP_BYTES;
}

static bool fits_32(int64_t distance)
{
        return distance == (int32_t)distance;
}

/* Copy one instruction to another address, keeping what it refers to. */
static const char *relocate(const uint8_t *code, const struct x86_instruction *i, uintptr_t to,
                            uint8_t *out)
{
        int64_t distance;
        int32_t field;

        memcpy(out, code, i->length);
        if (!i->relative)
                return NULL;
        if (i->field_bytes != sizeof(field))
                return "a short branch is under the jump";
        distance = (int64_t)(i->target - (to + i->length));
        if (!fits_32(distance))
                return "an operand is out of reach of the copied instruction";
        field = (int32_t)distance;
        memcpy(out + i->field_offset, &field, sizeof(field));
        return NULL;
}

/* The instructions that stay: only such that the hook can undo. */
static const char *read_first(const uint8_t *code, size_t size, uintptr_t target,
                              struct x86_instruction *ret_first)
{
        if (x86_decode(code, size, target, ret_first) < 0)
                return "the first instruction cannot be decoded";
        if (!ret_first->nop && ret_first->push_register < 0)
                return "the first instruction is neither a push nor a nop";
        return NULL;
}

static size_t put_undo(const struct x86_instruction *first, uint8_t *at)
{
        size_t n = 0;

        if (first->push_register < 0)
                return 0;
        if (first->push_register >= 8)
                at[n++] = 0x41;
        at[n++] = (uint8_t)(0x58 + (first->push_register & 7)); /* pop */
        return n;
}

/* Does anything in the rest of the function jump to where the patch will be? */
static const char *scan_branches(const uint8_t *code, size_t size, size_t extent, uintptr_t target,
                                 const struct hook_plan *p)
{
        uintptr_t low = target + p->first_bytes, high = low + p->displaced_bytes;
        size_t end = extent && extent < size ? extent : size,
               at = p->first_bytes + p->displaced_bytes;
        uintptr_t farthest = 0; /* forward branch seen: the function reaches at least that far */
        struct x86_instruction i;

        while (at < end) {
                if (x86_decode(code + at, size - at, target + at, &i) < 0)
                        return extent ? "the function's code cannot be decoded" : NULL;
                if ((i.flow == X86_BRANCH || i.flow == X86_CALL) && i.target >= low &&
                    i.target < high)
                        return "a branch in the function leads under the jump";
                if (i.flow == X86_BRANCH && i.target > farthest && i.target < target + end)
                        farthest = i.target;
                at += i.length;
                /* Without a known size, the function ends where nothing leads further. */
                if (!extent && target + at > farthest &&
                    (i.flow == X86_ENDS || i.flow == X86_INDIRECT ||
                     (i.flow == X86_BRANCH && !i.conditional)))
                        break;
        }
        return extent > size ? "the function is too long to be checked" : NULL;
}

/* Whole instructions behind the first until the jump has room; copied into the slot. */
static const char *displace(const uint8_t *code, size_t size, uintptr_t target, uintptr_t slot,
                            struct hook_plan *p)
{
        size_t at = p->first_bytes, out = p->first_bytes;
        struct x86_instruction i = {0};
        const char *refusal;

        while (at - p->first_bytes < HOOK_PATCH_BYTES) {
                if (at > p->first_bytes && (i.flow == X86_ENDS || i.flow == X86_INDIRECT ||
                                            (i.flow == X86_BRANCH && !i.conditional)))
                        return "the function is too short";
                if (x86_decode(code + at, size - at, target + at, &i) < 0)
                        return "an instruction under the jump cannot be decoded";
                refusal = relocate(code + at, &i, slot + out, p->slot + out);
                if (refusal)
                        return refusal;
                at += i.length;
                out += i.length;
        }
        p->displaced_bytes = at - p->first_bytes;
        put_jump(p->slot + out, target + at);
        return NULL;
}

const char *hook_plan(const uint8_t *code, size_t size, size_t extent, uintptr_t target,
                      uintptr_t slot, uintptr_t replacement, struct hook_plan *ret_plan)
{
        struct hook_plan p = {.entry_offset = ENTRY_AT};
        struct x86_instruction first;
        const char *refusal;
        int64_t distance;
        int32_t field;

        refusal = read_first(code, size, target, &first);
        if (refusal)
                return refusal;
        p.first_bytes = first.length;
        memset(p.slot, 0xcc, sizeof(p.slot));
        memcpy(p.slot, code, first.length);
        refusal = displace(code, size, target, slot, &p);
        if (refusal)
                return refusal;
        if (extent && p.first_bytes + p.displaced_bytes > extent)
                return "the function is too short";
        refusal = scan_branches(code, size, extent, target, &p);
        if (refusal)
                return refusal;
        put_jump(p.slot + ENTRY_AT + put_undo(&first, p.slot + ENTRY_AT), replacement);
        distance = (int64_t)(slot + ENTRY_AT - (target + p.first_bytes + HOOK_PATCH_BYTES));
        if (!fits_32(distance))
                return "no memory near enough";
        field = (int32_t)distance;
        memcpy(p.expected, code + p.first_bytes, sizeof(p.expected));
        p.patch[0] = 0xe9;
        memcpy(p.patch + 1, &field, sizeof(field));
        *ret_plan = p;
        return NULL;
}
