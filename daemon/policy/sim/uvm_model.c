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
        uint32_t pages;    /* on the GPU */
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

struct uvm_model {
        struct uvm_model_options options;
        struct uvm_model_stats stats;
        uint64_t now_ns;
        uint64_t to_gpu_free_ns, to_host_free_ns; /* when the link is free */
        uint64_t requests_done_ns;                /* the last request is */
        uint64_t capacity, occupied;              /* blocks */
        struct block *blocks;
        struct block *resident;
        uint64_t *leaving; /* ring: when the room of evicted blocks is free; ascending */
        size_t leaving_first, leaving_count, leaving_room;
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
        m->capacity = options->gpu_bytes / BLOCK;
        m->leaving_room = m->capacity + BATCH_MAX;
        m->leaving = calloc(m->leaving_room, sizeof(*m->leaving));
        return m->leaving && m->capacity ? m : uvm_model_free(m);
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
        free(m->leaving);
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

static uint64_t bring(struct uvm_model *m, uint64_t start_ns, uint64_t bytes)
{
        m->stats.to_gpu_bytes += bytes;
        return transfer(&m->to_gpu_free_ns, start_ns, bytes, m->options.costs.to_gpu_mbps);
}

static uint64_t take_away(struct uvm_model *m, uint64_t start_ns, uint64_t bytes)
{
        m->stats.to_host_bytes += bytes;
        return transfer(&m->to_host_free_ns, start_ns, bytes, m->options.costs.to_host_mbps);
}

/* ---- room ---- */

/* Blocks that have left by then. */
static void reap(struct uvm_model *m, uint64_t at_ns)
{
        while (m->leaving_count && m->leaving[m->leaving_first] <= at_ns) {
                m->leaving_first = (m->leaving_first + 1) % m->leaving_room;
                m->leaving_count--;
                m->occupied--;
        }
}

static void leave_at(struct uvm_model *m, uint64_t ns)
{
        m->leaving[(m->leaving_first + m->leaving_count++) % m->leaving_room] = ns;
}

static uint64_t bytes_of(uint32_t pages)
{
        return (uint64_t)__builtin_popcount(pages) * PAGE;
}

static void tell_moved(struct uvm_model *m, const struct block *b, uint32_t pages, uint32_t to,
                       enum policy_cause cause)
{
        struct policy_moved moved = {.address = b->address + (uint64_t)__builtin_ctz(pages) * PAGE,
                                     .bytes = bytes_of(pages),
                                     .at_ns = m->now_ns,
                                     .to = to,
                                     .cause = (uint16_t)cause,
                                     .from = to == POLICY_HOST ? 0 : POLICY_FROM_HOST};

        if (m->options.ops)
                m->options.ops->moved(m->options.data, b->process, &moved, 1);
}

/* Off the GPU, at once for kernels; when its room is free is the caller's to say. */
static uint32_t unmap(struct uvm_model *m, struct block *b)
{
        uint32_t pages = b->pages;

        DL_DELETE(m->resident, b);
        b->pages = 0;
        return pages;
}

static struct block *choose_victim(struct uvm_model *m)
{
        struct block *b, *best = NULL;

        DL_FOREACH(m->resident, b)
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
        uint32_t pages = unmap(m, victim);

        m->occupied--;
        m->stats.evictions++;
        at_ns += m->options.costs.evict_ns;
        m->evicted[m->evicted_count++] = (struct evicted){victim, pages};
        return take_away(m, at_ns, victim->duplicated ? 0 : bytes_of(pages));
}

/* When there is room for one more block, waiting or evicting for it. */
static uint64_t need_room(struct uvm_model *m, uint64_t at_ns)
{
        struct block *victim;

        reap(m, at_ns);
        while (m->occupied >= m->capacity) {
                if (m->leaving_count) {
                        at_ns = m->leaving[m->leaving_first];
                        reap(m, at_ns);
                        continue;
                }
                victim = choose_victim(m);
                if (!victim)
                        break; /* the batch alone is more than fits */
                at_ns = evict(m, at_ns, victim);
        }
        m->occupied++;
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
        uint32_t pages;

        at_ns += c->visit_ns;
        *ret_pages = 0;
        if (b->prefer == POLICY_HOST) {
                b->remote = true;
                return at_ns;
        }
        pages = grow(m, b->pages, b->wanted);
        if (!b->pages) {
                at_ns = need_room(m, at_ns);
                m->stats.fetches++;
        } else {
                DL_DELETE(m->resident, b);
        }
        DL_APPEND(m->resident, b);
        if (!b->empty) {
                at_ns += c->page_ns * (uint64_t)__builtin_popcount(pages);
                at_ns = bring(m, at_ns, bytes_of(pages));
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
                tell_moved(m, m->evicted[i].block, m->evicted[i].pages, POLICY_HOST,
                           POLICY_BY_EVICTION);
        for (size_t i = 0; i < m->batch_blocks; i++)
                if (pages[i])
                        tell_moved(m, m->batch[i], pages[i], 0, POLICY_BY_FAULT);
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
        m->stats.batches++;
        m->stats.faults += m->batch_faults;
        m->stats.stall_ns += at_ns - m->now_ns;
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
                                      .count = 1};
        if (m->batch_faults == m->options.costs.batch_faults)
                serve_batch(m);
}

static void touch_block(struct uvm_model *m, struct block *b, uint32_t first, uint32_t last,
                        uint64_t bytes, bool write)
{
        if (m->options.next_use)
                b->next_use = m->options.next_use[m->touches];
        m->touches++;
        if (b->remote) {
                uint64_t ns = bytes * 1000 / m->options.costs.remote_mbps;

                m->stats.remote_bytes += bytes;
                m->stats.stall_ns += ns;
                m->kernel_stall_ns += ns;
                m->now_ns += ns;
                return;
        }
        if (b->pages && b->ready_ns > m->wait_ns)
                m->wait_ns = b->ready_ns;
        for (uint32_t page = first; page <= last; page++)
                if (!((b->pages | b->wanted) & 1u << page))
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

uint64_t uvm_model_kernel_end(struct uvm_model *m)
{
        uint64_t stall;

        serve_batch(m);
        if (m->wait_ns > m->now_ns) {
                m->stats.stall_ns += m->wait_ns - m->now_ns;
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

static void bring_block(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        struct request *r = data;

        pages &= ~b->pages;
        if (!pages || b->remote)
                return;
        if (!b->pages) {
                reap(m, m->now_ns);
                if (m->occupied >= m->capacity && m->leaving_count) {
                        r->at_ns = m->leaving[m->leaving_first] > r->at_ns
                                           ? m->leaving[m->leaving_first]
                                           : r->at_ns;
                        reap(m, m->leaving[m->leaving_first]);
                }
                if (m->occupied >= m->capacity) {
                        r->full = true;
                        return;
                }
                m->occupied++;
                m->stats.fetches++;
                DL_APPEND(m->resident, b);
        }
        r->done_ns = b->ready_ns = bring(m, r->at_ns, b->empty ? 0 : bytes_of(pages));
        b->pages |= pages;
        r->bytes += bytes_of(pages);
        tell_moved(m, b, pages, 0, POLICY_BY_REQUEST);
}

/* The driver moves parts of blocks; what is told here is the whole block when any of it goes. */
static void take_block(struct uvm_model *m, struct block *b, uint32_t pages, void *data)
{
        struct request *r = data;
        uint64_t start_ns = b->ready_ns > r->at_ns ? b->ready_ns : r->at_ns;

        if (!(b->pages & pages) || b->wanted)
                return;
        pages = unmap(m, b);
        r->done_ns = take_away(m, start_ns, b->duplicated ? 0 : bytes_of(pages));
        leave_at(m, r->done_ns);
        r->bytes += bytes_of(pages);
        tell_moved(m, b, pages, POLICY_HOST, POLICY_BY_REQUEST);
}

int uvm_model_migrate(struct uvm_model *m, uint64_t process, uint64_t address, uint64_t bytes,
                      bool to_gpu, uint64_t *ret_bytes)
{
        struct request r = {.at_ns = m->now_ns + m->options.costs.policy_ns};

        /* The daemon makes one request at a time. */
        if (r.at_ns < m->requests_done_ns)
                r.at_ns = m->requests_done_ns;
        r.at_ns += m->options.costs.call_ns;
        r.done_ns = r.at_ns;
        each_block(m, process, address, bytes, to_gpu ? bring_block : take_block, &r);
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
        m->occupied--;
        m->now_ns = take_away(m, m->now_ns, bytes_of(pages));
        tell_moved(m, b, pages, POLICY_HOST, POLICY_BY_FAULT);
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
                m->occupied--;
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

uint64_t uvm_model_free_bytes(const struct uvm_model *m)
{
        uint64_t staying = m->occupied - m->leaving_count;

        return staying < m->capacity ? (m->capacity - staying) * BLOCK : 0;
}

uint64_t uvm_model_resident(const struct uvm_model *m, uint64_t process)
{
        const struct block *b;
        uint64_t bytes = 0;

        DL_FOREACH(m->resident, b)
        {
                if (b->process == process)
                        bytes += bytes_of(b->pages);
        }
        return bytes;
}

const struct uvm_model_stats *uvm_model_get_stats(const struct uvm_model *m)
{
        return &m->stats;
}
