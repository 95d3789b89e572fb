/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table of replace.h: open addressing over a fixed number of slots in memory that
 * the kernel gives page by page, so that it can be read without a lock and never moves.
 *
 * Who is inside a launch is counted in one of two sets of counters, spread over cache
 * lines by thread. To wait for all launches, new ones are sent to the other set and the
 * old one is watched until it is empty: a stream of launches does not keep it busy.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "monotonic.h"
#include "replace.h"

#define PROBES   64 /* slots looked at for one handle */
#define COUNTERS 64
#define LINE     64
#define NAP_NS   200000

/* Results that say: not with this function, and nothing was launched. */
#define CUDA_INVALID_CONTEXT       201
#define CUDA_INVALID_HANDLE        400
#define CUDA_NOT_FOUND             500
#define CUDA_OUT_OF_RESOURCES      701
#define CUDA_CONTEXT_IS_DESTROYED  709
#define CUDA_COOPERATIVE_TOO_LARGE 720
#define CUDA_INVALID_CLUSTER_SIZE  912

uint32_t replace_active;

struct counter {
        uint32_t inside;
        uint8_t pad[LINE - sizeof(uint32_t)];
};

static struct {
        struct replace_slot *slots;
        uint32_t used;
        cuda_handle (*current_context)(void);
        void (*wake)(void);
        bool new_unprobed;
        bool graphs;
        uint32_t set; /* of counters, for launches that begin now */
        struct counter counters[2][COUNTERS] __attribute__((aligned(LINE)));
} table;

static __thread uint32_t counter_index; /* of the thread, plus 1 */
static uint32_t next_counter;

bool replace_table_open(cuda_handle (*current_context)(void), void (*wake)(void))
{
        void *memory;

        if (table.slots)
                return true;
        memory = mmap(NULL, REPLACE_HANDLES * sizeof(struct replace_slot), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
                return false;
        table.current_context = current_context;
        table.wake = wake;
        __atomic_store_n(&table.slots, memory, __ATOMIC_RELEASE);
        return true;
}

static uint32_t first_slot(uint64_t handle)
{
        /* Handles are addresses of objects: their low bits say nothing. */
        return (uint32_t)((handle >> 4) * 0x9e3779b97f4a7c15ull >> 48) % REPLACE_HANDLES;
}

struct replace_slot *replace_find(cuda_handle handle)
{
        uint64_t h = (uintptr_t)handle, found;
        uint32_t at = first_slot(h);

        for (unsigned i = 0; h && table.slots && i < PROBES; i++) {
                struct replace_slot *s = &table.slots[(at + i) % REPLACE_HANDLES];

                found = __atomic_load_n(&s->handle, __ATOMIC_ACQUIRE);
                if (found == h)
                        return s;
                if (!found)
                        return NULL;
        }
        return NULL;
}

static struct replace_slot *take(struct replace_slot *s, uint64_t handle)
{
        uint64_t found = 0;

        if (__atomic_load_n(&table.used, __ATOMIC_RELAXED) >= REPLACE_HANDLES / 2)
                return NULL;
        if (__atomic_compare_exchange_n(&s->handle, &found, handle, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
                __atomic_add_fetch(&table.used, 1, __ATOMIC_RELAXED);
                return s;
        }
        return found == handle ? s : NULL;
}

struct replace_slot *replace_note(cuda_handle handle, enum replace_kind kind, cuda_handle context)
{
        uint64_t h = (uintptr_t)handle, found;
        uint32_t at = first_slot(h);

        for (unsigned i = 0; h && table.slots && i < PROBES; i++) {
                struct replace_slot *s = &table.slots[(at + i) % REPLACE_HANDLES];

                found = __atomic_load_n(&s->handle, __ATOMIC_ACQUIRE);
                if (!found && !take(s, h))
                        continue;
                if (found && found != h)
                        continue;
                if (context)
                        __atomic_store_n(&s->context, (uintptr_t)context, __ATOMIC_RELEASE);
                if (kind != REPLACE_ANY)
                        __atomic_store_n(&s->kind, kind, __ATOMIC_RELEASE);
                return s;
        }
        return NULL;
}

struct replace_slot *replace_next(uint32_t *position)
{
        while (table.slots && *position < REPLACE_HANDLES) {
                struct replace_slot *s = &table.slots[(*position)++];

                if (__atomic_load_n(&s->handle, __ATOMIC_ACQUIRE))
                        return s;
        }
        return NULL;
}

void replace_set_active(bool active)
{
        __atomic_store_n(&replace_active, active ? 1 : 0, __ATOMIC_SEQ_CST);
}

void replace_set_new_unprobed(bool unprobed)
{
        __atomic_store_n(&table.new_unprobed, unprobed, __ATOMIC_RELAXED);
}

void replace_graph_seen(void)
{
        if (__atomic_load_n(&replace_active, __ATOMIC_ACQUIRE) &&
            !__atomic_load_n(&table.graphs, __ATOMIC_RELAXED))
                __atomic_store_n(&table.graphs, true, __ATOMIC_RELAXED);
}

bool replace_graphs_seen(void)
{
        return __atomic_load_n(&table.graphs, __ATOMIC_SEQ_CST);
}

/* ---- launches ---- */

static uint32_t *enter(void)
{
        uint32_t set = __atomic_load_n(&table.set, __ATOMIC_RELAXED);
        uint32_t *inside;

        if (!counter_index)
                counter_index =
                        __atomic_fetch_add(&next_counter, 1, __ATOMIC_RELAXED) % COUNTERS + 1;
        inside = &table.counters[set][counter_index - 1].inside;
        /* What is read of the table after this was not there before this was counted. */
        __atomic_add_fetch(inside, 1, __ATOMIC_SEQ_CST);
        return inside;
}

/* A handle that nobody has looked up, or one that is back: somebody has to look what it is. */
static void meet(cuda_handle function, struct replace_slot *s)
{
        cuda_handle context = table.current_context();
        uint32_t gone = REPLACE_GONE;

        if (!s)
                s = replace_note(function, REPLACE_ANY, context);
        else if (__atomic_compare_exchange_n(&s->state, &gone, REPLACE_NEW, false, __ATOMIC_ACQ_REL,
                                             __ATOMIC_RELAXED))
                __atomic_store_n(&s->context, (uintptr_t)context, __ATOMIC_RELEASE);
        if (s && __atomic_load_n(&s->state, __ATOMIC_RELAXED) == REPLACE_NEW)
                table.wake();
}

void replace_look_up(struct replace_use *u, cuda_handle function)
{
        struct replace_slot *s;
        uint64_t instead;

        u->inside = enter();
        s = replace_find(function);
        instead = s ? __atomic_load_n(&s->instead, __ATOMIC_SEQ_CST) : 0;
        if (!instead) {
                u->unprobed = __atomic_load_n(&table.new_unprobed, __ATOMIC_RELAXED);
                meet(function, s);
                return;
        }
        u->unprobed = instead & REPLACE_UNPROBED;
        u->bare = instead & REPLACE_BARE;
        u->function = (cuda_handle)(uintptr_t)(instead & ~(REPLACE_UNPROBED | REPLACE_BARE));
}

void replace_leave(struct replace_use *u)
{
        __atomic_sub_fetch(u->inside, 1, __ATOMIC_RELEASE);
        u->inside = NULL;
}

bool replace_failed(struct replace_use *u, cuda_handle function, int result)
{
        switch (result) {
        case CUDA_INVALID_VALUE:
        case CUDA_INVALID_CONTEXT:
        case CUDA_INVALID_HANDLE:
        case CUDA_NOT_FOUND:
        case CUDA_OUT_OF_RESOURCES:
        case CUDA_CONTEXT_IS_DESTROYED:
        case CUDA_COOPERATIVE_TOO_LARGE:
        case CUDA_INVALID_CLUSTER_SIZE:
                break;
        default:
                return false;
        }
        u->function = function;
        u->unprobed = u->bare;
        return true;
}

static bool is_empty(uint32_t set)
{
        for (unsigned i = 0; i < COUNTERS; i++)
                if (__atomic_load_n(&table.counters[set][i].inside, __ATOMIC_SEQ_CST))
                        return false;
        return true;
}

bool replace_wait_for_launches(unsigned timeout_ms)
{
        uint64_t until = now_ns() + timeout_ms * 1000000ull;
        uint32_t old = __atomic_load_n(&table.set, __ATOMIC_RELAXED);
        struct timespec nap = {.tv_nsec = NAP_NS};

        /*
         * Both: a launch may have read which set it is to use before the other wait. Whatever
         * another thread that waits does to the set meanwhile.
         */
        for (int i = 0; i < 2; i++, old = 1 - old) {
                __atomic_store_n(&table.set, 1 - old, __ATOMIC_SEQ_CST);
                while (!is_empty(old)) {
                        if (now_ns() > until)
                                return false;
                        nanosleep(&nap, NULL);
                }
        }
        return true;
}
