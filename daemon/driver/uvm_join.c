/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_join.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/time.h"

#define MARK_NS  (20 * NSEC_PER_USEC)
#define DELAY_NS NSEC_PER_SEC

struct span {
        uint64_t kernel, start_ns, end_ns;
};

struct mark {
        uint64_t at_ns;
        struct uvm_kernel_counts counts; /* its kernel is not used */
};

struct uvm_join {
        struct span spans[UVM_JOIN_SPANS]; /* ring, by arrival */
        size_t span_next;
        struct mark marks[UVM_JOIN_MARKS]; /* ring, by arrival */
        uint64_t marks_begin, marks_end;   /* positions, modulo the size */
        struct uvm_kernel_counts kernels[UVM_JOIN_KERNELS];
        size_t kernel_count;
        struct uvm_kernel_counts shared, idle;
};

struct uvm_join *uvm_join_new(void)
{
        return calloc(1, sizeof(struct uvm_join));
}

struct uvm_join *uvm_join_free(struct uvm_join *j)
{
        free(j);
        return NULL;
}

static void add(struct uvm_kernel_counts *to, const struct uvm_kernel_counts *from)
{
        to->gpu_faults += from->gpu_faults;
        to->bytes_to_gpu += from->bytes_to_gpu;
        to->bytes_evicted += from->bytes_evicted;
}

static struct uvm_kernel_counts *kernel_counts(struct uvm_join *j, uint64_t kernel)
{
        for (size_t i = 0; i < j->kernel_count; i++)
                if (j->kernels[i].kernel == kernel)
                        return &j->kernels[i];
        if (j->kernel_count == UVM_JOIN_KERNELS)
                return &j->shared;
        j->kernels[j->kernel_count].kernel = kernel;
        return &j->kernels[j->kernel_count++];
}

/* ---- deciding ---- */

static void settle_mark(struct uvm_join *j, const struct mark *m)
{
        const struct span *found = NULL;

        for (size_t i = 0; i < UVM_JOIN_SPANS; i++) {
                const struct span *s = &j->spans[i];

                if (m->at_ns < s->start_ns || m->at_ns > s->end_ns)
                        continue;
                if (found && found->kernel != s->kernel) {
                        add(&j->shared, &m->counts);
                        return;
                }
                found = s;
        }
        add(found ? kernel_counts(j, found->kernel) : &j->idle, &m->counts);
}

static void settle_until(struct uvm_join *j, uint64_t until_ns)
{
        while (j->marks_begin != j->marks_end) {
                const struct mark *m = &j->marks[j->marks_begin % UVM_JOIN_MARKS];

                if (m->at_ns > until_ns)
                        return;
                settle_mark(j, m);
                j->marks_begin++;
        }
}

void uvm_join_settle(struct uvm_join *j, uint64_t now_ns)
{
        if (now_ns >= DELAY_NS)
                settle_until(j, now_ns == UINT64_MAX ? now_ns : now_ns - DELAY_NS);
}

/* ---- what comes in ---- */

/* Copies that were asked for have nothing to do with the kernel that happens to run. */
static bool counts_of(const struct uvm_event *e, struct uvm_kernel_counts *ret_counts)
{
        *ret_counts = (struct uvm_kernel_counts){0};
        if (e->kind == UVM_KIND_GPU_FAULT) {
                ret_counts->gpu_faults = 1;
                return true;
        }
        if (e->kind != UVM_KIND_MIGRATION || e->cause == UVM_MIGRATED_USER)
                return false;
        if (e->target != UVM_CPU)
                ret_counts->bytes_to_gpu = e->bytes;
        else if (e->cause == UVM_MIGRATED_EVICTION)
                ret_counts->bytes_evicted = e->bytes;
        else
                return false;
        return true;
}

void uvm_join_event(struct uvm_join *j, const struct uvm_event *e, uint64_t at_ns)
{
        struct mark *m = &j->marks[(j->marks_end - 1) % UVM_JOIN_MARKS];
        struct uvm_kernel_counts c;

        if (!counts_of(e, &c))
                return;
        if (j->marks_begin == j->marks_end || at_ns < m->at_ns || at_ns - m->at_ns > MARK_NS) {
                if (j->marks_end - j->marks_begin == UVM_JOIN_MARKS)
                        settle_mark(j, &j->marks[j->marks_begin++ % UVM_JOIN_MARKS]);
                m = &j->marks[j->marks_end++ % UVM_JOIN_MARKS];
                *m = (struct mark){.at_ns = at_ns};
        }
        add(&m->counts, &c);
}

void uvm_join_launch(struct uvm_join *j, uint64_t kernel, uint64_t start_ns, uint64_t end_ns)
{
        struct span *s = &j->spans[j->span_next];

        if (start_ns == 0 || end_ns < start_ns)
                return;
        /* The oldest is about to be forgotten: what waits for it is decided now. */
        if (s->end_ns)
                settle_until(j, s->end_ns);
        *s = (struct span){kernel, start_ns, end_ns};
        j->span_next = (j->span_next + 1) % UVM_JOIN_SPANS;
}

/* ---- what comes out ---- */

static int by_faults(const void *a, const void *b)
{
        const struct uvm_kernel_counts *x = a, *y = b;

        if (x->gpu_faults != y->gpu_faults)
                return x->gpu_faults < y->gpu_faults ? 1 : -1;
        return x->bytes_to_gpu < y->bytes_to_gpu ? 1 : x->bytes_to_gpu > y->bytes_to_gpu ? -1 : 0;
}

size_t uvm_join_top(const struct uvm_join *j, struct uvm_kernel_counts *ret_kernels, size_t max)
{
        struct uvm_kernel_counts sorted[UVM_JOIN_KERNELS];
        size_t n = j->kernel_count < max ? j->kernel_count : max;

        memcpy(sorted, j->kernels, j->kernel_count * sizeof(sorted[0]));
        qsort(sorted, j->kernel_count, sizeof(sorted[0]), by_faults);
        memcpy(ret_kernels, sorted, n * sizeof(sorted[0]));
        return n;
}

struct uvm_kernel_counts uvm_join_shared(const struct uvm_join *j)
{
        return j->shared;
}

struct uvm_kernel_counts uvm_join_idle(const struct uvm_join *j)
{
        return j->idle;
}
