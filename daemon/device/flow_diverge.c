/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where the lanes of a warp may have gone different ways. A branch on something that
 * differs between lanes splits the warp until both ways have come together again: at
 * the first instruction that lies on every way to the end (the branch's immediate
 * post-dominator). All that can run before that is divergent.
 *
 * Post-dominators by Cooper, Harvey and Kennedy's iteration, over single instructions
 * and one more node behind all exits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/flow_diverge.h"

#define NONE UINT32_MAX

struct graph {
        const struct flow *flow;
        uint32_t count;             /* of instructions; also the number of the end */
        uint32_t (*next)[2];        /* what may follow each; NONE */
        uint32_t *first, *previous; /* what leads to i: previous[first[i]] .. before first[i + 1] */
        uint32_t *order, *number;   /* nodes in the order of the search, and their places; NONE */
        uint32_t *meet;             /* immediate post-dominator, NONE not known */
        uint32_t *work;
};

static void find_next(struct graph *g, const struct code *code)
{
        for (uint32_t i = 0; i < g->count; i++) {
                size_t next[2];
                unsigned n;

                g->next[i][0] = g->next[i][1] = NONE;
                if (!flow_is_reached(g->flow, i))
                        continue;
                n = flow_next(g->flow, i, next);
                for (unsigned k = 0; k < n; k++)
                        g->next[i][k] = (uint32_t)next[k];
                if (n == 0)
                        g->next[i][0] = g->count; /* an exit */
        }
}

static void find_previous(struct graph *g)
{
        uint32_t *place = g->work;

        for (uint32_t i = 0; i < g->count; i++)
                for (unsigned k = 0; k < 2; k++)
                        if (g->next[i][k] != NONE)
                                g->first[g->next[i][k] + 1]++;
        for (uint32_t i = 0; i <= g->count; i++)
                g->first[i + 1] += g->first[i];
        memcpy(place, g->first, (g->count + 1) * sizeof(*place));
        for (uint32_t i = 0; i < g->count; i++)
                for (unsigned k = 0; k < 2; k++)
                        if (g->next[i][k] != NONE)
                                g->previous[place[g->next[i][k]]++] = i;
}

/* Number the nodes in the order in which a search backwards from the end leaves them. */
static uint32_t number_nodes(struct graph *g)
{
        uint32_t *path = g->work, *place = g->meet, depth = 0, left = 0;

        memcpy(place, g->first, (g->count + 1) * sizeof(*place));
        memset(g->number, 0xff, (g->count + 1) * sizeof(*g->number));
        path[depth++] = g->count;
        g->number[g->count] = 0; /* seen; the real number comes when it is left */
        while (depth) {
                uint32_t i = path[depth - 1];

                if (place[i] == g->first[i + 1]) {
                        g->number[i] = left;
                        g->order[left++] = i;
                        depth--;
                } else {
                        uint32_t before = g->previous[place[i]++];

                        if (g->number[before] == NONE) {
                                g->number[before] = 0;
                                path[depth++] = before;
                        }
                }
        }
        return left;
}

/* Where two ways meet, both known up to there. */
static uint32_t meeting(const struct graph *g, uint32_t a, uint32_t b)
{
        while (a != b) {
                while (g->number[a] < g->number[b])
                        a = g->meet[a];
                while (g->number[b] < g->number[a])
                        b = g->meet[b];
        }
        return a;
}

static uint32_t meeting_of_next(const struct graph *g, uint32_t i)
{
        uint32_t result = NONE;

        for (unsigned k = 0; k < 2; k++) {
                uint32_t next = g->next[i][k];

                if (next == NONE || g->meet[next] == NONE)
                        continue;
                result = result == NONE ? next : meeting(g, result, next);
        }
        return result;
}

static void find_meetings(struct graph *g)
{
        uint32_t nodes = number_nodes(g);
        bool changed = true;

        memset(g->meet, 0xff, (g->count + 1) * sizeof(*g->meet));
        g->meet[g->count] = g->count;
        while (changed) {
                changed = false;
                for (uint32_t k = nodes - 1; k-- > 0;) {
                        uint32_t i = g->order[k], meet = meeting_of_next(g, i);

                        changed |= meet != g->meet[i];
                        g->meet[i] = meet;
                }
        }
}

/* Mark what can run between a branch and the place where its ways meet. */
static bool mark_between(struct graph *g, uint32_t branch, bool *divergent)
{
        uint32_t end = g->meet[branch], left = 0;
        bool *seen = (bool *)g->order, changed = false;

        memset(seen, 0, g->count + 1);
        g->work[left++] = branch;
        while (left) {
                uint32_t i = g->work[--left];

                for (unsigned k = 0; k < 2; k++) {
                        uint32_t next = g->next[i][k];

                        if (next == NONE || next == end || next == g->count || seen[next])
                                continue;
                        seen[next] = true;
                        changed |= !divergent[next];
                        divergent[next] = true;
                        g->work[left++] = next;
                }
        }
        return changed;
}

static int allocate(struct graph *g)
{
        size_t n = g->count + 2;

        g->next = calloc(n, sizeof(*g->next));
        g->first = calloc(n + 1, sizeof(*g->first));
        g->previous = calloc(2 * n, sizeof(*g->previous));
        g->order = calloc(n, sizeof(*g->order));
        g->number = calloc(n, sizeof(*g->number));
        g->meet = calloc(n, sizeof(*g->meet));
        g->work = calloc(n, sizeof(*g->work));
        return g->next && g->first && g->previous && g->order && g->number && g->meet && g->work
                       ? 0
                       : -ENOMEM;
}

static void release(struct graph *g)
{
        free(g->next);
        free(g->first);
        free(g->previous);
        free(g->order);
        free(g->number);
        free(g->meet);
        free(g->work);
}

int flow_find_divergent(const struct code *code, const struct flow *flow, bool *ret_changed)
{
        struct graph g = {.flow = flow, .count = (uint32_t)code->count};
        int error = allocate(&g);

        *ret_changed = false;
        if (!error) {
                find_next(&g, code);
                find_previous(&g);
                find_meetings(&g);
                for (uint32_t i = 0; i < g.count; i++)
                        if (flow_branch_varies(flow, i))
                                *ret_changed |= mark_between(&g, i, code->divergent);
        }
        release(&g);
        return error;
}
