/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sim/uvm_model.h"

#include <errno.h>
#include <stdlib.h>
#include <uthash.h>
#include <utlist.h>

#include "util/macro.h"

#define BLOCK       ((uint64_t)POLICY_BLOCK_BYTES)
#define PAGE        65536ull
#define BLOCK_PAGES 32
#define BATCH_MAX   1024

struct block {
        UT_hash_handle hh;
        struct block *prev, *next; /* resident ones, the next victim first */
        uint64_t key;              /* process and number */
        uint64_t process;
        uint64_t address;
        uint64_t ready_ns; /* its pages have arrived */
        uint64_t next_use; /* of the offline optimum */
        uint32_t gpu;      /* that has pages of it */
        uint32_t pages;    /* there */
        uint32_t wanted;   /* faulted in the batch that is being collected */
        uint32_t prefer;
        bool empty;      /* discarded: nothing to bring */
        bool duplicated; /* the host has a copy too */
        bool remote;     /* mapped where it is */
};

struct evicted {
        struct block *block;
        uint32_t pages;
};

struct gpu {
        struct uvm_model_stats stats;
        uint64_t to_gpu_free_ns, to_host_free_ns; /* when the link is free */
        uint64_t peer_in_free_ns, peer_out_free_ns;
        uint64_t occupied; /* blocks */
        struct block *resident;
        uint64_t *leaving; /* ring: when the room of evicted blocks is free; ascending */
        size_t leaving_first, leaving_count;
};

struct uvm_model {
        struct uvm_model_options options;
        uint64_t now_ns;
        uint64_t requests_done_ns; /* the last request is */
        uint64_t capacity;         /* of each GPU, blocks */
        struct gpu gpus[UVM_MODEL_GPUS_MAX];
        uint32_t at; /* the GPU whose kernel runs */
        struct block *blocks;
        size_t leaving_room;
        struct block *batch[BATCH_MAX]; /* with faults, each once */
        size_t batch_blocks;
        uint32_t batch_faults;
        struct policy_fault faults[BATCH_MAX];
        uint64_t fault_process[BATCH_MAX];
        struct evicted evicted[BATCH_MAX]; /* for the batch, not yet told of */
        size_t evicted_count;
        uint64_t kernel_stall_ns, wait_ns;
        uint64_t touches; /* of blocks, so far */
};

/* ---- life ---- */

struct uvm_model *uvm_model_new(const struct uvm_model_options *options)
{
        struct uvm_model *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        m->options = *options;
        m->options.gpus = options->gpus ? options->gpus : 1;
        m->capacity = options->gpu_bytes / BLOCK;
        m->leaving_room = m->capacity + BATCH_MAX;
        for (uint32_t i = 0; i < m->options.gpus; i++) {
                m->gpus[i].leaving = calloc(m->leaving_room, sizeof(*m->gpus[i].leaving));
                if (!m->gpus[i].leaving)
                        return uvm_model_free(m);
        }
        return m->capacity ? m : uvm_model_free(m);
}

struct uvm_model *uvm_model_free(struct uvm_model *m)
{
        struct block *b, *next;

        if (!m)
                return NULL;
        HASH_ITER (hh, m->blocks, b, next) {
                HASH_DEL(m->blocks, b);
                free(b);
        }
        for (uint32_t i = 0; i < m->options.gpus; i++)
                free(m->gpus[i].leaving);
        free(m);
        return NULL;
}

static struct block *get_block(struct uvm_model *m, uint64_t process, uint64_t address)
{
        uint64_t key = process << 32 | address / BLOCK;
        struct block *b;

        HASH_FIND(hh, m->blocks, &key, sizeof(key), b);
        if (b)
                return b;
        b = calloc(1, sizeof(*b));
        if (!b)
                abort(); /* a simulation without memory has no result */
        b->key = key;
        b->process = process;
        b->address = address & ~(BLOCK - 1);
        b->prefer = POLICY_NOWHERE;
        HASH_ADD(hh, m->blocks, key, sizeof(b->key), b);
        return b;
}

/* ---- the link ---- */

static uint64_t transfer(uint64_t *free_ns, uint64_t start_ns, uint64_t bytes, uint64_t mbps)
{
        if (*free_ns < start_ns)
                *free_ns = start_ns;
        *free_ns += bytes * 1000 / mbps;
        return *free_ns;
}

static uint64_t bring(struct uvm_model *m, struct gpu *g, uint64_t start_ns, uint64_t bytes)
{
        g->stats.to_gpu_bytes += bytes;
        return transfer(&g->to_gpu_free_ns, start_ns, bytes, m->options.costs.to_gpu_mbps);
}

static uint64_t take_away(struct uvm_model *m, struct gpu *g, uint64_t start_ns, uint64_t bytes)
{
        g->stats.to_host_bytes += bytes;
        return transfer(&g->to_host_free_ns, start_ns, bytes, m->options.costs.to_host_mbps);
}

/* From GPU to GPU: over the link that both have, or through the host. */
static uint64_t bring_over(struct uvm_model *m, struct gpu *from, struct gpu *to, uint64_t start_ns,
                           uint64_t bytes)
{
        uint64_t mbps = m->options.costs.peer_mbps;

        to->stats.peer_bytes += bytes;
        if (!mbps)
                return bring(m, to, take_away(m, from, start_ns, bytes), bytes);
        to->stats.to_gpu_bytes += bytes;
        if (start_ns < from->peer_out_free_ns)
                start_ns = from->peer_out_free_ns;
        from->peer_out_free_ns = transfer(&to->peer_in_free_ns, start_ns, bytes, mbps);
        return from->peer_out_free_ns;
}

/* ---- room ---- */

/* Blocks that have left by then. */
static void reap(const struct uvm_model *m, struct gpu *g, uint64_t at_ns)
{
        while (g->leaving_count && g->leaving[g->leaving_first] <= at_ns) {
                g->leaving_first = (g->leaving_first + 1) % m->leaving_room;
                g->leaving_count--;
                g->occupied--;
        }
}

static void leave_at(const struct uvm_model *m, struct gpu *g, uint64_t ns)
{
        g->leaving[(g->leaving_first + g->leaving_count++) % m->leaving_room] = ns;
}

static uint64_t bytes_of(uint32_t pages)
{
        return (uint64_t)__builtin_popcount(pages) * PAGE;
}

/* from, to: a GPU or POLICY_HOST. */
static void tell_moved(struct uvm_model *m, const struct block *b, uint32_t pages, uint32_t from,
                       uint32_t to, enum policy_cause cause)
{
        struct policy_moved moved = {.address = b->address + (uint64_t)__builtin_ctz(pages) * PAGE,
                                     .bytes = bytes_of(pages),
                                     .at_ns = m->now_ns,
                                     .to = to,
                                     .cause = (uint16_t)cause,
                                     .from = from == POLICY_HOST ? POLICY_FROM_HOST
                                                                 : (uint16_t)from};

        if (m->options.ops)
                m->options.ops->moved(m->options.data, b->process, &moved, 1);
}

static struct gpu *gpu_of(struct uvm_model *m, const struct block *b)
{
        return &m->gpus[b->gpu];
}

/* Off the GPU, at once for kernels; when its room is free is the caller's to say. */
static uint32_t unmap(struct uvm_model *m, struct block *b)
{
        uint32_t pages = b->pages;

        DL_DELETE(gpu_of(m, b)->resident, b);
        b->pages = 0;
        return pages;
}

static struct block *choose_victim(struct uvm_model *m, const struct gpu *g)
{
        struct block *b, *best = NULL;

        DL_FOREACH(g->resident, b)
        {
                if (b->wanted)
                        continue;
                if (!m->options.next_use)
                        return b;
                if (!best || b->next_use > best->next_use)
                        best = b;
        }
        return best;
}

/* The driver makes room for one block while faults wait. When it has. */
static uint64_t evict(struct uvm_model *m, uint64_t at_ns, struct block *victim)
{
        struct gpu *g = gpu_of(m, victim);
        uint32_t pages = unmap(m, victim);

        g->occupied--;
        g->stats.evictions++;
        at_ns += m->options.costs.evict_ns;
        m->evicted[m->evicted_count++] = (struct evicted){victim, pages};
        return take_away(m, g, at_ns, victim->duplicated ? 0 : bytes_of(pages));
}

/* When there is room for one more block, waiting or evicting for it. */
static uint64_t need_room(struct uvm_model *m, struct gpu *g, uint64_t at_ns)
{
        struct block *victim;

        reap(m, g, at_ns);
        while (g->occupied >= m->capacity) {
                if (g->leaving_count) {
                        at_ns = g->leaving[g->leaving_first];
                        reap(m, g, at_ns);
                        continue;
                }
                victim = choose_victim(m, g);
                if (!victim)
                        break; /* the batch alone is more than fits */
                at_ns = evict(m, at_ns, victim);
        }
        g->occupied++;
        return at_ns;
}

/* All of it that another GPU has goes to this one, which has room for it. When it is there. */
static uint64_t come_over(struct uvm_model *m, struct block *b, uint32_t to, uint64_t at_ns,
                          enum policy_cause cause)
{
        struct gpu *old = gpu_of(m, b);
        uint32_t from = b->gpu, pages = unmap(m, b);
        uint64_t start_ns = b->ready_ns > at_ns ? b->ready_ns : at_ns;

        at_ns = bring_over(m, old, &m->gpus[to], start_ns, b->empty ? 0 : bytes_of(pages));
        leave_at(m, old, at_ns);
        b->gpu = to;
        b->pages = pages;
        DL_APPEND(m->gpus[to].resident, b);
        tell_moved(m, b, pages, from, to, cause);
        return at_ns;
}

/* ---- fault batches ---- */

/* The pages the driver brings: those that faulted, and the rest of subtrees dense enough. */
static uint32_t grow(const struct uvm_model *m, uint32_t there, uint32_t faulted)
{
        uint32_t all = there | faulted;

        for (uint32_t size = 2; size <= BLOCK_PAGES; size *= 2) {
                uint32_t ones = size == 32 ? ~0u : (1u << size) - 1;

                for (uint32_t at = 0; at < BLOCK_PAGES; at += size) {
                        uint32_t subtree = ones << at;

                        if (!(faulted & subtree))
                                continue;
                        if ((uint32_t)__builtin_popcount(all & subtree) * 100 >
                            size * m->options.costs.density)
                                all |= subtree;
                }
        }
        return all & ~there;
}

/* One block with faults. When the kernel may go on as far as this block is concerned. */
static uint64_t serve_block(struct uvm_model *m, struct block *b, uint64_t at_ns,
                            uint32_t *ret_pages)
{
        const struct uvm_costs *c = &m->options.costs;
        struct gpu *g = &m->gpus[m->at];
        uint32_t pages;

        at_ns += c->visit_ns;
        *ret_pages = 0;
        if (b->prefer == POLICY_HOST) {
                b->remote = true;
                return at_ns;
        }
        if (!b->pages || b->gpu != m->at) {
                at_ns = need_room(m, g, at_ns);
                g->stats.fetches++;
                if (b->pages)
                        at_ns = come_over(m, b, m->at, at_ns, POLICY_BY_FAULT);
        }
        pages = grow(m, b->pages, b->wanted & ~b->pages);
        if (b->pages)
                DL_DELETE(g->resident, b);
        DL_APPEND(g->resident, b);
        b->gpu = m->at;
        if (!b->empty) {
                at_ns += c->page_ns * (uint64_t)__builtin_popcount(pages);
                at_ns = bring(m, g, at_ns, bytes_of(pages));
        }
        b->pages |= pages;
        *ret_pages = pages;
        return at_ns;
}

static void tell_faults(struct uvm_model *m)
{
        uint32_t first = 0;

        for (uint32_t i = 1; i <= m->batch_faults; i++) {
                if (i < m->batch_faults && m->fault_process[i] == m->fault_process[first])
                        continue;
                m->options.ops->faults(m->options.data, m->fault_process[first], &m->faults[first],
                                       i - first);
                first = i;
        }
}

static void tell_batch(struct uvm_model *m, const uint32_t *pages)
{
        for (size_t i = 0; i < m->evicted_count; i++)
                tell_moved(m, m->evicted[i].block, m->evicted[i].pages, m->at, POLICY_HOST,
                           POLICY_BY_EVICTION);
        for (size_t i = 0; i < m->batch_blocks; i++)
                if (pages[i])
                        tell_moved(m, m->batch[i], pages[i], POLICY_HOST, m->at, POLICY_BY_FAULT);
        tell_faults(m);
}

static void serve_batch(struct uvm_model *m)
{
        uint64_t at_ns = m->now_ns + m->options.costs.batch_ns;
        uint32_t pages[BATCH_MAX];

        if (!m->batch_faults)
                return;
        for (size_t i = 0; i < m->batch_blocks; i++)
                at_ns = serve_block(m, m->batch[i], at_ns, &pages[i]);
        m->gpus[m->at].stats.batches++;
        m->gpus[m->at].stats.faults += m->batch_faults;
        m->gpus[m->at].stats.stall_ns += at_ns - m->now_ns;
        m->kernel_stall_ns += at_ns - m->now_ns;
        m->now_ns = at_ns;
        if (m->options.ops)
                tell_batch(m, pages);
        for (size_t i = 0; i < m->batch_blocks; i++)
                m->batch[i]->wanted = 0;
        m->batch_blocks = 0;
        m->batch_faults = 0;
        m->evicted_count = 0;
        if (m->options.ops)
                m->options.ops->settle(m->options.data);
}

static void fault(struct uvm_model *m, struct block *b, uint32_t page, bool write)
{
        if (!b->wanted)
                m->batch[m->batch_blocks++] = b;
        b->wanted |= 1u << page;
        m->fault_process[m->batch_faults] = b->process;
        m->faults[m->batch_faults++] =
                (struct policy_fault){.address = b->address + page * PAGE,
                                      .at_ns = m->now_ns,
                                      .access = write ? POLICY_WRITE : POLICY_READ,
                                      .gpu = m->at,
                                      .count = 1};
        if (m->batch_faults == m->options.costs.batch_faults)
                serve_batch(m);
}

static void touch_block(struct uvm_model *m, struct block *b, uint32_t first, uint32_t last,
                        uint64_t bytes, bool write)
{
        uint32_t there;

        if (m->options.next_use)
                b->next_use = m->options.next_use[m->touches];
        m->touches++;
        if (b->remote) {
                uint64_t ns = bytes * 1000 / m->options.costs.remote_mbps;

                m->gpus[m->at].stats.remote_bytes += bytes;
                m->gpus[m->at].stats.stall_ns += ns;
                m->kernel_stall_ns += ns;
                m->now_ns += ns;
                return;
        }
        there = b->gpu == m->at ? b->pages : 0;
        if (there && b->ready_ns > m->wait_ns)
                m->wait_ns = b->ready_ns;
        for (uint32_t page = first; page <= last; page++)
                if (!((there | b->wanted) & 1u << page))
                        fault(m, b, page, write);
        b->duplicated = b->duplicated && !write;
        b->empty = b->empty && !write;
}

void uvm_model_touch(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes,
                     bool write)
{
        uint64_t end = address + bytes;

        while (address < end) {
                uint64_t limit = (address / BLOCK + 1) * BLOCK;
                uint64_t part = end < limit ? end : limit;

                touch_block(m, get_block(m, process, address), (uint32_t)(address % BLOCK / PAGE),
                            (uint32_t)((part - 1) % BLOCK / PAGE), part - address, write);
                address = part;
        }
}

void uvm_model_kernel_begin(struct uvm_model *m, uint32_t gpu)
{
        m->at = gpu;
}

uint64_t uvm_model_kernel_end(struct uvm_model *m)
{
        uint64_t stall;

        serve_batch(m);
        if (m->wait_ns > m->now_ns) {
                m->gpus[m->at].stats.stall_ns += m->wait_ns - m->now_ns;
                m->kernel_stall_ns += m->wait_ns - m->now_ns;
                m->now_ns = m->wait_ns;
        }
        stall = m->kernel_stall_ns;
        m->kernel_stall_ns = 0;
        m->wait_ns = 0;
        return stall;
}

/* ---- by request, block by block ---- */

struct request {
        uint64_t at_ns;
        uint64_t done_ns;
        uint64_t bytes; /* moved */
        uint32_t to;
        bool full;
};

static void each_block(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes,
                       void (*visit)(struct uvm_model *m, struct block *b, uint32_t pages,
                                     void *data),
                       void *data)
{
        uint64_t end = address + bytes;

        while (address < end) {
                uint64_t limit = (address / BLOCK + 1) * BLOCK;
                uint64_t part = end < limit ? end : limit;
                uint32_t first = (uint32_t)(address % BLOCK / PAGE);
                uint32_t last = (uint32_t)((part - 1) % BLOCK / PAGE);

                visit(m, get_block(m, process, address), (~0u >> (31 - (last - first))) << first,
                      data);
                address = part;
        }
}

/* Room for one more block, which a request waits for but does not make. */
static bool find_room(struct uvm_model *m, struct gpu *g, struct request *r)
{
        reap(m, g, m->now_ns);
        if (g->occupied >= m->capacity && g->leaving_count) {
                r->at_ns = g->leaving[g->leaving_first] > r->at_ns ? g->leaving[g->leaving_first]
                                                                   : r->at_ns;
                reap(m, g, g->leaving[g->leaving_first]);
        }
        r->full = r->full || g->occupied >= m->capacity;
        if (g->occupied >= m->capacity)
                return false;
        g->occupied++;
        g->stats.fetches++;
        return true;
}

static void bring_block(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        struct request *r = data;
        struct gpu *g = &m->gpus[r->to];
        bool elsewhere = b->pages && b->gpu != r->to;

        if (b->remote || b->wanted || (!elsewhere && !(pages & ~b->pages)))
                return;
        if ((!b->pages || elsewhere) && !find_room(m, g, r))
                return;
        if (elsewhere) {
                r->bytes += bytes_of(b->pages);
                r->done_ns = b->ready_ns = come_over(m, b, r->to, r->at_ns, POLICY_BY_REQUEST);
        } else if (!b->pages) {
                b->gpu = r->to;
                DL_APPEND(g->resident, b);
        }
        pages &= ~b->pages;
        if (!pages)
                return;
        r->done_ns = b->ready_ns = bring(m, g, r->at_ns, b->empty ? 0 : bytes_of(pages));
        b->pages |= pages;
        r->bytes += bytes_of(pages);
        tell_moved(m, b, pages, POLICY_HOST, r->to, POLICY_BY_REQUEST);
}

/* The driver moves parts of blocks; what is told here is the whole block when any of it goes. */
static void take_block(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        struct request *r = data;
        uint64_t start_ns = b->ready_ns > r->at_ns ? b->ready_ns : r->at_ns;
        struct gpu *g = gpu_of(m, b);

        if (!(b->pages & pages) || b->wanted)
                return;
        pages = unmap(m, b);
        r->done_ns = take_away(m, g, start_ns, b->duplicated ? 0 : bytes_of(pages));
        leave_at(m, g, r->done_ns);
        r->bytes += bytes_of(pages);
        tell_moved(m, b, pages, b->gpu, POLICY_HOST, POLICY_BY_REQUEST);
}

int uvm_model_migrate(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes,
                      uint32_t to, uint64_t *ret_bytes)
{
        struct request r = {.at_ns = m->now_ns + m->options.costs.policy_ns, .to = to};

        /* The daemon makes one request at a time. */
        if (r.at_ns < m->requests_done_ns)
                r.at_ns = m->requests_done_ns;
        r.at_ns += m->options.costs.call_ns;
        r.done_ns = r.at_ns;
        each_block(m, process, address, bytes, to == POLICY_HOST ? take_block : bring_block, &r);
        if (!r.full || r.bytes)
                m->requests_done_ns = r.done_ns;
        *ret_bytes = r.bytes;
        return r.full && !r.bytes ? -ENOSPC : 0;
}

static void come_home(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        if (!(b->pages & pages))
                return;
        pages = unmap(m, b);
        gpu_of(m, b)->occupied--;
        m->now_ns = take_away(m, gpu_of(m, b), m->now_ns, bytes_of(pages));
        tell_moved(m, b, pages, b->gpu, POLICY_HOST, POLICY_BY_FAULT);
}

/* The CPU faults on what it has not mapped; told of once for each block. */
static void tell_host_fault(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        const struct policy_fault fault = {.address = b->address,
                                           .at_ns = m->now_ns,
                                           .access = POLICY_WRITE,
                                           .gpu = POLICY_HOST,
                                           .count = 1};

        m->options.ops->faults(m->options.data, b->process, &fault, 1);
}

void uvm_model_host_touch(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes)
{
        each_block(m, process, address, bytes, come_home, NULL);
        if (!m->options.ops)
                return;
        each_block(m, process, address, bytes, tell_host_fault, NULL);
        m->options.ops->settle(m->options.data);
}

static void drop(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        if (b->pages) {
                (void)unmap(m, b);
                gpu_of(m, b)->occupied--;
        }
        b->empty = true;
}

void uvm_model_discard(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes)
{
        each_block(m, process, address, bytes, drop, NULL);
}

static void forget(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        drop(m, b, pages, data);
        HASH_DEL(m->blocks, b);
        free(b);
}

void uvm_model_forget(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes)
{
        serve_batch(m);
        each_block(m, process, address, bytes, forget, NULL);
}

static void set_prefer(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        b->prefer = *(const uint32_t *)data;
        b->remote = b->remote && b->prefer == POLICY_HOST;
}

void uvm_model_prefer(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes,
                      uint32_t to)
{
        each_block(m, process, address, bytes, set_prefer, &to);
}

static void set_duplicated(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        b->duplicated = *(const bool *)data;
}

void uvm_model_read_duplicate(struct uvm_model *m, uint64_t process, uint64_t address,
                              uint64_t bytes, bool on)
{
        each_block(m, process, address, bytes, set_duplicated, &on);
}

/* ---- asking ---- */

uint64_t uvm_model_now(const struct uvm_model *m)
{
        return m->now_ns;
}

void uvm_model_pass(struct uvm_model *m, uint64_t ns)
{
        m->now_ns += ns;
}

uint64_t uvm_model_free_bytes(const struct uvm_model *m, uint32_t gpu)
{
        uint64_t staying = m->gpus[gpu].occupied - m->gpus[gpu].leaving_count;

        return staying < m->capacity ? (m->capacity - staying) * BLOCK : 0;
}

const struct uvm_model_stats *uvm_model_get_stats(const struct uvm_model *m, uint32_t gpu)
{
        return &m->gpus[gpu].stats;
}
