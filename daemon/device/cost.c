/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/cost.h"

#define NONE UINT32_MAX

struct coster {
        const struct code *code;
        const struct flow *flow;
        uint64_t verified;
        struct device_cost *own;  /* of each instruction; of CODE_ENTER with its function */
        struct device_cost *best; /* from each component on to the end, by its root */
        uint64_t *rounds;         /* how often an instruction can run per call of its function */
        uint32_t *order, *low, *component; /* Tarjan's numbers; component is the root, or NONE */
        uint32_t *stack, *path;            /* his stack, and the way to the instruction visited */
        uint32_t *distance, *queue;        /* of the search for the way back */
        size_t stacked, counter;
        size_t loop; /* an instruction of a loop without a bound, or the count of all */
};

/* What may run next within the same function: calls are passed in one step. */
static unsigned successors(const struct coster *c, uint32_t i, uint32_t ret[2])
{
        const struct code_insn *insns = c->code->insns;
        unsigned n = 0, count;
        size_t next[2];

        if (insns[i].kind == CODE_ENTER) {
                ret[0] = insns[i].target;
                return flow_is_reached(c->flow, ret[0]) ? 1 : 0;
        }
        count = flow_next(c->flow, i, next);
        for (unsigned k = 0; k < count; k++)
                if (insns[next[k]].caller == insns[i].caller)
                        ret[n++] = (uint32_t)next[k];
        return n;
}

/* Rounds */

/* Likewise, but a call leads to what follows it: the kernel counts it as one instruction. */
static unsigned followers(const struct coster *c, uint32_t i, uint32_t ret[2])
{
        unsigned n = successors(c, i, ret);

        return n && c->code->insns[i].kind == CODE_ENTER ? successors(c, ret[0], ret) : n;
}

/* Instructions of the program on the shortest way from i back to i; 0 when there is none. */
static uint32_t way_back(struct coster *c, uint32_t i)
{
        size_t head = 0, tail = 0;
        uint32_t next[2];

        memset(c->distance, 0, c->code->count * sizeof(*c->distance));
        c->queue[tail++] = i;
        while (head < tail) {
                uint32_t at = c->queue[head++];
                unsigned n = followers(c, at, next);

                for (unsigned k = 0; k < n; k++) {
                        if (next[k] == i)
                                return c->distance[at] + 1;
                        if (c->component[next[k]] != c->component[i] || c->distance[next[k]])
                                continue;
                        c->distance[next[k]] = c->distance[at] + 1;
                        c->queue[tail++] = next[k];
                }
        }
        return 0;
}

/* How often an instruction can run in one call of its function. */
static uint64_t count_rounds(struct coster *c, uint32_t i)
{
        uint32_t length = c->code->insns[i].kind == CODE_RETURN ? 0 : way_back(c, i);

        if (!length)
                return 1;
        if (!c->verified)
                c->loop = i;
        return c->verified / length + 1;
}

/* Sums that stay at the largest number instead of starting over. */

static uint64_t plus(uint64_t a, uint64_t b)
{
        return a + b < a ? UINT64_MAX : a + b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
        uint64_t product;

        return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static void add_rounds(struct device_cost *sum, const struct device_cost *one, uint64_t rounds)
{
        sum->instructions = plus(sum->instructions, times(one->instructions, rounds));
        sum->memory = plus(sum->memory, times(one->memory, rounds));
        sum->atomics = plus(sum->atomics, times(one->atomics, rounds));
}

static void raise_to(struct device_cost *most, const struct device_cost *other)
{
        if (other->instructions > most->instructions)
                most->instructions = other->instructions;
        if (other->memory > most->memory)
                most->memory = other->memory;
        if (other->atomics > most->atomics)
                most->atomics = other->atomics;
}

/* Components: instructions that are in one loop, found in the order from the end on. */

/* The component of `root` is complete, and all that can follow it. */
static void close_component(struct coster *c, uint32_t root)
{
        size_t first = c->stacked;
        struct device_cost sum = {}, most = {};

        do
                c->component[c->stack[--first]] = root;
        while (c->stack[first] != root);
        for (size_t k = first; k < c->stacked; k++) {
                uint32_t i = c->stack[k], next[2];
                unsigned n = successors(c, i, next);

                c->rounds[i] = count_rounds(c, i);
                add_rounds(&sum, &c->own[i], c->rounds[i]);
                for (unsigned s = 0; s < n; s++)
                        if (c->component[next[s]] != root)
                                raise_to(&most, &c->best[c->component[next[s]]]);
        }
        add_rounds(&sum, &most, 1);
        c->best[root] = sum;
        c->stacked = first;
}

static void visit(struct coster *c, uint32_t i)
{
        c->order[i] = c->low[i] = (uint32_t)++c->counter;
        c->stack[c->stacked++] = i;
}

/* Look at one more instruction after i; false when all have been seen. */
static bool go_on(struct coster *c, uint32_t i, uint32_t *ret_next)
{
        uint32_t next[2];
        unsigned n = successors(c, i, next);

        for (unsigned k = 0; k < n; k++) {
                if (!c->order[next[k]]) {
                        *ret_next = next[k];
                        return true;
                }
                if (c->component[next[k]] == NONE && c->low[next[k]] < c->low[i])
                        c->low[i] = c->low[next[k]];
        }
        return false;
}

/* Tarjan's search from the first instruction of a function, without recursion. */
static void walk_function(struct coster *c, uint32_t first)
{
        size_t depth = 0;

        visit(c, first);
        c->path[depth++] = first;
        while (depth) {
                uint32_t i = c->path[depth - 1], next;

                if (go_on(c, i, &next)) {
                        visit(c, next);
                        c->path[depth++] = next;
                        continue;
                }
                if (c->low[i] == c->order[i])
                        close_component(c, i);
                depth--;
        }
}

/* All functions, those that are called before those that call. */
static void walk_functions(struct coster *c)
{
        for (size_t i = c->code->count; i-- > 0;) {
                if (c->code->insns[i].kind != CODE_ENTER || !flow_is_reached(c->flow, i))
                        continue;
                walk_function(c, (uint32_t)i + 1);
                add_rounds(&c->own[i], &c->best[c->component[i + 1]], 1);
        }
        walk_function(c, 0);
}

/* How often an instruction can run in all. */
static uint64_t all_rounds(const struct coster *c, size_t i)
{
        uint64_t rounds = c->rounds[i];

        while ((i = c->code->insns[i].caller) != CODE_NO_CALLER)
                rounds = times(rounds, c->rounds[i]);
        return rounds;
}

static size_t find_worst(const struct coster *c, const struct device_cost *costs)
{
        uint64_t most = 0;
        size_t worst = 0;

        for (size_t i = 0; i < c->code->count; i++) {
                uint64_t part = flow_is_reached(c->flow, i)
                                        ? times(costs[i].instructions, all_rounds(c, i))
                                        : 0;

                if (part > most) {
                        most = part;
                        worst = i;
                }
        }
        return worst;
}

static int allocate(struct coster *c, const struct device_cost *costs)
{
        size_t n = c->code->count;
        uint32_t *numbers = calloc(7 * n, sizeof(*numbers));

        c->order = numbers;
        c->own = calloc(n, sizeof(*c->own));
        c->best = calloc(n, sizeof(*c->best));
        c->rounds = calloc(n, sizeof(*c->rounds));
        if (!numbers || !c->own || !c->best || !c->rounds)
                return -ENOMEM;
        c->low = numbers + n;
        c->component = numbers + 2 * n;
        c->stack = numbers + 3 * n;
        c->path = numbers + 4 * n;
        c->distance = numbers + 5 * n;
        c->queue = numbers + 6 * n;
        memset(c->component, 0xff, n * sizeof(*c->component));
        memcpy(c->own, costs, n * sizeof(*costs));
        return 0;
}

int cost_bound(const struct code *code, const struct flow *flow, const struct device_cost *costs,
               uint64_t verified, struct device_cost *ret_cost, size_t *ret_worst)
{
        struct coster c = {.code = code, .flow = flow, .verified = verified, .loop = code->count};
        int error = allocate(&c, costs);

        if (!error) {
                walk_functions(&c);
                *ret_cost = c.best[c.component[0]];
                *ret_worst = c.loop < code->count ? c.loop : find_worst(&c, costs);
                error = c.loop < code->count ? -EOVERFLOW : 0;
        }
        free(c.order);
        free(c.own);
        free(c.best);
        free(c.rounds);
        return error;
}
