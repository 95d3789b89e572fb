/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A hash table of words with open addressing, never emptied:
 *
 *     bits 0 .. 47    the handle, an address in user space
 *     bit 48          set: a CUkernel
 *     bits 49 .. 63   parameters + 1; 0: not known
 */
#include "handles.h"

#define HANDLE_MASK     0x0000ffffffffffffull
#define KERNEL_BIT      0x0001000000000000ull
#define PARAMETER_SHIFT 49
#define PARAMETER_LIMIT 0x7fffu
#define PROBES_MAX      32u /* places looked at for one handle */

static uint64_t table[HANDLES_MAX];

static uint32_t place_of(uint64_t handle)
{
        return (uint32_t)(handle * 0x9e3779b97f4a7c15ull >> 49) % HANDLES_MAX;
}

/* Where the handle is, or can be put; NULL when neither. *ret_word: what is there. */
static uint64_t *find_place(uint64_t handle, uint64_t *ret_word)
{
        for (uint32_t i = 0; i < PROBES_MAX; i++) {
                uint64_t *at = &table[(place_of(handle) + i) % HANDLES_MAX];

                *ret_word = __atomic_load_n(at, __ATOMIC_RELAXED);
                if (!*ret_word || (*ret_word & HANDLE_MASK) == handle)
                        return at;
        }
        return NULL;
}

void handles_note(const void *handle, enum handle_kind kind)
{
        uint64_t key = (uintptr_t)handle, word, *at;

        if (!key || key > HANDLE_MASK)
                return;
        do {
                at = find_place(key, &word);
        } while (at && !__atomic_compare_exchange_n(at, &word,
                                                    key | (kind == HANDLE_KERNEL ? KERNEL_BIT : 0),
                                                    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

struct handle_info handles_find(const void *handle)
{
        uint64_t key = (uintptr_t)handle, word;
        struct handle_info info = {HANDLE_UNKNOWN, HANDLE_PARAMETERS_UNKNOWN};

        if (!key || key > HANDLE_MASK || !find_place(key, &word) || !word)
                return info;
        info.kind = word & KERNEL_BIT ? HANDLE_KERNEL : HANDLE_FUNCTION;
        if (word >> PARAMETER_SHIFT)
                info.parameters = (uint32_t)(word >> PARAMETER_SHIFT) - 1;
        return info;
}

void handles_set_parameters(const void *handle, enum handle_kind kind, uint32_t parameters)
{
        uint64_t key = (uintptr_t)handle, word, *at;
        uint64_t plain = key | (kind == HANDLE_KERNEL ? KERNEL_BIT : 0);

        if (!key || key > HANDLE_MASK || parameters >= PARAMETER_LIMIT)
                return;
        at = find_place(key, &word);
        if (at && word == plain)
                __atomic_compare_exchange_n(at, &word,
                                            plain | (uint64_t)(parameters + 1) << PARAMETER_SHIFT,
                                            false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
