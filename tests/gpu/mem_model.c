/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stddef.h>

#include "bpf/device_loops.h"
#include "device/device_abi.h"
#include "mem_model.h"

#define WARP 32

/* An instruction of a kernel, at one time: who executes it, and with which address. */
struct instruction {
        uint32_t kind, space, size;
        bool (*runs)(const struct model_run *r, uint32_t i, uint32_t step);
        uint64_t (*address)(const struct model_run *r, uint32_t i, uint32_t step);
        uint32_t step;
};

static uint64_t in_table(uint32_t kind)
{
        switch (kind) {
        case GPUOBS_ACCESS_LOAD:
                return MEM_TABLE_LOAD;
        case GPUOBS_ACCESS_ATOMIC:
                return MEM_TABLE_ATOMIC;
        default:
                return 1;
        }
}

/* Different pieces of 2^shift bytes. */
static uint32_t pieces(const uint64_t *address, uint32_t lanes, unsigned shift)
{
        uint32_t n = 0;

        for (uint32_t a = 0; a < lanes; a++) {
                bool seen = false;

                for (uint32_t b = 0; b < a; b++)
                        seen |= address[b] >> shift == address[a] >> shift;
                n += !seen;
        }
        return n;
}

static void tell_warp(const struct model_run *r, const struct instruction *in, uint32_t first,
                      struct mem_counts *c)
{
        uint64_t address[WARP];
        uint32_t lanes = 0;

        for (uint32_t i = first; i < first + WARP; i++)
                if (in->runs(r, i, in->step))
                        address[lanes++] = in->address(r, i, in->step);
        c->requests += lanes != 0;
        c->lanes += lanes;
        c->accesses += lanes;
        c->bytes += (uint64_t)lanes * in->size;
        c->sectors += pieces(address, lanes, 5);
        c->lines += pieces(address, lanes, 7);
        for (uint32_t k = 0; k < lanes; k++) {
                c->sum += address[k];
                c->mix += mem_mix(address[k]);
                c->odd += address[k] >> 2 & 1;
        }
        c->odd_sum = c->odd;
        c->rounds += (uint64_t)lanes * loop_go_round(in->kind + in->size);
        c->found += lanes * in_table(in->kind);
        c->digits +=
                (uint64_t)lanes * loop_weigh_digits(mem_digits(in->kind, in->size), MEM_DIGITS);
}

static void tell(const struct model_run *r, const struct instruction *in,
                 struct mem_counts counts[MEM_ENTRIES])
{
        for (uint32_t first = 0; first < r->blocks * MODEL_THREADS; first += WARP)
                tell_warp(r, in, first, &counts[MEM_INDEX(in->kind, in->space)]);
}

#define LOAD    GPUOBS_ACCESS_LOAD
#define STORE   GPUOBS_ACCESS_STORE
#define ATOMIC  GPUOBS_ACCESS_ATOMIC
#define GLOBAL  GPUOBS_SPACE_GLOBAL
#define GENERIC GPUOBS_SPACE_GENERIC
#define SHARED  GPUOBS_SPACE_SHARED
#define LOCAL   GPUOBS_SPACE_LOCAL

#define TELL(...) tell(r, &(struct instruction){__VA_ARGS__}, counts)
#define ADDRESS(name, expression)                                                                  \
        static uint64_t name(const struct model_run *r, uint32_t i, uint32_t step)                 \
        {                                                                                          \
                (void)r, (void)i, (void)step;                                                      \
                return (expression);                                                               \
        }
#define RUNS(name, expression)                                                                     \
        static bool name(const struct model_run *r, uint32_t i, uint32_t step)                     \
        {                                                                                          \
                (void)r, (void)i, (void)step;                                                      \
                return (expression);                                                               \
        }
#define KERNEL(name)                                                                               \
        static void name(const struct model_run *r, struct mem_counts counts[MEM_ENTRIES])

RUNS(inside, i < r->n)
ADDRESS(out_word, r->out + 4ULL * i)
ADDRESS(in_word, r->in + 4ULL * i)
ADDRESS(second_word, r->in + 4ULL * (i + r->n))

KERNEL(vector_add)
{
        TELL(LOAD, GLOBAL, 4, inside, in_word, 0);
        TELL(LOAD, GLOBAL, 4, inside, second_word, 0);
        TELL(STORE, GLOBAL, 4, inside, out_word, 0);
}

ADDRESS(strided_word, r->in + 4ULL * (i * 32 % r->n))

KERNEL(strided)
{
        TELL(LOAD, GLOBAL, 4, inside, strided_word, 0);
        TELL(STORE, GLOBAL, 4, inside, out_word, 0);
}

ADDRESS(gathered_word, r->in + 4ULL * ((i * 2654435761u >> 7) % r->n))

KERNEL(gather)
{
        TELL(LOAD, GLOBAL, 4, inside, gathered_word, 0);
        TELL(STORE, GLOBAL, 4, inside, out_word, 0);
}

RUNS(inside_wide, i < r->n / 4)
ADDRESS(in_wide, r->in + 16ULL * i)
ADDRESS(out_wide, r->out + 16ULL * i)

KERNEL(wide)
{
        TELL(LOAD, GLOBAL, 16, inside_wide, in_wide, 0);
        TELL(STORE, GLOBAL, 16, inside_wide, out_wide, 0);
}

RUNS(stays, i < r->n && i % 7 != 3)
RUNS(stays_odd, i < r->n && i % 7 != 3 && (i & 1))
RUNS(goes_round, i < r->n && i % 7 != 3 && !(i & 1) && step < i % 4)
ADDRESS(round_word, r->in + 4ULL * (i + step * r->n / 4))

KERNEL(divergent)
{
        TELL(LOAD, GLOBAL, 4, stays_odd, in_word, 0);
        for (uint32_t k = 0; k < 3; k++)
                TELL(LOAD, GLOBAL, 4, goes_round, round_word, k);
        TELL(STORE, GLOBAL, 4, stays, out_word, 0);
}

RUNS(still_there, i < r->n && i % 8 >= step)

KERNEL(leaves)
{
        TELL(LOAD, GLOBAL, 4, inside, in_word, 0);
        for (uint32_t k = 0; k < 8; k++)
                TELL(STORE, GLOBAL, 4, still_there, out_word, k);
}

RUNS(always, true)
RUNS(below_step, i % MODEL_THREADS < step)
RUNS(first_thread, i % MODEL_THREADS == 0)
ADDRESS(in_round, r->in + 4ULL * (i % r->n))
ADDRESS(tile_word, 4ULL * (i % MODEL_THREADS))
ADDRESS(tile_step, 4ULL * (i % MODEL_THREADS + step))
ADDRESS(out_block, r->out + 4ULL * (i / MODEL_THREADS))

KERNEL(reduce)
{
        TELL(LOAD, GLOBAL, 4, always, in_round, 0);
        TELL(STORE, SHARED, 4, always, tile_word, 0);
        for (uint32_t k = 128; k; k /= 2) {
                TELL(LOAD, SHARED, 4, below_step, tile_word, k);
                TELL(LOAD, SHARED, 4, below_step, tile_step, k);
                TELL(STORE, SHARED, 4, below_step, tile_word, k);
        }
        TELL(LOAD, SHARED, 4, first_thread, tile_word, 0);
        TELL(STORE, GLOBAL, 4, first_thread, out_block, 0);
}

ADDRESS(counter, r->out + 4ULL * (i % 64))
ADDRESS(wide_counter, r->out + 512 + 8ULL * (i % 32))

KERNEL(atomics)
{
        TELL(LOAD, GLOBAL, 4, inside, in_word, 0);
        TELL(ATOMIC, GLOBAL, 4, inside, counter, 0);
        TELL(ATOMIC, GLOBAL, 8, inside, wide_counter, 0);
}

ADDRESS(next_word, r->in + 4ULL * (i + 1))

KERNEL(generic)
{
        TELL(LOAD, GENERIC, 4, inside, next_word, 0);
        TELL(STORE, GENERIC, 4, inside, out_word, 0);
}

ADDRESS(own_word, 4ULL * ((step + i) % 16))
ADDRESS(own_chosen, 4ULL * (r->in_words[i] % 16))
ADDRESS(own_fifth, 4ULL * (i % 5))

KERNEL(local)
{
        TELL(LOAD, GLOBAL, 4, inside, in_word, 0);
        for (uint32_t k = 0; k < 16; k++)
                TELL(STORE, LOCAL, 4, inside, own_word, k);
        TELL(LOAD, LOCAL, 4, inside, own_chosen, 0);
        TELL(LOAD, LOCAL, 4, inside, own_fifth, 0);
        TELL(STORE, GLOBAL, 4, inside, out_word, 0);
}

#define NAMED(name)                                                                                \
        {                                                                                          \
#name, name                                                                        \
        }

const struct model_kernel model_kernels[] = {
        NAMED(vector_add), NAMED(strided), NAMED(gather),  NAMED(wide),    NAMED(divergent),
        NAMED(leaves),     NAMED(reduce),  NAMED(atomics), NAMED(generic), NAMED(local),
};
const unsigned model_kernel_count = sizeof(model_kernels) / sizeof(model_kernels[0]);
